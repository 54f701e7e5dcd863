"""Name scopes for the parts of a step that are no layers: metrics, regularizers, loss scales."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from ipu_keras.internals.keras.models import own_layers, own_trained_weights, regularizer_attribute
from ipu_keras.internals.keras.training import CompileMetrics, loss_scale_methods
from ipu_keras.keras.extensions.replaced_attributes import replaced
from ipu_keras.program import legal_in_scopes
from ipu_keras.tracing.layer_scopes import current_layer_scopes

_METRICS = "metrics"
# The first is within the scope of the weight's layer, the second for layers that have none.
_REGULARIZER = "regularizer"
_REGULARIZATION_LOSSES = "regularization_losses"


def with_named_parts(model: keras.Model, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a step whose metrics, regularizers and loss scale have name scopes of their own.

    Metrics are in `metrics/<name>`, by the names that logs have. A regularizer is in
    `<layer>/regularizer`, or in `regularization_losses` if the layer of its weight has not been
    called in the same graph. A `LossScaleOptimizer` is in a scope of its name, without the
    optimizer inside it. Without scopes these operations would belong to no layer in reports, and
    a pipeline would put the regularizers into its last stage.

    Keras opens a scope around each loss, but none around these, and has no hook there. So the
    methods of the metrics and of that optimizer, and the regularizers of the weights, are
    replaced on the instances while the step is traced; no class of Keras's is changed.

    The model must be built, for all of its metrics to be known.
    """

    @functools.wraps(step)
    def named_step(*args, **kwargs):
        with contextlib.ExitStack() as stack:
            for name, metric in named_metrics(model).items():
                of_metric = functools.partial(_scope_of_metric, name)
                for method in ("update_state", "result"):
                    scoped = _scoped(getattr(metric, method), of_metric)
                    stack.enter_context(replaced(metric, method, scoped))
            for weight, layers in _regularized(model):
                scoped = _scoped(weight.regularizer, functools.partial(_scope_of_weight, layers))
                stack.enter_context(replaced(weight, regularizer_attribute(), scoped))
            optimizer = getattr(model, "optimizer", None)
            if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
                _name_loss_scale(optimizer, stack)
            return step(*args, **kwargs)

    return named_step


def named_metrics(model: keras.Model) -> dict[str, keras.Metric]:
    """Returns a built model's metrics by their names in logs; a number tells equal names apart."""
    found: dict[str, keras.Metric] = {}
    seen: set[int] = set()
    for metric in model.metrics:
        several = isinstance(metric, CompileMetrics)
        for name, one in _compiled(metric).items() if several else [(metric.name, metric)]:
            if id(one) in seen:
                continue
            seen.add(id(one))
            count = 0
            while (unique := f"{name}_{count}" if count else name) in found:
                count += 1
            found[unique] = one
    return found


def _compiled(metrics: CompileMetrics) -> dict[str, keras.Metric]:
    """Returns the metrics given to `compile` by their names in logs.

    Keras makes up these names along with the results, so each `result` is made to return its
    metric.
    """
    if not metrics.built:
        return {}
    with contextlib.ExitStack() as stack:
        for metric in metrics.metrics:
            stack.enter_context(replaced(metric, "result", lambda metric=metric: metric))
        return metrics.result()


def _regularized(model: keras.Model) -> Iterator[tuple[Any, tuple[keras.Layer, ...]]]:
    """Yields each regularized weight with the layer that has it and the layers around that."""
    seen: set[int] = set()

    def visit(layer: keras.Layer, around: tuple[keras.Layer, ...]) -> Iterator:
        if id(layer) in seen:
            return
        seen.add(id(layer))
        layers = (layer, *around)
        for weight in own_trained_weights(layer):
            if weight.regularizer is not None:
                yield weight, layers
        for inner in own_layers(layer):
            # The model is around all layers, so its scope would not tell them apart.
            yield from visit(inner, () if layer is model else layers)

    yield from visit(model, ())


def _scope_of_metric(name: str) -> str:
    return f"{_METRICS}/{legal_in_scopes(name).replace('/', '_')}"


def _scope_of_weight(layers: tuple[keras.Layer, ...]) -> str:
    """Returns a scope in the innermost layer that was called in the graph that is being traced."""
    scopes = current_layer_scopes()
    if scopes is not None:
        graph = tf.compat.v1.get_default_graph()
        found = (scopes.first_of(graph, id(layer)) for layer in layers)
        scope = next((scope for scope in found if scope is not None), None)
        if scope is not None:
            return f"{scope}/{_REGULARIZER}"
    return _REGULARIZATION_LOSSES


def _name_loss_scale(optimizer: Any, stack: contextlib.ExitStack) -> None:
    """Opens a scope around what an optimizer does about its loss scale, until the stack is
    closed.

    Its `apply` as a whole has none: the branch inside it would be in that scope too, wholly or
    not, depending on how the branch is lowered.
    """

    def scope(name: str) -> str:
        # The scope of the weight update stays around this one.
        around = [part for part in _open_scopes() if part != optimizer.name]
        return "/".join([*around, name] if name else around)

    inner = optimizer.inner_optimizer
    for method in loss_scale_methods():
        scoped = _scoped(getattr(optimizer, method), functools.partial(scope, optimizer.name))
        stack.enter_context(replaced(optimizer, method, scoped))
    stack.enter_context(
        replaced(inner, "apply", _scoped(inner.apply, functools.partial(scope, "")))
    )


def _open_scopes() -> list[str]:
    name = tf.compat.v1.get_default_graph().get_name_scope()
    return name.split("/") if name else []


def _scoped(function: Callable, scope: Callable[[], str]) -> Callable:
    """Returns a function that runs in a scope of exactly that name, wherever it is called."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        # A name that ends in a slash is absolute, and TensorFlow does not make it unique.
        name = scope()
        with tf.name_scope(f"{name}/" if name else ""):
            return function(*args, **kwargs)

    return call
