"""Datasets of slices: batches that a feed copies from the arrays themselves.

TensorFlow makes tensors of rows and of batches, which takes longer than copying them. A feed needs
no more than the order of the rows.
"""

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras._shuffle import shuffled_rows
from ipu_keras.internals.fallbacks import fallbacks
from ipu_keras.internals.tensorflow.datasets import (
    Batched,
    Repeated,
    Shuffled,
    Sliced,
    is_eager,
    steps_of,
)

Batch = list[np.ndarray]

# How many passes that others made over a dataset in the meantime are looked for.
_PASSES_OF_OTHERS = 64
# Bits of chance in the first rows from which on another of these passes begins so once in 10^12
# times. 13 distinct rows have them, as 13 values are drawn so with a chance of 13^-13 at most,
# however many rows of a dataset are equal.
_DISTINCT_ROWS = 13
_CERTAIN_BITS = 46
# Rows after which TensorFlow reads the rest too: most of them are equal, or the buffer has one.
_MOST_ROWS = 256

# `tf.random.Algorithm.PHILOX`, which `Dataset.shuffle` draws from.
_PHILOX = 1

# The steps of the datasets that are recognised, the last first: `from_tensor_slices`, `shuffle`
# or not, `batch`, `repeat` or not. Anything else, TensorFlow reads.
_BATCHED_ROWS = [
    (*repeat, Batched, *shuffle, Sliced)
    for repeat in ((), (Repeated,))
    for shuffle in ((), (Shuffled,))
]


class ReplayedShuffle:
    """The orders of the rows of a shuffled dataset.

    A generator inside TensorFlow gives each pass its seeds, whoever makes the pass. How many it
    has given cannot be asked, so the rows that TensorFlow reads first decide.

    Args:
        buffer_size: Rows that TensorFlow draws from.
        seeds: The two seeds of the dataset; zeros if the user set none.
        reshuffles: Whether each pass has an order of its own.
    """

    def __init__(self, buffer_size: int, seeds: tuple[int, int], *, reshuffles: bool):
        self._buffer_size = buffer_size
        self._seeds = seeds
        self._reshuffles = reshuffles
        self._num_passes = 0

    @property
    def is_free(self) -> bool:
        """Whether any order will do: no seed is set, and no pass has to have that of another."""
        return self._reshuffles and self._seeds == (0, 0)

    def any_order(self, num_rows: int) -> np.ndarray:
        """Returns an order for which there was no seed."""
        draws = np.random.default_rng().integers(2**32, size=num_rows, dtype=np.uint32)
        return np.asarray(shuffled_rows(draws, num_rows, self._buffer_size))

    def next_passes(self) -> Iterator["ShuffledPass"]:
        """Yields the passes that may come next, if others have made those before them."""
        if not self._reshuffles:
            yield ShuffledPass(0, self._seeds, self._buffer_size)
            return
        last = self._num_passes + _PASSES_OF_OTHERS
        seeds = random_words(self._seeds, 2 * last).reshape(last, 2).tolist()
        for index in range(self._num_passes, last):
            yield ShuffledPass(index + 1, tuple(seeds[index]), self._buffer_size)

    def note(self, found: "ShuffledPass") -> None:
        """Says which pass was made."""
        self._num_passes = found.number

    def tells_apart(self, rows: Iterable[Hashable], num_rows: int) -> bool:
        """Whether no two of the passes that may come next begin with these of `num_rows` rows."""
        if not self._reshuffles:
            return True
        bits, seen = 0.0, set()
        for position, row in enumerate(rows):
            if row not in seen:
                # Each row is drawn from as many as the buffer has.
                bits += math.log2(min(self._buffer_size, num_rows - position))
                seen.add(row)
            if len(seen) >= _DISTINCT_ROWS and bits > _CERTAIN_BITS:
                return True
        return False


@dataclass(frozen=True)
class ShuffledPass:
    """A pass over a shuffled dataset: its number, from 1 on, and the seeds that it is given."""

    number: int
    seeds: tuple[int, int]
    buffer_size: int

    def order(self, num_rows: int, num_first: int | None = None) -> np.ndarray:
        """Returns the positions of the rows, or of so many that come first."""
        draws = random_words(self.seeds, num_rows if num_first is None else num_first)
        return np.asarray(shuffled_rows(draws, num_rows, self.buffer_size))


@dataclass(frozen=True)
class BatchedRows:
    """A dataset of rows of arrays: `from_tensor_slices`, shuffled or not, then batched.

    Rows that fill no batch are left out of each pass.

    Args:
        one_pass: The dataset of one pass, which TensorFlow reads.
        num_passes: How often it is repeated; -1 for without end.
    """

    one_pass: tf.data.Dataset
    arrays: list[np.ndarray]
    batch_size: int
    shuffle: ReplayedShuffle | None
    num_passes: int = 1

    @property
    def num_rows(self) -> int:
        return len(self.arrays[0])

    @property
    def is_read(self) -> bool:
        """Whether TensorFlow has to read a batch, to find out the order."""
        return self.shuffle is not None and not self.shuffle.is_free

    def batches(self, read: Iterator[Batch] | None) -> Iterator[Batch]:
        """Yields the batches of one pass, one array for each tensor.

        Args:
            read: The batches that TensorFlow reads of `one_pass`; `None` unless `is_read`.
        """
        order = None
        if self.shuffle is not None and self.shuffle.is_free:
            order = self.shuffle.any_order(self.num_rows)
        elif self.shuffle is not None:
            assert read is not None
            order, first = self._order(self.shuffle, read)
            if order is None:
                # Its rows do not tell, or others have read the dataset too often: what TensorFlow
                # reads is right anyhow.
                yield from first
                yield from read
                return
        for start in range(0, self.num_rows - self.batch_size + 1, self.batch_size):
            rows = slice(start, start + self.batch_size)
            if order is None:
                yield [array[rows] for array in self.arrays]
            else:
                yield self._taken(order[rows])

    def _order(
        self, shuffle: ReplayedShuffle, read: Iterator[Batch]
    ) -> tuple[np.ndarray | None, list[Batch]]:
        """Returns the order of the pass that TensorFlow reads, and the batches that decided it."""
        first = [next(read)]
        # Small batches, small buffers and equal rows begin several passes.
        while not shuffle.tells_apart(_rows_of(first), self.num_rows):
            batch = next(read, None)
            if batch is None:
                return None, first
            first.append(batch)
            if len(first) * self.batch_size > _MOST_ROWS:
                return None, first
        for each in shuffle.next_passes():
            if self._begins(each, first):
                shuffle.note(each)
                return each.order(self.num_rows), first
        return None, first

    def _begins(self, one: ShuffledPass, batches: list[Batch]) -> bool:
        """Whether a pass begins with these batches, bit by bit: a NaN equals itself here."""
        rows = one.order(self.num_rows, len(batches) * self.batch_size)
        return all(
            taken.tobytes() == read.tobytes()
            for here, batch in zip(np.split(rows, len(batches)), batches, strict=True)
            for taken, read in zip(self._taken(here), batch, strict=True)
        )

    def _taken(self, rows: np.ndarray) -> Batch:
        return [array.take(rows, axis=0) for array in self.arrays]


def _rows_of(batches: list[Batch]) -> Iterator[tuple[bytes, ...]]:
    for batch in batches:
        for row in zip(*batch, strict=True):
            yield tuple(value.tobytes() for value in row)


def random_words(seeds: tuple[int, int], count: int) -> np.ndarray:
    """Returns the first numbers of TensorFlow's generator with these two seeds, as uint32."""
    first, second = np.array(seeds, np.int64).view(np.uint64)
    with tf.device("CPU:0"):
        words = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[count], key=[first], counter=[0, second], alg=_PHILOX, dtype=tf.uint32
        )
    return words.numpy()


def sliced_dataset(dataset: tf.data.Dataset) -> BatchedRows | None:
    """Finds the arrays that the batches of a dataset are rows of.

    Returns `None` unless it is `from_tensor_slices`, then `shuffle` or not, `batch` with
    `drop_remainder=True`, and `repeat` or not; made outside of functions.

    Example:

    >>> import tensorflow as tf
    >>> examples = tf.data.Dataset.from_tensor_slices([1, 2, 3, 4, 5])
    >>> sliced = sliced_dataset(examples.batch(2, drop_remainder=True))
    >>> [batch.tolist() for (batch,) in sliced.batches(None)]
    [[1, 2], [3, 4]]
    """
    return fallbacks().attempt("batches copied from arrays", _sliced_dataset, dataset)


def _sliced_dataset(dataset: tf.data.Dataset) -> BatchedRows | None:
    if not is_eager(dataset):
        return None
    steps = list(steps_of(dataset))
    kinds = tuple(type(step) for step in steps)
    if kinds in _BATCHED_ROWS:
        return _batched_rows(dataset, dict(zip(kinds, steps, strict=True)))
    return None


def _batched_rows(dataset: tf.data.Dataset, steps: dict[type, Any]) -> BatchedRows | None:
    batch = steps[Batched]
    repeat, shuffled = steps.get(Repeated), steps.get(Shuffled)
    shuffle = None if shuffled is None else _shuffle(shuffled)
    if not batch.drops_remainder or (shuffle is None) != (shuffled is None):
        return None
    rows = BatchedRows(
        one_pass=dataset if repeat is None else batch.dataset.with_options(dataset.options()),
        arrays=_arrays(steps[Sliced]),
        num_passes=1 if repeat is None else repeat.count,
        batch_size=batch.size,
        shuffle=shuffle,
    )
    # As in TensorFlow, a pass without batches ends the repetition.
    return rows if rows.num_rows >= rows.batch_size else replace(rows, num_passes=0)


def _arrays(made_from: Sliced) -> list[np.ndarray]:
    """Returns the arrays that a dataset was made from, without a copy."""
    return [np.asarray(tensor) for tensor in made_from.tensors]


def _shuffle(shuffled: Shuffled) -> ReplayedShuffle | None:
    """Returns the orders of a shuffle; `None` if TensorFlow alone knows them."""
    buffer_size, seeds = shuffled.buffer_size, shuffled.seeds
    reshuffles = shuffled.reshuffles
    # A buffer without a size takes in all rows first, whatever their number.
    if buffer_size < 1 or (seeds == (0, 0) and not reshuffles):
        return None
    return ReplayedShuffle(buffer_size, seeds, reshuffles=reshuffles)
