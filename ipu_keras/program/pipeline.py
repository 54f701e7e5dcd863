"""A step in stages, and how these run."""

from dataclasses import dataclass, replace

from ipu_keras.program.scopes import stage_scope as stage_scope
from ipu_keras.settings.argument_errors import noted
from ipu_keras.settings.pipeline_choices import (
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
)


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
            lie in remote memory; `None` leaves it to the cost model, which keeps them.
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
