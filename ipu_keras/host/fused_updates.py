"""What TensorFlow's operations compute that update variables in one kernel, in float32.

TensorFlow 1's optimizers use them. On a CPU their halves overflow to infinities, and are rounded
as the kernels happen to.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.operations import definition_of

_Updates = tuple[tf.Tensor, ...]


def _gradient_descent(*, var, alpha, delta, **_: Any) -> _Updates:
    return (var - alpha * delta,)


def _momentum(*, var, accum, lr, grad, momentum, use_nesterov, **_: Any) -> _Updates:
    accum = accum * momentum + grad
    return var - lr * (grad + accum * momentum if use_nesterov else accum), accum


def _keras_momentum(*, var, accum, lr, grad, momentum, use_nesterov, **_: Any) -> _Updates:
    accum = accum * momentum - grad * lr
    return var + (accum * momentum - grad * lr if use_nesterov else accum), accum


def _adam(
    *, var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad, use_nesterov, **_: Any
) -> _Updates:
    rate = lr * tf.sqrt(1 - beta2_power) / (1 - beta1_power)
    m = m + (grad - m) * (1 - beta1)
    v = v + (grad * grad - v) * (1 - beta2)
    moved = grad * (1 - beta1) + beta1 * m if use_nesterov else m
    return var - rate * moved / (tf.sqrt(v) + epsilon), m, v


def _rms_prop(*, var, ms, mom, lr, rho, momentum, epsilon, grad, **_: Any) -> _Updates:
    ms = ms + (grad * grad - ms) * (1 - rho)
    mom = mom * momentum + lr * grad / tf.sqrt(ms + epsilon)
    return var - mom, ms, mom


def _centered_rms_prop(*, var, mg, ms, mom, lr, rho, momentum, epsilon, grad, **_: Any) -> _Updates:
    mg = mg + (grad - mg) * (1 - rho)
    ms = ms + (grad * grad - ms) * (1 - rho)
    mom = mom * momentum + lr * grad / tf.sqrt(ms - mg * mg + epsilon)
    return var - mom, mg, ms, mom


def _adagrad(*, var, accum, lr, grad, update_slots, **_: Any) -> _Updates:
    accum = accum + grad * grad if update_slots else accum
    return var - lr * grad / tf.sqrt(accum), accum


def _adagrad_v2(*, var, accum, lr, epsilon, grad, update_slots, **_: Any) -> _Updates:
    accum = accum + grad * grad if update_slots else accum
    return var - lr * grad / (tf.sqrt(accum) + epsilon), accum


def _adadelta(*, var, accum, accum_update, lr, rho, epsilon, grad, **_: Any) -> _Updates:
    accum = accum * rho + grad * grad * (1 - rho)
    update = tf.sqrt(accum_update + epsilon) / tf.sqrt(accum + epsilon) * grad
    return var - lr * update, accum, accum_update * rho + update * update * (1 - rho)


def _scatter_add(*, resource, indices, updates, **_: Any) -> _Updates:
    shape = tf.concat([tf.shape(indices), tf.shape(resource)[1:]], 0)
    rows = tf.broadcast_to(updates, shape)
    return (tf.tensor_scatter_nd_add(resource, tf.expand_dims(indices, -1), rows),)


def _scatter_sub(*, updates, **given: Any) -> _Updates:
    return _scatter_add(updates=-updates, **given)


def _of_rows(update: Callable[..., _Updates]) -> Callable[..., _Updates]:
    """Returns what updates some rows of variables; each of them is there once."""

    def update_rows(*, indices, grad, **given: Any) -> _Updates:
        variables = {name: t for name, t in given.items() if tf.is_tensor(t) and t.shape.rank != 0}
        rows = {name: tf.gather(variable, indices) for name, variable in variables.items()}
        found = update(grad=grad, **{**given, **rows})
        places = tf.expand_dims(indices, -1)
        return tuple(
            tf.tensor_scatter_nd_update(variable, places, values)
            for variable, values in zip(variables.values(), found, strict=True)
        )

    return update_rows


# By the kinds of operations, what gives new values of the variables that are their first inputs.
_UPDATES: Mapping[str, Callable[..., _Updates]] = {
    "ResourceApplyAdadelta": _adadelta,
    "ResourceApplyAdagrad": _adagrad,
    "ResourceApplyAdagradV2": _adagrad_v2,
    "ResourceApplyAdam": _adam,
    "ResourceApplyCenteredRMSProp": _centered_rms_prop,
    "ResourceApplyGradientDescent": _gradient_descent,
    "ResourceApplyKerasMomentum": _keras_momentum,
    "ResourceApplyMomentum": _momentum,
    "ResourceApplyRMSProp": _rms_prop,
    "ResourceScatterAdd": _scatter_add,
    "ResourceScatterSub": _scatter_sub,
    "ResourceSparseApplyAdadelta": _of_rows(_adadelta),
    "ResourceSparseApplyAdagrad": _of_rows(_adagrad),
    "ResourceSparseApplyAdagradV2": _of_rows(_adagrad_v2),
    "ResourceSparseApplyCenteredRMSProp": _of_rows(_centered_rms_prop),
    "ResourceSparseApplyKerasMomentum": _of_rows(_keras_momentum),
    "ResourceSparseApplyMomentum": _of_rows(_momentum),
    "ResourceSparseApplyRMSProp": _of_rows(_rms_prop),
}

# The attribute of each that is the type of its variables.
TYPES = {kind: "dtype" if "Scatter" in kind else "T" for kind in _UPDATES}


def update_of(node: Any) -> Any:
    """Traces what an operation does to variables of float32.

    Args:
        node: The node of a definition, of a kind in `TYPES`.

    Returns:
        A `tf.ConcreteFunction` that takes what the operation takes, but values of variables and
        float32, and returns the new values.
    """
    kind = definition_of(node.op)
    switches = {
        name: node.attr[name].b for name in ("use_nesterov", "update_slots") if name in node.attr
    }
    update = functools.partial(_UPDATES[node.op], **switches)
    specs = [_spec(argument, node) for argument in kind.input_arg]
    names = [argument.name for argument in kind.input_arg]

    def updated(*given: Any) -> _Updates:
        return update(**dict(zip(names, given, strict=True)))

    return tf.function(updated, autograph=False).get_concrete_function(*specs)


def _spec(argument: Any, node: Any) -> tf.TensorSpec:
    if argument.type_attr == "Tindices":
        return tf.TensorSpec(None, tf.as_dtype(node.attr["Tindices"].type))
    is_one = argument.type_attr and argument.name not in ("grad", "delta", "updates")
    return tf.TensorSpec([] if is_one else None, tf.float32)
