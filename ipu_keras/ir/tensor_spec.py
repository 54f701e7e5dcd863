"""Defines what is known of a tensor before it has values."""

import functools
import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TensorSpec:
    """Shape (in elements) and dtype (by its NumPy name) of one tensor, without its values."""

    shape: tuple[int, ...]
    dtype: str

    @functools.cached_property
    def nbytes(self) -> int:
        """Size of the tensor in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize
