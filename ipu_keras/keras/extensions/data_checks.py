"""Checks that the data of `fit`, `evaluate` and `predict` suits a program of static shapes."""

import collections.abc
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf
from keras import tree

from ipu_keras.feeds.dataset_feed import ElementFormat, dtype_of
from ipu_keras.program.data_types import FEED_DTYPES
from ipu_keras.settings.arguments import noted


def refuse_generators(x: Any) -> None:
    """Refuses Python generators and iterators, whose length and shapes cannot be known."""
    if isinstance(x, collections.abc.Iterator):
        raise ValueError(
            f"The provided set of data is of type `{type(x).__name__}` which is not compatible "
            "with the IPU's requirement to know the data shapes and the number of batches before "
            "it runs. Use arrays, a `keras.utils.PyDataset` or a `tf.data.Dataset`, for instance "
            "`tf.data.Dataset.from_generator` with an `output_signature`."
        )


def with_ipu_integers(batch: Any) -> Any:
    """Returns a batch in which integers that feeds cannot carry have become int32, if they fit.

    Methods such as `train_on_batch` pass their batch without an infeed, so they need not refuse
    int64 as `fit` does.
    """
    return tree.map_structure(_as_ipu_integers, batch)


def _as_ipu_integers(leaf: Any) -> Any:
    if leaf is None:
        return None
    dtype = dtype_of(leaf)
    if not dtype.is_integer or dtype.name in FEED_DTYPES:
        return leaf
    array = np.asarray(leaf)
    for number in (array.min(initial=0), array.max(initial=0)):
        if not tf.int32.min <= number <= tf.int32.max:
            raise ValueError(
                "IPUs compute with integers of up to 32 bits, and batches take int32. Received: "
                f"{number} in {dtype.name} data of shape {array.shape}; make it a number from "
                f"{tf.int32.min} to {tf.int32.max}."
            )
    return array.astype(np.int32)


def num_steps(
    num_batches: int | None,
    steps_per_epoch: int | None,
    num_replicas: int = 1,
    *,
    epochs: int = 1,
    is_endless: Callable[[], bool],
) -> int:
    """Returns the steps of one epoch for each replica, which takes a batch in every step.

    Batches that the replicas cannot share evenly are dropped, with a warning. It is an error if
    the number cannot be known, or is less than that of replicas.

    Args:
        num_batches: Number of batches in the data; `None` if nobody knows.
        steps_per_epoch: What the user gave, the batches of all replicas together.
        epochs: Number of epochs that share one pass over the batches.
        is_endless: Whether the batches never end; called only if `num_batches` is `None`.
    """
    of_epoch = num_batches if steps_per_epoch is None else steps_per_epoch
    if num_batches is not None and num_batches < num_replicas:
        raise ValueError(
            f"The provided dataset contains {num_batches} items, but all {num_replicas} replicas "
            f"are requested to run {max((of_epoch or 0) // num_replicas, 1)} steps each. Make sure "
            "the dataset contains at least one full batch for each of them; with "
            "`drop_remainder=True` a dataset smaller than the batch size has none."
        )
    if of_epoch is None:
        _refuse_unknown_size(is_endless())
    if of_epoch < num_replicas:
        raise ValueError(
            f"The steps of an epoch are shared by the {num_replicas} replicas, each of which takes "
            "a batch in a step of its own. Make `steps_per_epoch` of `fit`, or `steps` of "
            f"`evaluate` and `predict`, a multiple of {num_replicas}. Received: {of_epoch}"
        )
    _warn_of_rest(of_epoch, num_replicas)
    if num_batches is not None and of_epoch * epochs > num_batches > of_epoch:
        # Epochs shorter than the data go through it in passes, each of which drops its own rest.
        _warn_of_rest(num_batches, num_replicas)
    return of_epoch // num_replicas


def _refuse_unknown_size(is_endless: bool) -> NoReturn:
    if is_endless:
        raise noted(
            ValueError(
                "When providing an infinite dataset, you must specify the number of steps to "
                "run (if you did not intend to create an infinite dataset, make sure to not "
                "call `repeat()` on the dataset)."
            ),
            "Pass `steps_per_epoch` to `fit`, `steps` to `evaluate` or `predict`.",
        )
    raise noted(
        ValueError(
            "Could not infer the size of the data. You must specify the number of steps to run."
        ),
        "Pass `steps_per_epoch` to `fit`, `steps` to `evaluate` or `predict`, or state the "
        "size with `tf.data.experimental.assert_cardinality`.",
    )


def _warn_of_rest(batches: int, num_replicas: int) -> None:
    rest = batches % num_replicas
    if rest:
        warnings.warn(
            f"The number of batches ({batches}) is no multiple of the {num_replicas} replicas, "
            f"each of which takes one in a step. The last {rest} of them will be dropped. Take "
            f"{batches - rest}, or as many as make a multiple, to use all.",
            stacklevel=2,
        )


def refuse_shortage(
    num_batches: int | None, steps_per_epoch: int | None, epochs: int, *, num_replicas: int = 1
) -> None:
    """Refuses a run in which the data are known to end within an epoch.

    An epoch that begins when all batches have been used begins with the first one again, as in
    Keras. The arguments are those of `num_steps`.
    """
    if steps_per_epoch is None or num_batches is None:
        return
    of_epoch = steps_per_epoch - steps_per_epoch % num_replicas
    needed, available = of_epoch * epochs, num_batches - num_batches % num_replicas
    if needed <= available or available % of_epoch == 0:
        return
    raise noted(
        ValueError(
            "Your input does not have enough data. Make sure that your dataset or generator "
            f"can generate at least {needed} batches."
        ),
        f"That is steps_per_epoch={steps_per_epoch} for {epochs} epochs; `repeat()` begins a "
        f"dataset again. Received: {num_batches} batches",
    )


def executed_steps(
    steps_per_execution: int, batches: int, per_epoch: bool, num_replicas: int = 1
) -> int:
    """Returns `steps_per_execution`, a divisor of `batches`, or these with a warning if they are
    fewer.

    Both count the steps of one replica. `per_epoch` says that the user gave `steps_per_epoch`,
    for the wording.
    """
    of_each = "" if num_replicas == 1 else f" for each of the {num_replicas} replicas"
    if steps_per_execution > batches:
        warnings.warn(
            f"`steps_per_execution` has been set to {steps_per_execution} but the dataset provided "
            f"only contains {batches} batches{of_each}. Using {batches} as `steps_per_execution` "
            "instead.",
            stacklevel=2,
        )
        return batches
    if batches % steps_per_execution:
        source = " to `steps_per_epoch`" if per_epoch else ""
        fitting = (batches - batches % steps_per_execution) * num_replicas
        raise noted(
            ValueError(
                f"`steps_per_execution` ({steps_per_execution}) must be a divisor of the number "
                f"of batches ({batches}) in the dataset provided{source}{of_each}."
            ),
            "Change either, so that every execution is full, for instance with "
            f"`dataset.take({fitting})`, or with the samples of {fitting} batches of an array.",
        )
    return steps_per_execution


def refuse_partial_batch(batch_size: int, last_size: int | None) -> None:
    """Refuses data whose last batch is smaller; `last_size` is `None` if it is a whole one."""
    if last_size is not None:
        raise noted(
            ValueError(
                "The provided set of data has a partial batch, which could result in data "
                "being dropped. Either adjust the `batch_size` so that it divides the number "
                "of samples, or pass a `tf.data.Dataset` batched with `drop_remainder=True`."
            ),
            f"Received: batch_size={batch_size} with {last_size} samples in the last batch",
        )


def refuse_partial_last(first: ElementFormat, last: ElementFormat) -> None:
    """Refuses data whose last batch differs from its first in the size of a first axis."""
    for one, other in zip(first.specs, last.specs, strict=False):
        if one.shape[:1] != other.shape[:1]:
            refuse_partial_batch(one.shape[0], other.shape[0])


def nan_label_check(element: ElementFormat, loss: Any) -> Callable[[list[np.ndarray]], None] | None:
    """Returns a function that raises if an array of labels holds NaN, or None if none is needed.

    NaN labels would destroy the weights, and no step could be traced back to them. Labels
    without floats cannot hold NaN, and a loss of the user's own may give NaN a meaning, such as
    a missing label.
    """
    _, labels, _ = keras.utils.unpack_x_y_sample_weight(element.structure)
    if labels is None:
        return None
    positions = [
        position
        for position in tree.flatten(labels)
        if position is not None and element.specs[position].dtype.startswith("float")
    ]
    if not positions or not _is_keras_loss(loss):
        return None
    return lambda arrays: _refuse_nan([arrays[p] for p in positions])


def _refuse_nan(labels: list[np.ndarray]) -> None:
    for array in labels:
        if np.isnan(array).any():
            raise ValueError(
                "The labels contain NaN, which would make the loss and the weights NaN, whatever "
                "the sample weights. Remove these samples, or use a loss of your own that masks "
                "them. "
                f"Received: {np.isnan(array).sum()} NaN values in labels of shape {array.shape}"
            )


def _is_keras_loss(loss: Any) -> bool:
    def known(one: Any) -> bool:
        return isinstance(one, str) or getattr(one, "__module__", "").startswith("keras.src.losses")

    return all(known(one) for one in tree.flatten(loss))
