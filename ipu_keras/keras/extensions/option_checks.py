"""The options of a model on the IPU as one frozen value, and the checks of its feeds' options."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ipu_keras.feeds.dataset_feed import PREFETCH_DEPTH
from ipu_keras.keras.extensions.accumulation_options import AccumulationOptions, refuse_unknown
from ipu_keras.keras.extensions.pipelining_options import PipeliningOptions
from ipu_keras.settings.arguments import integer_in, name_or_none, noted, positive_integer

# The bound that the documented error states.
_MAX_PREFETCH_DEPTH = 255

# Options of the documented queues that say where and how often a feed is replicated. Keras
# models have one feed per device, so only the documented defaults can be honoured.
_INFEED_DEFAULTS = {"device_ordinal": 0, "replication_factor": 1, "data_to_prefetch": 1}
_OUTFEED_DEFAULTS = {"replication_factor": None, "io_batch_size": 1}


@dataclass(frozen=True)
class ExtensionOptions:
    """The options that the `set_*` methods of a model have set.

    Args:
        asynchronous_callbacks: Whether callbacks run after each step, on a thread of their own.
        prefetch_depth: Super-batches that an infeed makes ahead.
        infeed_name: Name of the infeeds in errors; `None` for the default.
        accumulation: Used if the model is not pipelined, as `pipelining` is if it is.
        stages: The pipeline stage of each layer call, as `set_pipeline_stage_assignment` was
            given them. `None` leaves them to the `PipelineStage` scopes; an empty tuple means
            that no call has one, whatever the scopes say.
        operation_stages: Stages of the operations that are not layers, likewise; empty if they
            follow their inputs.
    """

    asynchronous_callbacks: bool = False
    prefetch_depth: int = PREFETCH_DEPTH
    infeed_name: str | None = None
    accumulation: AccumulationOptions = field(default_factory=AccumulationOptions)
    pipelining: PipeliningOptions = field(default_factory=PipeliningOptions)
    stages: tuple[int | None, ...] | None = None
    operation_stages: tuple[int | None, ...] = ()


# Fields of `ExtensionOptions` that change without compiling programs again.
OF_FEEDS = frozenset({"prefetch_depth", "infeed_name"})


def check_infeed_options(kwargs: Mapping[str, Any]) -> tuple[int, str | None]:
    """Checks the arguments of `set_infeed_queue_options`; returns the prefetch depth and the
    name."""
    _refuse(kwargs, ("dataset", "infeed_spec", "element_spec"), "is automatically set by Keras")
    refuse_unknown("An infeed queue", kwargs, {"feed_name", "prefetch_depth", *_INFEED_DEFAULTS})
    _refuse_changed("infeed", kwargs, _INFEED_DEFAULTS)
    name = name_or_none("feed_name", kwargs.get("feed_name"))
    depth = kwargs.get("prefetch_depth")
    if depth is None:
        return PREFETCH_DEPTH, name
    count = integer_in(depth)
    if count is None or count < 1:
        raise noted(
            ValueError(f"prefetch_depth must be greater than zero, but it is {depth}"),
            f"Give it an integer from 1 to {_MAX_PREFETCH_DEPTH}. Received: "
            f"prefetch_depth={depth!r}",
        )
    if count > _MAX_PREFETCH_DEPTH:
        raise ValueError(f"prefetch_depth must be less than 256, but it is {depth}")
    return count, name


def check_outfeed_options(kwargs: Mapping[str, Any]) -> None:
    """Checks the arguments of `set_outfeed_queue_options`, and warns that they have no effect."""
    _refuse(kwargs, ("outfeed_mode", "device_ordinal"), "is not compatible with Keras")
    refuse_unknown("An outfeed queue", kwargs, {"feed_name", "buffer_depth", *_OUTFEED_DEFAULTS})
    _refuse_changed("outfeed", kwargs, _OUTFEED_DEFAULTS)
    name_or_none("feed_name", kwargs.get("feed_name"))
    depth = kwargs.get("buffer_depth", 1)
    positive_integer("buffer_depth", depth)
    if kwargs:
        warnings.warn(
            f"{', '.join(sorted(kwargs))} of the outfeed queue has no effect here: the results of "
            "an execution are handed over as soon as it ends, without a buffer.",
            stacklevel=3,
        )


def _refuse(kwargs: Mapping[str, Any], keys, why: str) -> None:
    for key in keys:
        if key in kwargs:
            raise ValueError(f"Found `{key}` key in `kwargs`. This argument {why}.")


def _refuse_changed(queue: str, kwargs: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    for key, default in defaults.items():
        if kwargs.get(key, default) != default:
            raise ValueError(
                f"The {queue} queue of a Keras model cannot have {key}={kwargs[key]!r}: it has one "
                f"feed on the model's own device. Leave it out or pass {default!r}."
            )
