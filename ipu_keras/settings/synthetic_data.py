"""What programs get in place of the host's data: `--use_synthetic_data` and its like."""

import numpy as np

from ipu_keras.settings.enumerations import SyntheticDataCategory
from ipu_keras.settings.flags import PoplarFlags

Infeed = SyntheticDataCategory.Infeed


def replaces_infeeds(flags: PoplarFlags) -> bool:
    """Whether infeeds leave their datasets unread."""
    return flags.null_data_feed or flags.asks_for_synthetic(Infeed)


def infeed_array(
    flags: PoplarFlags, shape: tuple[int, ...], dtype: str, number: int = 0
) -> np.ndarray:
    """Returns a tensor of the one element that infeeds give again and again.

    With `--null_data_feed` alone it holds zeros; else it is as `synthetic_array` has it.
    """
    if not flags.asks_for_synthetic(Infeed):
        return np.zeros(shape, dtype)
    return synthetic_array(flags, shape, dtype, number)


def synthetic_array(
    flags: PoplarFlags, shape: tuple[int, ...], dtype: str, number: int = 0
) -> np.ndarray:
    """Returns what a tensor holds as `--synthetic_data_initializer` says: zeros if it is not set.

    A number becomes the nearest one that the type has. `random` draws floating point numbers from
    N(0, 1), and zeros and ones for other types, so that they may be labels or indices. It draws the
    same in all processes, for the same `number` of the tensor.

    Example:

    >>> from ipu_keras.settings.flags import parse_flags
    >>> synthetic_array(parse_flags("--synthetic_data_initializer=2.5"), (2,), "int32")
    array([2, 2], dtype=int32)
    """
    initializer = flags.synthetic_data_initializer
    is_floating = np.issubdtype(dtype, np.floating)
    if initializer == "random":
        generator = np.random.default_rng(number)
        drawn = generator.normal(size=shape) if is_floating else generator.integers(2, size=shape)
        return drawn.astype(dtype)
    value = float(initializer or 0)
    if np.dtype(dtype) == bool:
        return np.full(shape, value != 0)
    # Python's numbers have no limit. They are rounded towards zero, as casts of IPUs do.
    kind, info = (float, np.finfo(dtype)) if is_floating else (int, np.iinfo(dtype))
    return np.full(shape, min(max(kind(value), kind(info.min)), kind(info.max)), dtype)
