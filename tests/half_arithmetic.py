"""Halves as an IPU has them, in NumPy: what is computed of them is rounded once, and saturates."""

import numpy as np

LARGEST = 65504.0
EVERY = np.arange(2**16, dtype=np.uint16).view(np.float16)
EVERY = EVERY[np.isfinite(EVERY)]

# They overflow where their exact values are no infinities; other functions have poles there.
_OVERFLOWING = (np.exp, np.expm1, np.cosh, np.sinh)


def rounded(exact):
    """Returns the halves, in float32, that numbers become; infinities, as of a pole, are NaN."""
    exact = np.asarray(exact, np.float64)
    with np.errstate(over="ignore"):
        nearest = exact.astype(np.float16).astype(np.float32)
    nearest = np.where(np.isinf(nearest), np.copysign(LARGEST, exact), nearest)
    return np.where(np.isfinite(exact), nearest, np.nan).astype(np.float32)


class Halves(np.ndarray):
    """Numbers that are halves: each function of NumPy of them is computed in float64, and rounded.

    So the same formula has one rounding for each of its functions if it is given `halves(x)`, and
    none if it is given float64.
    """

    def __array_ufunc__(self, function, method, *inputs, **options):
        wide = [np.asarray(x) if _is_bool(x) else np.float64(rounded(x)) for x in inputs]
        if "out" in options:
            return NotImplemented
        options.pop("dtype", None)
        with np.errstate(all="ignore"):
            exact = getattr(function, method)(*wide, **options)
        if exact.dtype == bool:
            return exact
        if function in _OVERFLOWING:
            exact = np.where(np.isinf(exact), np.copysign(1e300, exact), exact)
        return halves(exact)

    def __array_function__(self, function, types, args, kwargs):
        if function in (np.mean, np.einsum):
            return _in_one_operation(function, args, kwargs)
        found = super().__array_function__(function, types, args, kwargs)
        # What moves or chooses numbers may return them as no halves.
        if isinstance(found, (list, tuple)):
            return [each.view(Halves) for each in found]
        is_float = isinstance(found, np.ndarray) and found.dtype == np.float32
        return found.view(Halves) if is_float else found


def _in_one_operation(function, args, kwargs):
    args = [np.asarray(x, np.float64) if isinstance(x, Halves) else x for x in args]
    return halves(function(*args, **kwargs))


def halves(array):
    return rounded(array).view(Halves)


def once(function):
    """Returns a function that computes exactly, and rounds what it returns if given halves."""

    def computed(*arrays):
        with np.errstate(all="ignore"):
            exact = function(*(np.asarray(array, np.float64) for array in arrays))
        if not any(isinstance(array, Halves) for array in arrays):
            return exact
        if isinstance(exact, tuple):
            return tuple(map(halves, exact))
        return halves(exact)

    return computed


def spacing(exact):
    """Returns how far halves near numbers lie apart."""
    exponent = np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-14)))
    return np.exp2(exponent - 10)


def differences(function, upstream, *given, step):
    """Returns the gradients of halves by what is exact, a step to both sides, and rounds them."""
    exact = [np.array(x, np.float64) if isinstance(x, Halves) else x for x in given]
    upstream = np.asarray(upstream, np.float64)
    found = []
    for array in (array for array, x in zip(exact, given, strict=True) if isinstance(x, Halves)):
        slope = np.empty_like(array)
        for place in np.ndindex(array.shape):
            middle, sides = array[place], []
            for moved in (middle - step, middle + step):
                array[place] = moved
                sides.append(np.sum(upstream * function(*exact)))
            array[place] = middle
            slope[place] = (sides[1] - sides[0]) / (2 * step)
        found.append(halves(slope))
    return found


def _is_bool(array):
    return np.asarray(array).dtype == bool
