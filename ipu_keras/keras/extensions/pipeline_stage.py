"""The scope that assigns layers, and calls of layers, to pipeline stages."""

from contextvars import ContextVar, Token
from typing import Any

from ipu_keras.hooks.keras.construction import tell_of_calls_and_layers
from ipu_keras.internals.keras.backend import called_layer
from ipu_keras.internals.keras.models import layers_in
from ipu_keras.ipu_strategy import current_ipu_strategy
from ipu_keras.ops.argument_checks import integer_in, received
from ipu_keras.settings.arguments import MOST, noted

# Attribute by which layers and nodes of Keras's graphs remember their scope.
_MARK = "_ipu_pipeline_stage"

_stage: ContextVar[int | None] = ContextVar("pipeline_stage", default=None)


class PipelineStage:
    """Scope that assigns layers, and calls of layers, to a pipeline stage.

    A layer made in it has all its calls in the stage. A call made in it is in the stage wherever
    the layer was made. Calls are those that make up a model: in the functional API, or in the
    `call` of a `keras.Model` subclass. Calling a model assigns all its layers.

    Args:
        stage: Number of the stage, from 0.

    Raises:
        ValueError: `stage` is not such a number.

    Example:

    >>> import keras
    >>> from ipu_keras.ipu_strategy import IPUStrategy
    >>> with IPUStrategy().scope():
    ...     inputs = keras.Input((4,))
    ...     with PipelineStage(0):
    ...         x = keras.layers.Dense(4)(inputs)
    ...     with PipelineStage(1):
    ...         outputs = keras.layers.Dense(1)(x)
    ...     model = keras.Model(inputs, outputs)
    >>> [assignment.pipeline_stage for assignment in model.get_pipeline_stage_assignment()]
    [0, 1]
    """

    def __init__(self, stage: int):
        self._stage = checked_stage(stage)
        self._token: Token | None = None

    def __enter__(self) -> "PipelineStage":
        if current_ipu_strategy() is None:
            raise noted(
                RuntimeError("PipelineStage may only be used from within an IPUStrategy context."),
                f"Enter `strategy.scope()` first. Received: stage {self._stage}",
            )
        if current_stage() is not None:
            raise noted(
                RuntimeError("Pipeline stages must not be nested."),
                f"Leave the scope of stage {current_stage()} before that of stage {self._stage} "
                "is entered.",
            )
        _note_use_in_call()
        self._token = _stage.set(self._stage)
        return self

    def __exit__(self, *exception) -> None:
        assert self._token is not None
        _stage.reset(self._token)


def checked_stage(stage: Any) -> int:
    """Returns the number of a pipeline stage, from an integer of any kind or a tensor of one."""
    number = integer_in(stage)
    if number is None or not 0 <= number <= MOST:
        raise noted(
            ValueError(f"{stage!r} is not a valid pipeline stage."),
            f"Stages are integers, counted from 0. Received: {received('stage', stage)}",
        )
    return number


def current_stage() -> int | None:
    """Returns the stage of the scope that is entered; None outside of one."""
    return _stage.get()


def stage_of(layer_or_node: Any) -> int | None:
    """Returns the stage in whose scope a layer, or a call of one, was made; None for none."""
    on_ipu = getattr(layer_or_node, "_ipu", None)
    return getattr(layer_or_node, _MARK, None) if on_ipu is None else on_ipu.stage


def take_mark(model: Any) -> int | None:
    """Removes from a model the stage of the scope in which it was made, and returns it."""
    return vars(model).pop(_MARK, None)


def attach_pipeline_stages() -> None:
    """Makes Keras's layers and nodes remember the scope in which they are made."""
    tell_of_calls_and_layers(_mark)


def _mark(layer_or_node: Any) -> None:
    if current_stage() is not None:
        # Past the class's own `__setattr__`, which a layer may have overridden.
        object.__setattr__(layer_or_node, _MARK, current_stage())


def _note_use_in_call() -> None:
    """Tells the models that are being called that their `call` enters stages.

    Other models then need not be traced to find out.
    """
    called = called_layer()
    if called is None:
        return
    for layer in layers_in(called):
        on_ipu = getattr(layer, "_ipu", None)
        if on_ipu is not None:
            on_ipu.stages.in_call = True
