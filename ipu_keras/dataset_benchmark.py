"""Benchmarks of datasets and infeeds."""

import json
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.feeds.dataset_options import with_optimizations
from ipu_keras.feeds.throughput import measure
from ipu_keras.functions.sessions import SessionStep, mark
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.settings.arguments import checked_switch, positive_integer


def dataset_benchmark(
    dataset: tf.data.Dataset,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    apply_options: bool = True,
    do_memcpy: bool = True,
) -> Any:
    """Measures how fast a dataset is read.

    It is read as a program's loop reads it, one element after the other. Epochs go on where the one
    before has ended: a dataset of one epoch needs `repeat()` for more.

    Args:
        dataset: The `tf.data.Dataset` to read.
        number_of_epochs: How many epochs are measured.
        elements_per_epochs: How many elements each of them has.
        print_stats: Whether a line for each epoch is printed.
        apply_options: Whether TensorFlow may rearrange the dataset to be read faster. Otherwise its
            steps run as they were written.
        do_memcpy: Whether each tensor is copied, as an infeed copies it to a buffer of Poplar's.

    Returns:
        A JSON text; in a graph of a session, a scalar tensor of it, for which the dataset is
        measured whenever it is run. Its `epochs` is a list with, for each of them,
        `elements_processed`, `total_bytes_processed`, `time_elapsed` in seconds,
        `elements_per_second`, and `bandwidth` in GB/s.

    Raises:
        TypeError: `dataset` is no dataset, or one of the last three no truth value.
        ValueError: `number_of_epochs` or `elements_per_epochs` is less than 1.
        tf.errors.OutOfRangeError: The dataset has fewer elements. In a session, when it is run.

    Example:

    >>> dataset = tf.data.Dataset.range(10).batch(5, drop_remainder=True).repeat()
    >>> text = dataset_benchmark(dataset, 2, 100, print_stats=False)
    >>> [epoch["total_bytes_processed"] for epoch in json.loads(text)["epochs"]]
    [4000, 4000]
    """
    if not isinstance(dataset, tf.data.Dataset | tf.compat.v1.data.Dataset):
        raise TypeError(
            "`dataset` must be an instance of tf.data.Dataset. "
            f"Received: dataset={dataset!r} of type {type(dataset).__name__}"
        )
    return _benchmark(
        with_optimizations(dataset, checked_switch("apply_options", apply_options)),
        number_of_epochs,
        elements_per_epochs,
        print_stats,
        do_memcpy,
    )


def infeed_benchmark(
    infeed_queue: IPUInfeedQueue,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    do_memcpy: bool = True,
) -> Any:
    """Measures how fast an infeed is read.

    It does what `dataset_benchmark` does, for the dataset of a queue with its prefetching. The
    queue need not be initialized, and keeps its place.

    Args:
        infeed_queue: The `IPUInfeedQueue` to measure.
        number_of_epochs: How many epochs are measured.
        elements_per_epochs: How many elements each of them has.
        print_stats: Whether a line for each epoch is printed.
        do_memcpy: Whether each tensor is copied, as an infeed copies it to a buffer of Poplar's.

    Returns:
        The same as `dataset_benchmark`.

    Raises:
        TypeError: `infeed_queue` is no `IPUInfeedQueue`, or one of the last two no truth value.
        ValueError: `number_of_epochs` or `elements_per_epochs` is less than 1.
        tf.errors.OutOfRangeError: The dataset has fewer elements. In a session, when it is run.

    Example:

    >>> queue = IPUInfeedQueue(tf.data.Dataset.from_tensors([1.0, 2.0]).repeat())
    >>> text = infeed_benchmark(queue, 1, 50, print_stats=False)
    >>> json.loads(text)["epochs"][0]["elements_processed"]
    50
    """
    if not isinstance(infeed_queue, IPUInfeedQueue):
        raise TypeError(
            "`infeed_queue` must be an instance of ipu.ipu_infeed_queue.IPUInfeedQueue. "
            f"Received: infeed_queue={infeed_queue!r} of type {type(infeed_queue).__name__}"
        )
    return _benchmark(
        dataset_of(infeed_queue), number_of_epochs, elements_per_epochs, print_stats, do_memcpy
    )


def dataset_of(infeed_queue: IPUInfeedQueue) -> tf.data.Dataset:
    """Returns the dataset of a queue, with what it reads ahead."""
    return infeed_queue._iterator._dataset


def _benchmark(
    dataset: tf.data.Dataset,
    number_of_epochs: Any,
    elements_per_epochs: Any,
    print_stats: Any,
    do_memcpy: Any,
) -> Any:
    num_epochs = positive_integer("number_of_epochs", number_of_epochs)
    num_elements = positive_integer("elements_per_epochs", elements_per_epochs)
    prints = checked_switch("print_stats", print_stats)
    copies = checked_switch("do_memcpy", do_memcpy)

    def statistics(seconds: np.ndarray, num_bytes: np.ndarray) -> str:
        text = _statistics(num_elements, seconds, num_bytes)
        if prints:
            _print(text)
        return text

    def explain(error: Exception) -> None:
        if isinstance(error, tf.errors.OutOfRangeError):
            raise tf.errors.OutOfRangeError(
                None,
                None,
                f"The dataset has fewer elements than {num_epochs} epochs of {num_elements} take: "
                "lower `number_of_epochs` or `elements_per_epochs`, or use `dataset.repeat()`.",
            ) from error

    try:
        seconds, num_bytes = measure(dataset, num_epochs, num_elements, copies=copies)
    except tf.errors.OutOfRangeError as error:
        explain(error)
        raise
    if tf.executing_eagerly():
        return statistics(seconds.numpy(), num_bytes.numpy())
    with tf.device("/device:CPU:0"):
        text = tf.numpy_function(statistics, [seconds, num_bytes], tf.string, stateful=True)
    text.set_shape(())
    if not tf.inside_function():
        mark(text.op, SessionStep(explain=explain))
    return text


def _statistics(num_elements: int, seconds: np.ndarray, num_bytes: np.ndarray) -> str:
    return json.dumps(
        {
            "epochs": [
                {
                    "elements_processed": num_elements,
                    "total_bytes_processed": size,
                    "time_elapsed": duration,
                    "elements_per_second": num_elements / duration,
                    "bandwidth": size / duration / 1e9,
                }
                # A short epoch may take no time by the clock, and is divided by.
                for duration, size in zip(
                    np.maximum(seconds, 1e-9).tolist(), num_bytes.tolist(), strict=True
                )
            ]
        }
    )


def _print(text: str) -> None:
    for index, epoch in enumerate(json.loads(text)["epochs"]):
        print(
            f"Epoch {index}: {epoch['elements_processed']} elements, "
            f"{epoch['total_bytes_processed']} bytes in {epoch['time_elapsed']:.6f} s: "
            f"{epoch['elements_per_second']:.1f} elements/s, {epoch['bandwidth']:.6f} GB/s"
        )
