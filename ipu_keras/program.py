"""What every door builds: one description of the work for a TensorFlow device.

A `Program` says what a step computes, what it is fed and how often it runs per
execution. It is validated here, once, whoever built it; how it is executed on
the host is decided by the compiler, never by a door.
"""

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ipu_keras.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_keras.pipeline_choices import PipelineSchedule, PipelineStageOptions, RecomputationMode

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
    - `MEAN`: the mean over the steps of the last weight update, or over all steps if there
      is none.

    Of the latter two, the last replica's.
    """

    ALL = "all"
    LAST = "last"
    MEAN = "mean"


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


# Name scopes of a trace, by which the cost model tells the parts of a step apart.
WEIGHT_UPDATE_SCOPE = "weight_update"
_STAGE_SCOPE = "pipeline_stage_{}"

# What the name scope of an outlined function starts with; no layer's default name has a full stop.
OUTLINED_SCOPE = "outlined."


def stage_scope(stage: int) -> str:
    """The name scope of the operations of a pipeline stage."""
    return _STAGE_SCOPE.format(stage)


@dataclass(frozen=True, kw_only=True)
class Accumulation:
    """How many gradients make one weight update, and how they become one.

    Args:
        count: Steps per weight update.
        reduction: How the gradients of these steps become one.

    Raises:
        ValueError: `count` is not a positive integer.
    """

    count: int = 1
    reduction: GradientAccumulationReductionMethod = GradientAccumulationReductionMethod.SUM

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or self.count < 1:
            raise ValueError(f"`count` must be a positive integer. Received: count={self.count!r}")


@dataclass(frozen=True, kw_only=True)
class PipelineChoices:
    """How the stages of a pipeline run, whatever they are.

    All but the schedule, which also says how many batches a pipeline takes, changes only what
    it would cost.

    Args:
        schedule: In which order the stages run.
        recomputation_mode: How activations are recomputed, if they are.
        forward_options: Poplar options of the forward part of each stage; empty for none.
        backward_options: Of the backward parts.
        weight_update_options: Of the weight update.
        offload_weight_update_variables: Whether variables that only the weight update needs
            lie in remote memory; `None` leaves it to the compiler, which keeps them.
        replicated_optimizer_state_sharding: Whether each replica holds a part of those.
        offload_activations: Whether activations that wait lie in remote memory.
        offload_gradient_accumulation_buffers: Whether the accumulators do.
        replicated_weight_sharding: Whether each replica holds a part of the weights.
        offload_weights: Whether those parts lie in remote memory.
    """

    schedule: PipelineSchedule = PipelineSchedule.Grouped
    recomputation_mode: RecomputationMode = RecomputationMode.Auto
    forward_options: tuple[PipelineStageOptions, ...] = ()
    backward_options: tuple[PipelineStageOptions, ...] = ()
    weight_update_options: PipelineStageOptions | None = None
    offload_weight_update_variables: bool | None = None
    replicated_optimizer_state_sharding: bool = False
    offload_activations: bool | None = None
    offload_gradient_accumulation_buffers: bool | None = None
    replicated_weight_sharding: bool | None = None
    offload_weights: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Pipeline(PipelineChoices):
    """A step in stages, which pass batches on to each other.

    Each operation of a stage is traced in the name scope `stage_scope(k)`. Numerically a pipeline
    is the accumulation of gradients.

    Args:
        device_mapping: The IPU of each stage.
        **choices: As of `PipelineChoices`.

    Raises:
        ValueError: There are fewer than two stages, or lists of options of another length.
    """

    device_mapping: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.num_stages < 2:
            raise ValueError(
                f"Pipeline requires at least two computational stages. Received: {self.num_stages}"
            )
        for name in ("forward_options", "backward_options"):
            options = getattr(self, name)
            if options and len(options) != self.num_stages:
                raise ValueError(
                    f"`{name}` must have an entry for each of the {self.num_stages} stages. "
                    f"Received: {len(options)}"
                )

    @property
    def num_stages(self) -> int:
        """Forward stages; training has a backward one for each."""
        return len(self.device_mapping)

    @property
    def num_ipus(self) -> int:
        """IPUs that a replica needs: systems hand out 1, 2, 4, ..."""
        return 1 << max(self.device_mapping).bit_length()

    def cut(self, splits: int) -> "Pipeline":
        """The pipeline with several stages in place of each, on as many IPUs in place of one.

        Args:
            splits: How many; they have the options of the stage that they were.

        Example:

        >>> Pipeline(device_mapping=(0, 1, 0)).cut(2).device_mapping
        (0, 1, 2, 3, 0, 1)
        """
        if splits == 1:
            return self
        return replace(
            self,
            device_mapping=tuple(
                ipu * splits + part for ipu in self.device_mapping for part in range(splits)
            ),
            forward_options=tuple(each for each in self.forward_options for _ in range(splits)),
            backward_options=tuple(each for each in self.backward_options for _ in range(splits)),
        )


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
        update: For programs that accumulate or reduce gradients: takes the gradients, a list of
            tensors, and updates the weights. `step` then returns a pair, what the
            outfeed gets and such a list.
        accumulation: How often `update` runs, and on what.
        num_replicas: Copies of the program that run at the same time, each on data of its
            own. Batch k is for replica k modulo their number. `update` gets the sum over all.
        pipeline: Its stages; `None` if it has none.
        compiled: `True` or `False` when the user asked for XLA or ruled it
            out, `None` to let the compiler choose.
        fast_math: Whether sums may be rounded in another way than stock Keras's for speed.

    Raises:
        ValueError: A shape is not fully known, an axis has no elements,
            `repeat_count` or `num_replicas` is not a positive integer, or the accumulation
            does not divide the steps.
    """

    name: str
    step: Callable[[Any], Any]
    infeed: tuple[TensorSpec, ...]
    unflatten: Callable[[tuple], Any]
    repeat_count: int
    outfeed_mode: OutfeedMode = OutfeedMode.LAST
    update: Callable[[list], Any] | None = None
    accumulation: Accumulation = Accumulation()
    num_replicas: int = 1
    pipeline: Pipeline | None = None
    compiled: bool | None = None
    fast_math: bool = False

    def __post_init__(self) -> None:
        for name in ("repeat_count", "num_replicas"):
            count = getattr(self, name)
            if not isinstance(count, int) or count < 1:
                raise ValueError(
                    f"`{name}` must be a positive integer. "
                    f"Received: {name}={count!r} for program {self.name!r}"
                )
        if self.repeat_count % self.accumulation.count:
            raise ValueError(
                "`repeat_count` must be a multiple of the accumulated steps. Received: "
                f"repeat_count={self.repeat_count}, accumulation of {self.accumulation.count} "
                f"for program {self.name!r}"
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
