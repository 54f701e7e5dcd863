"""Summaries for TensorBoard in graphs of TensorFlow 1."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.device import device_for
from ipu_keras.machine.system import SYSTEM


def ipu_compile_summary(name: str, op_list: Any, collections: Sequence[str] | None = None) -> Any:
    """Summarizes the programs that the IPU devices ran last.

    The summary has a vector of strings: for each configured device that has run a program of a
    Keras model, its report as JSON, as `ipu_keras.last_report(device).to_json()` gives it. The
    programs are modelled when the summary is run.

    Args:
        name: Name of the summary's operation and tag.
        op_list: An operation or tensor, or a list of them, that runs before the summary.
        collections: Keys of collections of the graph to add it to. Defaults to
            `[GraphKeys.SUMMARIES]`.

    Returns:
        A scalar of type string: a serialized `Summary`.

    Example:

        with tf.Graph().as_default():
            summary = ipu_compile_summary("compiled", [train_op])
            with tf.compat.v1.Session() as session:
                writer.add_summary(session.run(summary))
    """
    operations = list(op_list) if isinstance(op_list, list | tuple) else [op_list]
    with tf.control_dependencies(operations):
        reports = reports_of_programs(f"{name}_reports")
    return tensor_summary(name, reports, "Reports of programs on IPUs", collections)


def reports_of_programs(name: str) -> tf.Tensor:
    """Returns the reports of the programs that the devices ran last, as JSON, when it is run."""
    reports = tf.numpy_function(_reports, [], tf.string, stateful=True, name=name)
    return tf.ensure_shape(reports, [None])


def tensor_summary(
    name: str,
    tensor: Any,
    summary_description: str | None = None,
    collections: Sequence[str] | None = None,
    summary_metadata: Any = None,
    family: str | None = None,
    display_name: str | None = None,
) -> Any:
    """Summarizes a tensor as it is.

    The summary runs on the host, which the tensor is copied to.

    Args:
        name: Name of the operation; without `display_name` also the tag.
        tensor: A tensor of any type and shape.
        summary_description: A long description, in Markdown.
        collections: Keys of collections of the graph to add it to. Defaults to
            `[GraphKeys.SUMMARIES]`.
        summary_metadata: A `SummaryMetadata` that says which plugins may use it.
        family: Text that is put before the tag.
        display_name: What TensorBoard shows. Defaults to the name.

    Returns:
        A scalar of type string: a serialized `Summary`.

    Example:

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     serialized = session.run(tensor_summary("ids", tf.constant([1, 2])))
    >>> tf.make_ndarray(tf.compat.v1.Summary.FromString(serialized).value[0].tensor)
    array([1, 2], dtype=int32)
    """
    with tf.device("CPU"):
        return tf.compat.v1.summary.tensor_summary(
            name,
            tensor,
            summary_description=summary_description,
            collections=collections,
            summary_metadata=summary_metadata,
            family=family,
            display_name=display_name,
        )


def _reports() -> np.ndarray:
    from ipu_keras.profiling.reports import last_report

    ran = [d.ordinal for d in SYSTEM.devices if device_for(d.ordinal).engine.loaded is not None]
    return np.array([last_report(ordinal).to_json().encode() for ordinal in ran], dtype=object)
