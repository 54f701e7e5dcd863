"""Batches of arrays in Keras's order of rows, without a `tf.data` pipeline.

To make and to open a pipeline takes 40 ms, in each call of `fit`, `evaluate` or `predict`.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from ipu_keras._shuffle import shuffled_rows
from ipu_keras.feeds.sliced_datasets import Batch, random_words

# TensorFlow's Philox generator makes four numbers at a time.
_WORDS_OF_A_BLOCK = 4


class Shuffle:
    """The order of shuffled rows that `tf.random.shuffle` gives in a dataset's function.

    Such a function begins anew with each iterator, so each pass has the same order if a seed was
    set.

    Args:
        seeds: The operation's two seeds; `None` if the user set none, so that any order will do.
        of_batches: Whether only the rows of each batch are shuffled.
    """

    def __init__(self, seeds: tuple[int, int] | None, *, of_batches: bool = False):
        self._seeds = seeds
        self._of_batches = of_batches

    def order(self, num_rows: int, batch_size: int) -> np.ndarray:
        """Returns the positions of rows in the order of the next pass.

        With `of_batches`, rows that fill no batch are left out.
        """
        size = batch_size if self._of_batches else num_rows
        count = num_rows // size
        return (self._orders(count, size) + np.arange(0, count * size, size)[:, None]).ravel()

    def _orders(self, count: int, size: int) -> np.ndarray:
        """Returns `count` orders of `size` rows each, `(count, size)`."""
        if self._seeds is None:
            rows = np.tile(np.arange(size), (count, 1))
            return np.random.default_rng().permuted(rows, axis=1)
        # The operation draws for all rows but the last; the rest of a block is not used by the
        # next.
        drawn = -(-(size - 1) // _WORDS_OF_A_BLOCK) * _WORDS_OF_A_BLOCK
        words = random_words(self._seeds, count * drawn + 1)
        starts = range(0, count * drawn, drawn) if drawn else [0] * count
        return np.array(
            [shuffled_rows(words[start : start + size], size, size) for start in starts]
        )


class ArrayBatches:
    """The batches of passes over arrays, `(rows, ...)`; rows that fill no batch are left out.

    Example:

    >>> batches = ArrayBatches([np.arange(6)], 3)
    >>> [rows.tolist() for (rows,) in batches]
    [[0, 1, 2], [3, 4, 5]]
    """

    def __init__(
        self, arrays: Sequence[np.ndarray], batch_size: int, shuffle: Shuffle | None = None
    ):
        self._arrays = arrays
        self._batch_size = batch_size
        self._shuffle = shuffle

    def __len__(self) -> int:
        return len(self._arrays[0]) // self._batch_size

    def __iter__(self) -> Iterator[Batch]:
        size, order = self._batch_size, None
        if self._shuffle is not None:
            order = self._shuffle.order(len(self._arrays[0]), size)
        for start in range(0, len(self) * size, size):
            rows = slice(start, start + size)
            if order is None:
                yield [array[rows] for array in self._arrays]
            else:
                yield [array.take(order[rows], axis=0) for array in self._arrays]
