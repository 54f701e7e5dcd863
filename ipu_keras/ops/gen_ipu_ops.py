"""Operations of IPU software's plugin for TensorFlow, as far as scripts use them.

They are in `tensorflow.compiler.plugin.poplar.ops.gen_ipu_ops`.
"""

import tensorflow as tf

from ipu_keras.ops.summary_ops import reports_of_programs


def ipu_event_trace(name: str | None = None) -> tf.Tensor:
    """Gives the events of the IPU devices, when it is run: reports of the programs that ran
    last.

    `ipu.utils` has functions that extract what scripts want of them, such as
    `extract_all_strings_from_event_trace`.

    Args:
        name: Name of the operation.

    Returns:
        A vector of strings: for each configured device that has run a program the program's
            report as JSON, as `ipu_keras.last_report(device).to_json()` gives it.

    Example:

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     events = session.run(ipu_event_trace())
    >>> events.dtype
    dtype('O')
    """
    return reports_of_programs(name or "ipu_event_trace")
