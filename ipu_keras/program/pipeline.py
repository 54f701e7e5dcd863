"""Pipelines: a step in stages, and the options by which these run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ipu_keras.settings.arguments import noted
from ipu_keras.settings.pipeline_choices import (
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
)


class PartOfStep(Protocol):
    """Where something is in a step."""

    @property
    def stage(self) -> int | None: ...
    @property
    def backward(self) -> bool: ...
    @property
    def weight_update(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class PipelineChoices:
    """Options of a pipeline that do not depend on the stages.

    The schedule also says how many batches a pipeline takes, and `partialsType` in which type its
    stages add up. All other options change only what it would cost.

    Args:
        forward_options: Poplar options of the forward part of each stage; empty for none.
        backward_options: Poplar options of the backward parts; empty for none.
        offload_weight_update_variables: Whether variables that only the weight update needs
            are in remote memory; `None` leaves it to the cost model, which keeps them on the IPU.
        replicated_optimizer_state_sharding: Whether each replica holds a part of those.
        offload_activations: Whether activations that wait for the backward pass are in remote
            memory.
        replicated_weight_sharding: Whether each replica holds a part of the weights.
        offload_weights: Whether those parts of weights are in remote memory.
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

    def options_of(self, family: str, part: PartOfStep) -> Mapping[str, Any]:
        """Returns Poplar's options that one part of a step has of its own.

        Args:
            family: `"convolution"` or `"dot"`, a matrix product.
            part: Where it is in the step.
        """
        stages = self.backward_options if part.backward else self.forward_options
        own = None
        if part.weight_update:
            own = self.weight_update_options
        elif stages and part.stage is not None:
            own = stages[part.stage]
        if own is None:
            return {}
        given = {"convolution": own.convolution_options, "dot": own.matmul_options}
        return given.get(family) or {}


@dataclass(frozen=True, kw_only=True)
class Pipeline(PipelineChoices):
    """A step in stages, which pass batches on to each other.

    Each operation of a stage is traced in the name scope `stage_scope(k)`. The numbers are those
    of gradient accumulation.

    Args:
        device_mapping: The number of the IPU of each stage.

    Raises:
        ValueError: There are fewer than two stages, or lists of options of another length.
    """

    device_mapping: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.num_stages < 2:
            raise noted(
                ValueError("Pipeline requires at least two computational stages."),
                f"Received: {self.num_stages}",
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
        """The number of forward stages; training has a backward one for each."""
        return len(self.device_mapping)

    @property
    def num_ipus(self) -> int:
        """How many IPUs a replica needs: systems hand out 1, 2, 4, ..."""
        return 1 << max(self.device_mapping).bit_length()

    def cut(self, splits: int) -> "Pipeline":
        """Returns a pipeline in which each stage, and each IPU, becomes `splits` of them.

        All parts have the options of the stage that they were.

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


WEIGHT_UPDATE_SCOPE = "weight_update"
_STAGE_SCOPE = "pipeline_stage_{}"

# The prefix of an outlined function's scope; no layer's default name has a full stop.
OUTLINED_SCOPE = "outlined."

# TensorFlow lets a scope be opened by more names than operations in it may have: a backslash, and
# `>` before what does not begin a name.
_NOT_IN_SCOPES = re.compile(r"[^A-Za-z0-9_./>-]|>(?![A-Za-z0-9.])")


def legal_in_scopes(name: str) -> str:
    """Makes any text, such as a user's name, a legal scope behind another one.

    Example:

    >>> legal_in_scopes("error > 0.5"), legal_in_scopes("a>b\\\\c")
    ('error___0.5', 'a>b_c')
    """
    return _NOT_IN_SCOPES.sub("_", name)


def stage_scope(stage: int) -> str:
    return _STAGE_SCOPE.format(stage)
