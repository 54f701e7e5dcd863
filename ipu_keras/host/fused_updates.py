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


def _adam_with_amsgrad(
    *, var, m, v, vhat, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad, **_: Any
) -> _Updates:
    rate = lr * tf.sqrt(1 - beta2_power) / (1 - beta1_power)
    m = m + (grad - m) * (1 - beta1)
    v = v + (grad * grad - v) * (1 - beta2)
    vhat = tf.maximum(vhat, v)
    return var - rate * m / (tf.sqrt(vhat) + epsilon), m, v, vhat


def _ada_max(*, var, m, v, beta1_power, lr, beta1, beta2, epsilon, grad, **_: Any) -> _Updates:
    m = m + (grad - m) * (1 - beta1)
    v = tf.maximum(beta2 * v, tf.abs(grad))
    return var - lr / (1 - beta1_power) * m / (v + epsilon), m, v


def _add_sign(*, var, m, lr, alpha, sign_decay, beta, grad, **_: Any) -> _Updates:
    m = beta * m + (1 - beta) * grad
    agrees = tf.sign(grad) * tf.sign(m)
    return var - lr * (alpha + sign_decay * agrees) * grad, m


def _power_sign(*, var, m, lr, logbase, sign_decay, beta, grad, **_: Any) -> _Updates:
    m = beta * m + (1 - beta) * grad
    agrees = tf.sign(grad) * tf.sign(m)
    return var - lr * tf.exp(logbase * sign_decay * agrees) * grad, m


def _shrunk(values: tf.Tensor, by: tf.Tensor) -> tf.Tensor:
    """Moves numbers towards zero, and those that are nearer to it to it."""
    return tf.sign(values) * tf.maximum(tf.abs(values) - by, 0)


def _ftrl(
    *, var, accum, linear, grad, lr, l1, l2, lr_power, multiply_linear_by_lr, **given: Any
) -> _Updates:
    new_accum = accum + grad * grad
    power, new_power = tf.pow(accum, -lr_power), tf.pow(new_accum, -lr_power)
    # Only the second version shrinks.
    gradient = grad + 2 * given.get("l2_shrinkage", 0.0) * var
    one, rate = (lr, 1.0) if multiply_linear_by_lr else (1.0, lr)
    linear = linear + one * gradient - (new_power - power) / rate * var
    return -_shrunk(linear, l1 * one) / (new_power / rate + 2 * l2 * one), new_accum, linear


def _proximal_gradient_descent(*, var, alpha, l1, l2, **given: Any) -> _Updates:
    # The operation for rows has another name for it.
    grad = given["delta"] if "delta" in given else given["grad"]
    return (_shrunk(var - alpha * grad, alpha * l1) / (1 + l2 * alpha),)


def _proximal_adagrad(*, var, accum, lr, l1, l2, grad, **_: Any) -> _Updates:
    accum = accum + grad * grad
    (var,) = _proximal_gradient_descent(var=var, alpha=lr / tf.sqrt(accum), l1=l1, l2=l2, grad=grad)
    return var, accum


def _adagrad_da(
    *,
    gradient_accumulator,
    gradient_squared_accumulator,
    grad,
    lr,
    l1,
    l2,
    global_step,
    **_: Any,
) -> _Updates:
    sums = gradient_accumulator + grad
    squares = gradient_squared_accumulator + grad * grad
    step = tf.cast(global_step, tf.float32)
    var = -lr * _shrunk(sums, l1 * step) / (l2 * step * lr + tf.sqrt(squares))
    return var, sums, squares


def _rows(resource: tf.Tensor, indices: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
    shape = tf.concat([tf.shape(indices), tf.shape(resource)[1:]], 0)
    return tf.broadcast_to(updates, shape)


def _scatter_add(*, resource, indices, updates, **_: Any) -> _Updates:
    rows = _rows(resource, indices, updates)
    return (tf.tensor_scatter_nd_add(resource, tf.expand_dims(indices, -1), rows),)


def _scatter_sub(*, updates, **given: Any) -> _Updates:
    return _scatter_add(updates=-updates, **given)


def _scatter_mul(*, resource, indices, updates, **_: Any) -> _Updates:
    return _scatter_product(tf.multiply, resource, indices, updates)


def _scatter_div(*, resource, indices, updates, **_: Any) -> _Updates:
    return _scatter_product(tf.divide, resource, indices, updates)


def _scatter_product(
    change: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    resource: tf.Tensor,
    indices: tf.Tensor,
    updates: tf.Tensor,
) -> _Updates:
    rows = _rows(resource, indices, updates)
    factors = tf.math.unsorted_segment_prod(rows, indices, tf.shape(resource)[0])
    # Those of a row that is there twice are alike.
    changed = change(tf.gather(resource, indices), tf.gather(factors, indices))
    return (tf.tensor_scatter_nd_update(resource, tf.expand_dims(indices, -1), changed),)


def _scatter_nd_add(*, ref, indices, updates, **policy: Any) -> _Updates:
    added = tf.raw_ops.TensorScatterAdd(tensor=ref, indices=indices, updates=updates, **policy)
    return (added,)


def _scatter_nd_sub(*, updates, **given: Any) -> _Updates:
    return _scatter_nd_add(updates=-updates, **given)


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
    "ResourceApplyAdaMax": _ada_max,
    "ResourceApplyAdadelta": _adadelta,
    "ResourceApplyAdagrad": _adagrad,
    "ResourceApplyAdagradDA": _adagrad_da,
    "ResourceApplyAdagradV2": _adagrad_v2,
    "ResourceApplyAdam": _adam,
    "ResourceApplyAdamWithAmsgrad": _adam_with_amsgrad,
    "ResourceApplyAddSign": _add_sign,
    "ResourceApplyCenteredRMSProp": _centered_rms_prop,
    "ResourceApplyFtrl": _ftrl,
    "ResourceApplyFtrlV2": _ftrl,
    "ResourceApplyGradientDescent": _gradient_descent,
    "ResourceApplyKerasMomentum": _keras_momentum,
    "ResourceApplyMomentum": _momentum,
    "ResourceApplyPowerSign": _power_sign,
    "ResourceApplyProximalAdagrad": _proximal_adagrad,
    "ResourceApplyProximalGradientDescent": _proximal_gradient_descent,
    "ResourceApplyRMSProp": _rms_prop,
    "ResourceScatterAdd": _scatter_add,
    "ResourceScatterDiv": _scatter_div,
    "ResourceScatterMul": _scatter_mul,
    "ResourceScatterNdAdd": _scatter_nd_add,
    "ResourceScatterNdSub": _scatter_nd_sub,
    "ResourceScatterSub": _scatter_sub,
    "ResourceSparseApplyAdadelta": _of_rows(_adadelta),
    "ResourceSparseApplyAdagrad": _of_rows(_adagrad),
    "ResourceSparseApplyAdagradDA": _of_rows(_adagrad_da),
    "ResourceSparseApplyAdagradV2": _of_rows(_adagrad_v2),
    "ResourceSparseApplyCenteredRMSProp": _of_rows(_centered_rms_prop),
    "ResourceSparseApplyFtrl": _of_rows(_ftrl),
    "ResourceSparseApplyFtrlV2": _of_rows(_ftrl),
    "ResourceSparseApplyKerasMomentum": _of_rows(_keras_momentum),
    "ResourceSparseApplyMomentum": _of_rows(_momentum),
    "ResourceSparseApplyProximalAdagrad": _of_rows(_proximal_adagrad),
    "ResourceSparseApplyProximalGradientDescent": _of_rows(_proximal_gradient_descent),
    "ResourceSparseApplyRMSProp": _of_rows(_rms_prop),
}

# The attributes that are theirs, and say what they do.
_SWITCHES = ("use_nesterov", "update_slots", "multiply_linear_by_lr")

# The attribute of each that is the type of its variables.
TYPES = {kind: "dtype" if "Scatter" in kind and "Nd" not in kind else "T" for kind in _UPDATES}


def update_of(node: Any) -> Any:
    """Traces what an operation does to variables of float32.

    Args:
        node: The node of a definition, of a kind in `TYPES`.

    Returns:
        A `tf.ConcreteFunction` that takes what the operation takes, but values of variables and
        float32, and returns the new values.
    """
    kind = definition_of(node.op)
    switches: dict[str, Any] = {name: node.attr[name].b for name in _SWITCHES if name in node.attr}
    # What is empty is the default, which older versions of TensorFlow have no name for.
    if "bad_indices_policy" in node.attr and node.attr["bad_indices_policy"].s:
        switches["bad_indices_policy"] = node.attr["bad_indices_policy"].s.decode()
    update = functools.partial(_UPDATES[node.op], **switches)
    specs = [_spec(argument, node) for argument in kind.input_arg]
    names = [argument.name for argument in kind.input_arg]

    def updated(*given: Any) -> _Updates:
        return update(**dict(zip(names, given, strict=True)))

    return tf.function(updated, autograph=False).get_concrete_function(*specs)


def _spec(argument: Any, node: Any) -> tf.TensorSpec:
    is_variable = argument.type == tf.resource.as_datatype_enum
    is_one = not is_variable and argument.name not in ("grad", "delta", "updates", "indices")
    return tf.TensorSpec([] if is_one else None, type_in(argument, node))


def type_in(argument: Any, node: Any) -> tf.DType:
    """Returns the type of what `update_of` has as an argument of an operation."""
    if argument.type_attr == "Tindices":
        return tf.as_dtype(node.attr["Tindices"].type)
    return tf.int64 if argument.type == tf.int64.as_datatype_enum else tf.float32
