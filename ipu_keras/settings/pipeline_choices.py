"""Choices about how pipelines, and other programs on several IPUs, run on them."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ipu_keras.settings.option import did_you_mean


class PipelineSchedule(enum.Enum):
    """In which order the stages of a pipeline run on their IPUs.

    - `Grouped`: in the core of the pipeline, IPUs run forward stages together and backward
      stages together. Activations wait longer for their backward stage, so it needs more
      memory, but IPUs wait less for each other. The default.
    - `Interleaved`: forward and backward stages take turns. Fewer activations wait;
      as a forward and a backward stage differ in length, IPUs wait more.
    - `Sequential`: one stage at a time, as in a sharded model; for debugging.
    """

    Grouped = 0
    Interleaved = 1
    Sequential = 2


class RecomputationMode(enum.Enum):
    """How a training pipeline that recomputes activations does it.

    Applies if `IPUConfig.allow_recompute` is set.

    - `Auto`: the default of the schedule.
    - `RecomputeThenBackpropagate`: all activations of a stage, then its backward pass.
      For `Grouped` and `Interleaved` schedules, whose default it is.
    - `RecomputeAndBackpropagateInterleaved`: each activation just before it is needed.
      For `Grouped` and `Sequential` schedules; the default of the latter.
    """

    Auto = 0
    RecomputeThenBackpropagate = 1
    RecomputeAndBackpropagateInterleaved = 2


class SelectionOrder(enum.Enum):
    """Which IPU of a device gets which shard or pipeline stage.

    IPUs form a ladder: 0 and 1 are the lowest rung, 2 and 3 the next, and only neighbours are
    linked directly.

    * `AUTO`: chosen to suit the program: `SNAKE` for pipelines, else `ZIGZAG`.
    * `ZIGZAG`: by number: 0, 1, 2, 3, 4, 5, 6, 7.
    * `SNAKE`: consecutive shards are linked: 0, 1, 3, 2, 4, 5, 7, 6.
    * `HOOF`: as `SNAKE`, and the last is linked to the first: 0, 2, 4, 6, 7, 5, 3, 1.
    """

    AUTO = 0
    ZIGZAG = 1
    SNAKE = 2
    HOOF = 3

    def ipu_at(self, position: int, num_ipus: int, *, pipelined: bool) -> int:
        """Returns which IPU of a device has a position in this order.

        Args:
            position: The number of a shard, or of the IPU that a stage is mapped to.
            num_ipus: The number of IPUs of the device, or of a replica on it.
            pipelined: Whether the program is a pipeline.

        Example:

        >>> [SelectionOrder.SNAKE.ipu_at(k, 8, pipelined=True) for k in range(8)]
        [0, 1, 3, 2, 4, 5, 7, 6]
        """
        if self is SelectionOrder.HOOF:
            # Up one side of the ladder, and down the other.
            is_there = 2 * position < num_ipus
            return 2 * position if is_there else 2 * (num_ipus - position) - 1
        if self is SelectionOrder.SNAKE or (self is SelectionOrder.AUTO and pipelined):
            # Every other rung is walked the other way, so that each step is one link.
            return position ^ 1 if position % 4 >= 2 else position
        return position


# What each schedule supports, with its default first.
_RECOMPUTATION_MODES = {
    PipelineSchedule.Grouped: (
        RecomputationMode.RecomputeThenBackpropagate,
        RecomputationMode.RecomputeAndBackpropagateInterleaved,
    ),
    PipelineSchedule.Interleaved: (RecomputationMode.RecomputeThenBackpropagate,),
    PipelineSchedule.Sequential: (RecomputationMode.RecomputeAndBackpropagateInterleaved,),
}


def recomputation_mode(schedule: PipelineSchedule, mode: RecomputationMode) -> RecomputationMode:
    """Returns the mode, or the schedule's default for `Auto`; others are a `ValueError`.

    Example:

    >>> recomputation_mode(PipelineSchedule.Sequential, RecomputationMode.Auto).name
    'RecomputeAndBackpropagateInterleaved'
    """
    supported = _RECOMPUTATION_MODES[schedule]
    if mode is RecomputationMode.Auto:
        return supported[0]
    if mode not in supported:
        names = ", ".join(one.name for one in supported)
        raise ValueError(
            f"The schedule '{schedule.name}' supports the recomputation modes {names}, or Auto. "
            f"Received: recomputation_mode={mode.name}"
        )
    return mode


# Poplar's options of convolutions and matrix products that have a model.
MODELLED_POPLAR_OPTIONS = ("availableMemoryProportion", "partialsType")


def idle_poplar_options(names: Iterable[str]) -> list[str]:
    """Returns which of Poplar's options of convolutions and products have no model, for warnings.

    The documents name no others than these that have one, and refer to Poplar's own for a list.
    So a name that Poplar lacks cannot be told from one that has no model here. The names are in
    quotes, sorted, each with what may have been meant.

    Example:

    >>> idle_poplar_options(["partialsType", "partialType", "use128BitConvUnitLoad"])
    ["'partialType' (did you mean 'partialsType'?)", "'use128BitConvUnitLoad'"]
    """
    return [
        f"{name!r}{did_you_mean(name, MODELLED_POPLAR_OPTIONS, ' (did you mean {!r}?)')}"
        for name in sorted(set(names) - set(MODELLED_POPLAR_OPTIONS))
    ]


@dataclass(frozen=True)
class PipelineStageOptions:
    """Poplar options of one stage, which take precedence over those of the `IPUConfig`.

    Args:
        convolution_options: Options of the stage's convolutions, such as
            `{"availableMemoryProportion": "0.1"}`; `None` for none.
        matmul_options: Options of the stage's matrix products; `None` for none.

    Raises:
        TypeError: An argument is neither a dictionary nor `None`.
    """

    convolution_options: Mapping[str, Any] | None = None
    matmul_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("convolution_options", "matmul_options"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, Mapping):
                raise TypeError(
                    f"`{name}` must be a dictionary of Poplar options. Received: {name}={given!r}"
                )
