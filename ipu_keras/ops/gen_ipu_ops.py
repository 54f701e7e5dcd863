"""What scripts take of the operations of IPU software's plugin for TensorFlow.

They are in `tensorflow.compiler.plugin.poplar.ops.gen_ipu_ops`.
"""

import tensorflow as tf

from ipu_keras.ops.summary_ops import reports_of_programs


def ipu_event_trace(name: str | None = None) -> tf.Tensor:
    """The events of the IPU devices, when it is run: the reports of the programs that ran last.

    `ipu.utils` has functions that extract what scripts want of them, such as
    `extract_all_strings_from_event_trace`.

    Args:
        name: Of the operation.

    Returns:
        A vector of strings: of each configured device that has run a program its report as JSON,
        as `ipu_keras.last_report(device).to_json()` gives it.

    Example:

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     events = session.run(ipu_event_trace())
    >>> events.dtype
    dtype('O')
    """
    return reports_of_programs(name or "ipu_event_trace")
