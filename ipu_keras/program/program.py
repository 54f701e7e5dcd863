"""The description of work that every entry point builds for a TensorFlow device.

A `Program` says what a step computes, what it is fed and how often it runs per execution. It is
validated here, once, whoever built it; `host` alone decides how it is executed.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ipu_keras.ir import TensorSpec, Variants
from ipu_keras.machine.numerics import Numerics
from ipu_keras.machine.target import Target
from ipu_keras.program.pipeline import Pipeline
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod


class OutfeedMode(enum.Enum):
    """Which results of an execution reach the host.

    - `ALL`: those of each step, stacked along a new first axis.
    - `LAST`: only those of the last step, of the last replica.
    - `LAST_OF_EACH`: those of the last step of each replica, stacked.
    - `SUM_OF_EACH`: the sum over the steps of each replica, stacked.
    """

    ALL = "all"
    LAST = "last"
    LAST_OF_EACH = "last_of_each"
    SUM_OF_EACH = "sum_of_each"


@dataclass(frozen=True, kw_only=True)
class Accumulation:
    """How many gradients make one weight update, and how they are reduced to one."""

    count: int = 1
    reduction: GradientAccumulationReductionMethod = GradientAccumulationReductionMethod.SUM

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or self.count < 1:
            raise ValueError(f"`count` must be a positive integer. Received: count={self.count!r}")


@dataclass(frozen=True, kw_only=True)
class DeviceChoices:
    """What a program is compiled for.

    Args:
        config: An `IPUConfig`, in place of the active one.
        target: The hardware; `None` for the one that `config` describes.
        cache_folder: Where models are kept; `None` for what `--executable_cache_path` says.
        is_modelled: Whether the program is checked for memory; hosts have no such limits.
        on_several_ipus: A hint for errors: how to put parts of a program on several IPUs.
    """

    config: Any
    target: Target | None = None
    cache_folder: Path | None = None
    is_modelled: bool = True
    on_several_ipus: str = ""


@dataclass(frozen=True, kw_only=True)
class Program:
    """The work of one execution on a TensorFlow device.

    Args:
        name: What the work is called in counters and errors.
        step: The computation of one step. It takes the element of the infeed (a structure as
            `unflatten` makes it) and returns a structure of tensors for the outfeed.
        infeed: The tensors of one element, in the order of the feed.
        unflatten: Makes the element of `step` from a list of tensors.
        repeat_count: Number of steps per execution.
        outfeed_mode: Which results of the steps reach the host.
        outfeed_modes: The same for each result, in the order of `tf.nest.flatten`, if they
            differ; empty if `outfeed_mode` is for all.
        update: For programs that accumulate or reduce gradients: takes the gradients, a list of
            tensors, and updates the weights. `step` then returns a pair, what the
            outfeed gets and such a list.
        update_modes: If `update` returns a list of tensors, which of these reach the host, for
            each. An execution then returns a pair, the results of the steps and such a list.
            All replicas have the same, which is there once.
        accumulation: How often `update` runs, and on what.
        num_replicas: Copies of the program that run at the same time, each on data of its
            own. Batch k is for replica k modulo their number. `update` gets the sum over all.
        num_processes: Processes that run the program together, over which that sum is as well;
            1 if `update` sees to it, or nobody.
        own_updates: Whether `update` gets a replica's own gradients instead, and writes variables
            that each replica has for itself.
        compiled: `True` or `False` when the user asked for XLA or ruled it out, `None` to let
            the plan of the host choose.
        fast_math: Whether sums may be rounded in another way than stock Keras's for speed.
        first_steps: How many steps the host runs op by op, before it has XLA compile the program;
            `None` for as many as its content says (`ipu_keras/host/first_steps.py`).
        fixed_answers: Whether calls return equal bits for equal feeds, as long as no weight is
            written. XLA rounds in another way, so first steps end only where one was written.
        carried: What each step hands on to the next, besides variables. `step` then takes the
            element and these tensors, a list, and returns a pair, what it would without and
            such a list.
        model_name: Name of the Keras model whose step it is; `None` if there is none.
        device_choices: What it is compiled for; `None` for what is configured.
        numerics: How it computes with halves.
        variants: Returns how else its model could be written, for advice; `None` if it has none.

    Raises:
        ValueError: A shape is not fully known, `repeat_count` or `num_replicas` is not a
            positive integer, the accumulation does not divide the steps, or a step that
            accumulates gradients hands tensors on, or has updates of its own with results.
    """

    name: str
    step: Callable[..., Any]
    infeed: tuple[TensorSpec, ...]
    unflatten: Callable[[tuple], Any]
    repeat_count: int
    outfeed_mode: OutfeedMode = OutfeedMode.LAST
    outfeed_modes: tuple[OutfeedMode, ...] = ()
    update: Callable[[list], Any] | None = None
    update_modes: tuple[OutfeedMode, ...] = ()
    accumulation: Accumulation = Accumulation()
    num_replicas: int = 1
    num_processes: int = 1
    own_updates: bool = False
    pipeline: Pipeline | None = None
    compiled: bool | None = None
    fast_math: bool = False
    first_steps: int | None = 0
    fixed_answers: bool = False
    carried: tuple[TensorSpec, ...] = ()
    model_name: str | None = None
    device_choices: DeviceChoices | None = None
    numerics: Numerics = field(default_factory=Numerics)
    variants: Callable[[], Variants | None] = lambda: None

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
        if self.carried and self.update is not None:
            raise ValueError(
                "Steps whose gradients are accumulated hand nothing on but variables. Received: "
                f"carried={self.carried} for program {self.name!r}"
            )
        if self.own_updates and self.update_modes:
            raise ValueError(
                "Results of updates are there once, so all replicas have the same updates. "
                f"Received: own_updates=True, update_modes={self.update_modes} for program "
                f"{self.name!r}"
            )
        for index, spec in enumerate(self.infeed):
            _check_feed_tensor(self.name, index, spec)

    @property
    def title(self) -> str:
        """The name of the work in reports, which `profile` shows behind the name of the model."""
        return self.name if self.model_name is None else f"{self.model_name}.{self.name}"


def _check_feed_tensor(name: str, index: int, spec: TensorSpec) -> None:
    if any(size is None for size in spec.shape):
        raise ValueError(
            f"The infeed of program {name!r} has a shape {spec.shape} at index {index}, which is "
            "not fully defined. Give every dimension, for instance by batching with "
            "`drop_remainder=True`."
        )
