"""Watches the calls of layers in a trace of a model, to list them or to name their stages."""

import collections
import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import keras
import tensorflow as tf
from keras import tree

from ipu_keras.hooks.keras.layer_calls import Observer, observe_calls
from ipu_keras.internals.keras.backend import compute_output_spec
from ipu_keras.keras.extensions.layer_calls import LayerCall, graph_of, nested_calls
from ipu_keras.keras.extensions.pipeline_stage import current_stage, stage_of
from ipu_keras.program import stage_scope

_observer: ContextVar[Observer | None] = ContextVar("call_observer", default=None)


def attach_call_observer() -> None:
    """Hands the calls of all layers to the observer of this context, if one is set."""
    observe_calls(_observer.get)


@contextlib.contextmanager
def in_stages(
    model: keras.Model, calls: Sequence[LayerCall], stages: Sequence[int | None]
) -> Iterator[None]:
    """Traces the operations of a model's calls in the name scopes of their pipeline stages.

    `calls` are those that one call of the model makes, in order, and `stages` theirs; the model
    may be called several times.
    """
    with _observing(_StageScopes(model, calls, stages)):
        yield


def recorded_calls(model: keras.Model, args: Any, kwargs: Any) -> tuple[LayerCall, ...]:
    """Returns the calls of layers in one pass through a built model's `call`.

    The model is traced with `KerasTensor`s, so nothing is computed and no state changes.
    """
    recorder = _Recorder(model)
    with _observing(recorder):
        compute_output_spec(model, *args, **kwargs)
    return tuple(recorder.calls)


@contextlib.contextmanager
def _observing(observer: Observer | None) -> Iterator[None]:
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


class _StageScopes:
    """Traces each call in the name scope of its stage.

    A call is known by what is called, and by how often that was called before in this call of
    the model. A layer that is called more often than was known stays in the stage of its last
    known call.
    """

    def __init__(
        self, model: keras.Model, calls: Sequence[LayerCall], stages: Sequence[int | None]
    ):
        self._model = model
        self._stages: dict[Any, list[int | None]] = collections.defaultdict(list)
        for call, stage in zip(calls, stages, strict=True):
            self._stages[call.operation].append(stage)
        self._num_calls: collections.Counter = collections.Counter()

    def called(self, operation: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        if operation is self._model:
            self._num_calls.clear()
        stages = self._stages.get(operation)
        if stages is None:
            return call(*args, **kwargs)
        stage = stages[min(self._num_calls[operation], len(stages) - 1)]
        self._num_calls[operation] += 1
        # What the layer itself calls belongs to this call, in whatever stage it was made.
        with _observing(None), _scope_of(stage):
            return call(*args, **kwargs)


def _scope_of(stage: int | None) -> contextlib.AbstractContextManager:
    if stage is None:
        return contextlib.nullcontext()
    outer = tf.get_current_name_scope()
    # A name that ends in a slash enters the scope again. Without it TensorFlow makes the name
    # unique: `pipeline_stage_0_1` for the second layer of stage 0.
    return tf.name_scope(f"{outer}/{stage_scope(stage)}/" if outer else f"{stage_scope(stage)}/")


class _Recorder:
    """Lists the calls of layers, and finds in the traced graph whose results they take."""

    def __init__(self, model: keras.Model):
        self._model = model
        self.calls: list[LayerCall] = []
        self._num_calls: collections.Counter = collections.Counter()
        # Positions of calls in the list, by the tensors that they returned.
        self._makers: dict[tuple[int, str], int] = {}
        # For layers of the nested models called so far, the stages in whose scopes these were
        # built.
        self._nested: dict[Any, list[int | None]] = {}

    def called(self, operation: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        if operation is self._model or not isinstance(operation, keras.Layer):
            return call(*args, **kwargs)
        if graph_of(operation) is not None:
            self._enter(operation)
            return call(*args, **kwargs)
        inbound = self._inbound((args, kwargs))
        # Layers that this one calls are a part of its call.
        with _observing(None):
            outputs = tree.map_structure(self._own, call(*args, **kwargs))
        for tensor in _tensors(outputs):
            self._makers[_key(tensor)] = len(self.calls)
        self.calls.append(
            LayerCall(operation, self._num_calls[operation], self._stage_of(operation), inbound)
        )
        self._num_calls[operation] += 1
        return outputs

    def _enter(self, model: Any) -> None:
        """Notes the stages in whose scopes the calls in a nested model were made."""
        for call in nested_calls(model):
            self._nested.setdefault(call.operation, []).append(call.stage)

    def _stage_of(self, layer: keras.Layer) -> int | None:
        nested = self._nested.get(layer)
        stage = nested.pop(0) if nested else stage_of(layer)
        # A scope at the call beats the one in which the layer was made.
        return stage if current_stage() is None else current_stage()

    def _own(self, value: Any) -> Any:
        """Copies a result that an earlier call has already returned.

        A layer that passes its input on, as Dropout does in inference, would else hide that call
        or be hidden by it: both return one tensor.
        """
        if not tf.is_tensor(value) or not isinstance(value, tf.Tensor):
            return value
        return tf.identity(value) if _key(value) in self._makers else value

    def _inbound(self, arguments: Any) -> tuple[int, ...]:
        found, seen = set(), set()
        pending = _tensors(arguments)
        # Between two layers there may be operations of TensorFlow; the search goes up to the
        # next results of layers and no further.
        while pending:
            key = _key(tensor := pending.pop())
            if key in self._makers:
                found.add(self._makers[key])
            elif key not in seen:
                pending.extend(tensor.op.inputs)
            seen.add(key)
        return tuple(sorted(found))


def _tensors(structure: Any) -> list[tf.Tensor]:
    leaves = tf.nest.flatten(structure, expand_composites=True)
    return [leaf for leaf in leaves if isinstance(leaf, tf.Tensor) and hasattr(leaf, "graph")]


def _key(tensor: tf.Tensor) -> tuple[int, str]:
    # Tensors compare elementwise, and names are unique within one graph only.
    return id(tensor.graph), tensor.name
