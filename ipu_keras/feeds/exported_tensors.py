"""Writes tensors to files, as archives of NumPy's."""

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.feeds.dataset_options import with_optimizations
from ipu_keras.settings.arguments import checked_name, positive_integer
from ipu_keras.store.atomic_files import write_atomically

# Kinds of types that NumPy's files hold. Texts would be pickled, as objects of Python.
_NUMBERS = "biufc"


def export_dataset(
    dataset: Any, path: Path, num_elements: int, name: str, *, apply_options: bool
) -> None:
    """Writes elements of a dataset, stacked: a file for each tensor of an element.

    If an element has several tensors, their numbers go before the suffix of `path`. A dataset of
    a session's graph is read by a session of its own.

    Args:
        name: What the arrays in the files are called.
        apply_options: Whether TensorFlow may rearrange the dataset.

    Raises:
        TypeError: `dataset` is none, or its elements have other than dense tensors of numbers.
        ValueError: There are fewer elements, or they differ in shape.
        OSError: A file cannot be written.
    """
    if not isinstance(dataset, tf.data.Dataset | tf.compat.v1.data.Dataset):
        raise TypeError(
            "`dataset_or_infeed` must be a tf.data.Dataset or an IPUInfeedQueue. "
            f"Received: dataset_or_infeed={dataset!r} of type {type(dataset).__name__}"
        )
    count = positive_integer("num_elements", num_elements)
    checked_name("feed_name", name)
    _check_elements(dataset.element_spec)
    elements = list(_elements(with_optimizations(dataset, apply_options).take(count)))
    if len(elements) < count:
        raise ValueError(
            f"`num_elements` must not be more than the dataset has, which is {len(elements)}. "
            f"Received: num_elements={count}. `dataset.repeat()` has no end."
        )
    contents = [_archive({name: np.stack(rows)}) for rows in zip(*elements, strict=True)]
    for file, content in zip(_paths(path, len(contents)), contents, strict=True):
        write_atomically(file, content)


def export_graph_inputs(inputs: Any, path: Path, feed_dict: Any) -> None:
    """Writes the values of tensors and variables of a graph to one file, each by its name.

    Raises a `TypeError` if they are none or have other values than numbers, and an `OSError` if
    the file cannot be written.
    """
    given = list(inputs) if isinstance(inputs, list | tuple) else None
    if not given or not all(map(_is_of_a_graph, given)):
        raise TypeError(
            "`inputs` must be a list of placeholders, variables or other tensors of a graph. "
            f"Received: inputs={inputs!r}"
        )
    for one in given:
        _check_dtype(one.name, one.dtype.base_dtype)
    graph = given[0].graph
    session = tf.compat.v1.get_default_session()
    # The user's session has the values of variables; a session of our own has only initial ones.
    if session is not None and session.graph is graph:
        values = session.run(given, feed_dict)
    else:
        with _session(graph) as own:
            variables = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
            own.run([variable.initializer for variable in variables], feed_dict)
            values = own.run(given, feed_dict)
    names = [one.name for one in given]
    write_atomically(path, _archive(dict(zip(names, values, strict=True))))


def _elements(dataset: tf.data.Dataset) -> Iterator[Sequence[np.ndarray]]:
    if tf.executing_eagerly():
        for element in dataset:
            yield [tensor.numpy() for tensor in tf.nest.flatten(element)]
        return
    iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
    tensors = tf.nest.flatten(iterator.get_next())
    with _session(iterator.initializer.graph) as session:
        session.run(iterator.initializer)
        while True:
            try:
                element = session.run(tensors)
            except tf.errors.OutOfRangeError:
                return
            yield element


def _session(graph: tf.Graph) -> tf.compat.v1.Session:
    """Returns a session in which tables of the graph have their contents."""
    session = tf.compat.v1.Session(graph=graph)
    session.run(graph.get_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS))
    return session


def _paths(path: Path, count: int) -> list[Path]:
    if count == 1:
        return [path]
    return [path.with_name(f"{path.stem}.{index}{path.suffix}") for index in range(count)]


def _archive(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Does what `np.savez` does, which takes no array with the name of one of its own arguments."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)
    return file.getvalue()


def _is_of_a_graph(one: Any) -> bool:
    # Variables that were made eagerly have no attribute `graph`.
    is_variable = isinstance(one, tf.Variable) and hasattr(one, "graph")
    return is_variable or bool(tf.is_symbolic_tensor(one))


def _check_elements(element_spec: Any) -> None:
    for spec in tf.nest.flatten(element_spec):
        if not isinstance(spec, tf.TensorSpec):
            raise TypeError(
                "Only dense tensors are exported; convert others in the dataset, for instance with "
                f"`tf.sparse.to_dense`. Received: {spec}"
            )
        if not spec.shape.is_fully_defined():
            raise ValueError(
                f"Output shape {spec.shape} is not fully defined. If using tf.Dataset.batch, set "
                "`drop_remainder=True`."
            )
        _check_dtype(str(spec), spec.dtype)


def _check_dtype(what: str, dtype: tf.DType) -> None:
    if np.dtype(dtype.as_numpy_dtype).kind not in _NUMBERS:
        raise TypeError(
            f"Only numbers of NumPy's own types are exported: cast others. "
            f"Received: {what} of type {dtype.name}"
        )
