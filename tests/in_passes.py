"""Partial sums in halves by NumPy: 16 input channels at a time, as an AMP unit takes them."""

import numpy as np


def added(partials, left, right):
    """Partials, halves, after one pass: products are exact in float32, and added up in order."""
    sums = np.zeros(partials.shape, np.float32)
    for k in range(left.shape[-1]):
        sums += np.float32(left[..., :, k, None]) * np.float32(right[..., None, k, :])
    return (np.float32(partials) + sums).astype(np.float16)


def product(left, right):
    stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    partials = np.zeros((*stack, left.shape[-2], right.shape[-1]), np.float16)
    for k in range(0, left.shape[-1], 16):
        partials = added(partials, left[..., k : k + 16], right[..., k : k + 16, :])
    return partials
