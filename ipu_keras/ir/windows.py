"""Counts what windows over a padded or dilated input meet."""

import functools

import numpy as np


@functools.lru_cache(maxsize=1024)
def pairs_met(
    field: int, kernel: int, stride: int, kernel_dilation: int, dilation: int, low: int, span: int
) -> np.ndarray:
    """Returns how many elements of the kernel meet an input, for each output of a dimension."""
    met = np.zeros(field, np.int64)
    outputs, elements = np.arange(field) * stride - low, np.arange(kernel) * kernel_dilation
    # One at a time of what there is less of.
    if kernel <= field:
        for element in elements:
            met += _is_met(outputs + element, span, dilation)
    else:
        for index, output in enumerate(outputs):
            met[index] = _is_met(output + elements, span, dilation).sum()
    return met


def _is_met(positions: np.ndarray, span: int, dilation: int) -> np.ndarray:
    return (positions >= 0) & (positions < span) & (positions % dilation == 0)
