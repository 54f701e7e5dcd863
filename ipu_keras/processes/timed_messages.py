"""Messages between processes outside of programs, which wait no longer than those of programs."""

import time
from typing import Any

import numpy as np

from ipu_keras._mpi_calls import agree_on
from ipu_keras.processes.joining import joined, patience

# A process that is a little late is worth spinning for.
_SPINNING, _PAUSE = 0.002, 0.0005


def gathered(array: np.ndarray) -> list[np.ndarray]:
    """Returns the arrays of all processes, by rank; their first axes may differ."""
    communicator = joined()
    own = np.asarray(array, order="C")  # a scalar stays one
    agree_on(f"a message of {own.dtype}, rows of {list(own.shape[1:])}, to all")
    counts = np.empty(communicator.size, np.int64)
    _wait(communicator.Iallgather(np.array([own.nbytes]), counts))
    found = np.empty(counts.sum(), np.uint8)
    # Bytes, as mpi4py knows no halves.
    _wait(communicator.Iallgatherv(_bytes_of(own), [found, counts.astype(np.int32)]))
    parts = np.split(found, counts.cumsum()[:-1])
    return [part.view(own.dtype).reshape(_shape(part, own)) for part in parts]


def handed_on(array: np.ndarray, root: int) -> np.ndarray:
    """Returns the array of the process `root`, of the same shape and type in all processes."""
    found = np.array(array, order="C")
    agree_on(f"a message of {found.dtype}{list(found.shape)} from rank {root}")
    _wait(joined().Ibcast(_bytes_of(found), root))
    return found


def _shape(part: np.ndarray, own: np.ndarray) -> tuple[int, ...]:
    if not own.ndim:
        return ()
    row = own.dtype.itemsize * int(np.prod(own.shape[1:]))
    return (part.nbytes // row if row else 0, *own.shape[1:])


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _wait(request: Any) -> None:
    start = time.monotonic()
    while not request.Test():
        waited = time.monotonic() - start
        if waited > _SPINNING:
            time.sleep(_PAUSE)
        if 0 < patience() < waited:
            raise TimeoutError(
                "Other processes did not take part in a message in time: they have ended, do "
                f"something else, or are late. Received: nothing in {waited:.0f} s; "
                "IPU_KERAS_PROCESS_SECONDS says how long is waited."
            )
