"""The options of a model on the IPU: one frozen value, checked when it is set."""

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ipu_keras.feeds import PREFETCH_DEPTH
from ipu_keras.gradient_accumulation import GradientAccumulationReductionMethod

_MAX_PREFETCH_DEPTH = 255

# Feed options of the documented queues that say where and how often a feed is
# replicated. Keras models have one feed per device; a value other than the
# documented default cannot be honoured.
_INFEED_DEFAULTS = {"device_ordinal": 0, "replication_factor": 1, "data_to_prefetch": 1}
_OUTFEED_DEFAULTS = {"replication_factor": None, "io_batch_size": 1}


@dataclass(frozen=True)
class AccumulationOptions:
    """Of `set_gradient_accumulation_options`.

    Args:
        steps_per_replica: Steps per weight update; `None` for one.
        reduction: How their gradients become one.
        dtype: Of the accumulators.
    """

    steps_per_replica: int | None = None
    reduction: GradientAccumulationReductionMethod = GradientAccumulationReductionMethod.SUM
    dtype: Any = None


@dataclass(frozen=True)
class ExtensionOptions:
    """What the `set_*` methods of a model have set.

    Args:
        asynchronous_callbacks: Whether callbacks run after each step, on a
            thread of their own.
        prefetch_depth: Super-batches that an infeed makes ahead.
        infeed_name: Name of the infeeds in errors; `None` for the default.
    """

    asynchronous_callbacks: bool = False
    prefetch_depth: int = PREFETCH_DEPTH
    infeed_name: str | None = None
    accumulation: AccumulationOptions = AccumulationOptions()


def check_infeed_options(kwargs: Mapping[str, Any]) -> tuple[int, str | None]:
    """Checks the arguments of `set_infeed_queue_options`.

    Returns:
        The prefetch depth and the name of the feed.

    Raises:
        ValueError: A key is set by Keras itself, or a value cannot be honoured.
        TypeError: An infeed queue has no such argument.
    """
    _refuse(kwargs, ("dataset", "infeed_spec", "element_spec"), "is automatically set by Keras")
    _refuse_unknown("infeed", kwargs, {"feed_name", "prefetch_depth", *_INFEED_DEFAULTS})
    _refuse_changed("infeed", kwargs, _INFEED_DEFAULTS)
    depth = kwargs.get("prefetch_depth")
    if depth is None:
        return PREFETCH_DEPTH, kwargs.get("feed_name")
    if not isinstance(depth, int) or depth < 1:
        raise ValueError(f"prefetch_depth must be greater than zero, but it is {depth}")
    if depth > _MAX_PREFETCH_DEPTH:
        raise ValueError(f"prefetch_depth must be less than 256, but it is {depth}")
    return depth, kwargs.get("feed_name")


def check_outfeed_options(kwargs: Mapping[str, Any]) -> None:
    """Checks the arguments of `set_outfeed_queue_options`.

    Raises:
        ValueError: A key cannot be used with Keras, or a value not be honoured.
        TypeError: An outfeed queue has no such argument.
    """
    _refuse(kwargs, ("outfeed_mode", "device_ordinal"), "is not compatible with Keras")
    _refuse_unknown("outfeed", kwargs, {"feed_name", "buffer_depth", *_OUTFEED_DEFAULTS})
    _refuse_changed("outfeed", kwargs, _OUTFEED_DEFAULTS)
    depth = kwargs.get("buffer_depth", 1)
    if not isinstance(depth, int) or depth < 1:
        raise ValueError(f"`buffer_depth` must be a positive integer. Received: {depth}")
    if kwargs:
        warnings.warn(
            f"{', '.join(sorted(kwargs))} of the outfeed queue has no effect here: the results of "
            "an execution are handed over as soon as it ends, without a buffer.",
            stacklevel=3,
        )


def check_accumulation_steps(steps: Any) -> None:
    """Checks a count of accumulated steps; `None` stands for not set.

    Raises:
        ValueError: It is not a positive integer.
    """
    if steps is None:
        return
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise ValueError(
            "Expected `gradient_accumulation_steps_per_replica` to be a positive integer, but got "
            f"{steps} instead."
        )


def check_accumulation_kwargs(kwargs: Mapping[str, Any]) -> None:
    """Checks what is forwarded to the gradient accumulation optimizer.

    Raises:
        ValueError: A key is another argument's business.
    """
    if "opt" in kwargs:
        raise ValueError(
            "Found `opt` key in `gradient_accumulation_optimizer_kwargs`. This is not supported as "
            "the optimizer which the model has been compiled with is wrapped. Pass it to `compile`."
        )
    if "num_mini_batches" in kwargs:
        raise ValueError(
            "Found `num_mini_batches` key in `gradient_accumulation_optimizer_kwargs`. Set the "
            "`gradient_accumulation_steps_per_replica` argument to "
            "`set_gradient_accumulation_options` instead."
        )


def check_device_mapping(device_mapping: Any) -> None:
    """Checks the IPU of each pipeline stage; `None` stands for not set.

    Raises:
        ValueError: It is not a list of integers.
    """
    if device_mapping is None:
        return
    integers = isinstance(device_mapping, list) and all(
        isinstance(ipu, int) and not isinstance(ipu, bool) for ipu in device_mapping
    )
    if not integers:
        raise ValueError(
            "Expected `device_mapping` to be a list of integers. "
            f"Received: device_mapping={device_mapping!r}"
        )


def check_pipelining_kwargs(kwargs: Mapping[str, Any]) -> None:
    """Checks what is forwarded to the pipeline.

    Raises:
        ValueError: A key is another argument's business, Keras's own, or of no
            use with Keras.
    """
    arguments = {
        "gradient_accumulation_count": "gradient_accumulation_steps_per_replica",
        "device_mapping": "device_mapping",
        "accumulate_outfeed": "accumulate_outfeed",
    }
    for key, argument in arguments.items():
        if key in kwargs:
            raise ValueError(
                f"Found `{key}` key in `pipelining_kwargs`. Set the `{argument}` argument to "
                "`set_pipelining_options` instead."
            )
    by_keras = (
        "computational_stages",
        "repeat_count",
        "inputs",
        "infeed_queue",
        "outfeed_queue",
        "optimizer_function",
    )
    _refuse(kwargs, by_keras, "is automatically set by Keras", "pipelining_kwargs")
    useless = ("outfeed_loss", "outfeed_mask", "batch_serialization_iterations")
    _refuse(kwargs, useless, "is not compatible with Keras", "pipelining_kwargs")


def check_minimize(optimizer: Any, base: type) -> None:
    """Checks that an optimizer to be wrapped leaves `minimize` alone.

    Args:
        optimizer: The optimizer of a compiled model; `None` for none.
        base: The class whose `minimize` it may inherit.

    Raises:
        ValueError: The optimizer's class overrides `minimize`.
    """
    inherited = inspect.getattr_static(base, "minimize", None)
    own = inspect.getattr_static(type(optimizer), "minimize", inherited)
    if optimizer is not None and own is not inherited:
        raise ValueError(
            "When using Gradient Accumulation or Pipelining, the provided optimizer must not "
            "override OptimizerV2.minimize, which is not called then. "
            f"Received: {type(optimizer).__name__}"
        )


def _refuse(kwargs: Mapping[str, Any], keys, why: str, name: str = "kwargs") -> None:
    for key in keys:
        if key in kwargs:
            raise ValueError(f"Found `{key}` key in `{name}`. This argument {why}.")


def _refuse_unknown(queue: str, kwargs: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(kwargs) - known)
    if unknown:
        raise TypeError(
            f"An {queue} queue has no argument {unknown[0]!r}. Its arguments are: "
            f"{', '.join(sorted(known))}"
        )


def _refuse_changed(queue: str, kwargs: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    for key, default in defaults.items():
        if kwargs.get(key, default) != default:
            raise ValueError(
                f"The {queue} queue of a Keras model cannot have {key}={kwargs[key]!r}: it has one "
                f"feed on the model's own device. Leave it out or pass {default!r}."
            )
