"""What every door builds: one description of the work for a TensorFlow device.

A `Program` says what a step computes, what it is fed and how often it runs per
execution. It is validated here, once, whoever built it; how it is executed on
the host is decided by the compiler, never by a door.
"""

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

# The element types that an IPU feed carries.
FEED_DTYPES = ("int32", "float32", "float16", "bool", "int8", "uint8")


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of one tensor, without its values.

    Args:
        shape: Dimensions in elements, all known.
        dtype: NumPy name of the element type, such as `"float32"`.
    """

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Size of the tensor in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class OutfeedMode(enum.Enum):
    """Which results of an execution reach the host.

    - `ALL`: those of each step, stacked along a new first axis.
    - `LAST`: only those of the last step.
    """

    ALL = "all"
    LAST = "last"


class HostExecution(enum.Enum):
    """The ways in which the host can run the steps of one execution.

    - `COMPILED_LOOP`: one XLA program with a loop over the steps.
    - `COMPILED_STEPS`: a TensorFlow graph that calls one XLA program for each
      step, at the same time where no state is carried from a step to the next.
    - `GRAPH_LOOP`: a TensorFlow loop over the steps, op by op.
    - `PARALLEL_LOOP`: as `GRAPH_LOOP` with several steps at a time; only for
      programs that carry no state from a step to the next.
    """

    COMPILED_LOOP = "compiled_loop"
    COMPILED_STEPS = "compiled_steps"
    GRAPH_LOOP = "graph_loop"
    PARALLEL_LOOP = "parallel_loop"

    @property
    def is_compiled(self) -> bool:
        """Whether XLA compiles the step."""
        return self in (HostExecution.COMPILED_LOOP, HostExecution.COMPILED_STEPS)


@dataclass(frozen=True, kw_only=True)
class Program:
    """The work of one execution on a TensorFlow device.

    Args:
        name: What the work is called in counters, errors and reports.
        step: The computation of one step. It takes the element of the infeed
            (a structure as `unflatten` makes it) and returns a structure of
            tensors for the outfeed.
        infeed: The tensors of one element, in the order of the feed.
        unflatten: Makes the element of `step` from its tensors.
        repeat_count: Steps per execution.
        outfeed_mode: Which results of the steps reach the host.
        compiled: `True` or `False` when the user asked for XLA or ruled it
            out, `None` to let the compiler choose.

    Raises:
        ValueError: A shape is not fully known, an axis has no elements, or
            `repeat_count` is not a positive integer.
    """

    name: str
    step: Callable[[Any], Any]
    infeed: tuple[TensorSpec, ...]
    unflatten: Callable[[tuple], Any]
    repeat_count: int
    outfeed_mode: OutfeedMode = OutfeedMode.LAST
    compiled: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.repeat_count, int) or self.repeat_count < 1:
            raise ValueError(
                "`repeat_count` must be a positive integer. "
                f"Received: repeat_count={self.repeat_count!r} for program {self.name!r}"
            )
        for index, spec in enumerate(self.infeed):
            _check_feed_tensor(self.name, index, spec)


def _check_feed_tensor(name: str, index: int, spec: TensorSpec) -> None:
    if any(size is None for size in spec.shape):
        raise ValueError(
            f"The infeed of program {name!r} has a shape {spec.shape} at index {index}, which is "
            "not fully defined. Give every dimension, for instance by batching with "
            "`drop_remainder=True`."
        )
    if 0 in spec.shape:
        raise ValueError(
            "Detected an input tensor to an infeed queue with a dimension of size 0. Please "
            f"remove it from the inputs. Received: shape {spec.shape} at index {index} of "
            f"program {name!r}"
        )
