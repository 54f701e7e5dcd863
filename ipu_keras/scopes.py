"""Scopes that say where operations run, how they are compiled and how they compute."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import attribute_scope, is_trace
from ipu_keras.settings.arguments import integer_in, noted
from ipu_keras.sharding import sharded
from ipu_keras.tracing.frontend_attributes import (
    PARTIALS_TYPE,
    STOCHASTIC_ROUNDING,
    attribute_from_now_on,
    attributed,
    attributed_eagerly,
)
from ipu_keras.tracing.poplar_operation import OUTSIDE_COMPILATION, poplar_operation

# XLA's names of attributes: operations that it compiles together, and those that it leaves out.
_JIT_COMPILED = "_XlaCompile"
_JIT_SCOPE = "_XlaScope"
_GRADIENTS_APART = "_XlaSeparateCompiledGradients"
_OUTSIDE = "_xla_outside_compilation"

_PARTIALS_TYPES = {tf.float16: "half", tf.float32: "float"}

_MOST_SHARDS = 64

_open_outside: ContextVar[str | None] = ContextVar("outside_compilation", default=None)
_numbers = itertools.count()


@contextlib.contextmanager
def ipu_scope(device: str) -> Iterator[None]:
    """Places operations on an IPU device.

    Args:
        device: Name of the TensorFlow device, such as `"/device:IPU:0"`.

    Raises:
        TypeError: `device` is no string.
        ValueError: `device` is not the name of a device; or the scope is entered eagerly, and no
            system with this device is configured.

    Example:

    >>> with tf.Graph().as_default(), ipu_scope("/device:IPU:0"):
    ...     tf.constant(1.0).device
    '/device:IPU:0'
    """
    if not isinstance(device, str):
        raise TypeError(
            "`device` must be the name of a TensorFlow device, such as '/device:IPU:0'. "
            f"Received: device={device!r} of type {type(device).__name__}"
        )
    try:
        named = tf.DeviceSpec.from_string(device).device_type
    except ValueError:
        named = None
    if named is None:
        raise ValueError(
            "`device` must be the name of a TensorFlow device, such as '/device:IPU:0'. "
            f"Received: device={device!r}"
        )
    with tf.device(device):
        yield


@contextlib.contextmanager
def ipu_shard(index: int | Iterable[int]) -> Iterator[None]:
    """Puts operations on one of the IPUs of a device, by which a model is spread over several.

    A program has as many IPUs as its highest shard needs, rounded up to 1, 2, 4 and so on; if its
    device has more, they are for further replicas. Gradients and weight updates are where their
    operations and variables are, and what no scope says anything of is where what it reads is. The
    host computes the same with shards as without; what they change is what reports say, such as
    `ipu_keras.last_report`. Of scopes within each other the innermost counts. Executed eagerly,
    operations have no shard. What Keras runs has no shards, but pipeline stages.

    Args:
        index: The number of the IPU, from 0 on; or a list of them, of which reports and costs
            take the first.

    Raises:
        ValueError: `index` is no such number, or a Keras model or a stage of a pipeline runs the
            scope; or within a function, what was traced before is for more replicas than there
            are of programs with such a shard.

    Example:

    >>> @tf.function
    ... def layers(x):
    ...     with ipu_shard(0):
    ...         x = tf.nn.relu(x)
    ...     with ipu_shard(1):
    ...         return tf.nn.softmax(x)
    """
    shards = _shards(index)
    if tf.executing_eagerly():
        yield
        return
    with sharded(tf.compat.v1.get_default_graph(), shards):
        yield


@contextlib.contextmanager
def ipu_jit_scope(ipu_scope: str | int) -> Iterator[None]:
    """Says which operations of a graph are to be compiled together.

    Here `ipu_compiler.compile` and `tf.function` say that, and the operations only get the name.

    Args:
        ipu_scope: Name of the group, or its number, which tells groups apart.

    Raises:
        TypeError: `ipu_scope` is neither a string nor an integer.

    Example:

    >>> with tf.Graph().as_default(), ipu_jit_scope("layers"):
    ...     tf.constant(1.0).op.get_attr("_XlaScope")
    b'layers'
    """
    number = integer_in(ipu_scope)
    scope = _text("ipu_scope", ipu_scope) if number is None else str(number)
    attributes = {
        _JIT_COMPILED: tf.compat.v1.AttrValue(b=True),
        _GRADIENTS_APART: tf.compat.v1.AttrValue(b=False),
        _JIT_SCOPE: tf.compat.v1.AttrValue(s=scope.encode()),
    }
    if tf.executing_eagerly():
        yield
        return
    with attribute_scope(tf.compat.v1.get_default_graph(), attributes):
        yield


@contextlib.contextmanager
def outside_compilation_scope(name: str = "outside") -> Iterator[None]:
    """Makes operations run on the host, in the middle of a program of the IPU.

    They may be operations that an IPU lacks: `tf.print`, `tf.py_function`, texts. A scope costs
    the copies to the host and back of what it takes and returns. Operations that XLA lacks are
    left to TensorFlow's executor here.

    Args:
        name: Name of the scope.

    Raises:
        TypeError: `name` is no string.
        ValueError: The scope is within another one; or no function is being traced, so that there
            is no program around it.

    Example:

    >>> @tf.function
    ... def layers(x):
    ...     squares = x * x
    ...     with outside_compilation_scope():
    ...         tf.print("squares:", squares)
    ...         y = squares + 2.0
    ...     return squares + y
    """
    scope = f"{_text('name', name)}_{next(_numbers)}"
    if _open_outside.get() is not None:
        raise noted(
            ValueError("Illegal nesting of outside_compilation_scope"),
            f"Leave a scope before entering another one. Received: name={name!r}, within the "
            f"scope {_open_outside.get()!r}",
        )
    if tf.executing_eagerly() or not is_trace(tf.compat.v1.get_default_graph()):
        where = "executed eagerly" if tf.executing_eagerly() else "in the graph of a session"
        raise noted(
            ValueError("outside_compilation_scope is only allowed in XLA context"),
            "Enter it within what is given to `ipu_compiler.compile`, or in a `tf.function`. "
            f"Received: name={name!r}, {where}",
        )
    token = _open_outside.set(name)
    try:
        attributes = {_OUTSIDE: tf.compat.v1.AttrValue(s=scope.encode())}
        graph = tf.compat.v1.get_default_graph()
        with attribute_scope(graph, attributes), poplar_operation(OUTSIDE_COMPILATION):
            yield
    finally:
        _open_outside.reset(token)


@contextlib.contextmanager
def frontend_attribute(
    attribute_name: str, attribute_value: str, restore_to: str | None = None
) -> Iterator[None]:
    """Gives operations of a graph an attribute for the compiler.

    Operations have the attributes of all scopes that they are in, the innermost one's of each
    name. They are in the attribute `_XlaFrontendAttributes` of an operation. What runs eagerly is
    computed as the attributes of the scopes around it say.

    Args:
        attribute_name: Name of the attribute.
        attribute_value: A string, the attribute's value.
        restore_to: The value that operations after the scope get, if there was none before it.

    Raises:
        TypeError: An argument is no string.
    """
    name = _text("attribute_name", attribute_name)
    value = _text("attribute_value", attribute_value)
    if restore_to is not None:
        _text("restore_to", restore_to)
    if tf.executing_eagerly():
        with attributed_eagerly(name, value):
            yield
        return
    graph = tf.compat.v1.get_default_graph()
    try:
        with attributed(graph, name, value):
            yield
    finally:
        if restore_to is not None:
            attribute_from_now_on(graph, name, restore_to)


@contextlib.contextmanager
def stochastic_rounding(override: bool) -> Iterator[None]:
    """Chooses how operations round to half precision, whatever is configured.

    It holds for the operations of a graph, and for functions, loops and branches that they call,
    but where these are in a scope of their own. Gradients are in the scopes in which they are
    computed. Around eager code, it holds for operations that run on an IPU device, for functions
    that are called there or run by a strategy, and for what methods of Keras models run, which are
    compiled for it. It changes no costs, as an IPU rounds either way in the same time.

    Args:
        override: Whether to round stochastically, as `IPUConfig.floating_point_behaviour.esr` does;
            else to the nearest.

    Raises:
        TypeError: `override` is no truth value.
    """
    if not isinstance(override, bool | np.bool_):
        raise TypeError(
            f"`override` must be True or False. Received: override={override!r} of type "
            f"{type(override).__name__}"
        )
    # "undefined" behind the scope leaves the choice to the configuration.
    with frontend_attribute(STOCHASTIC_ROUNDING, "true" if override else "false", "undefined"):
        yield


@contextlib.contextmanager
def partials_type(override_type: Any) -> Iterator[None]:
    """Chooses the type in which convolutions and matrix products add up.

    It changes what products of float16 numbers cost, and with `np.float16` what they are, as the
    option `partialsType` does for all of a program: after every 16 products a sum is rounded to
    float16. Gradients that are computed outside of the scope are as the program is. Around eager
    code it holds as `stochastic_rounding` does, for numbers and not for costs.

    Args:
        override_type: `np.float16` or `np.float32`, or TensorFlow's types of these names.

    Raises:
        TypeError: `override_type` is no type.
        ValueError: `override_type` is another type.
    """
    try:
        dtype = None if override_type is None else tf.as_dtype(override_type)
    except TypeError:
        dtype = None
    if dtype is None:
        raise TypeError(
            "`override_type` must be a type: np.float16 or np.float32. "
            f"Received: override_type={override_type!r}"
        )
    if dtype not in _PARTIALS_TYPES:
        raise noted(
            ValueError(f"Only support float16, float32, provided {dtype.name}"),
            "Pass np.float16 or np.float32 as `override_type`. Received: "
            f"override_type={override_type!r}",
        )
    with frontend_attribute(PARTIALS_TYPE, _PARTIALS_TYPES[dtype]):
        yield


def _shards(index: Any) -> list[int]:
    one = integer_in(index)
    # Not every `Iterable`: tensors of graphs and datasets claim to be one, and raise.
    is_array = isinstance(index, np.ndarray) and index.ndim == 1
    is_list = is_array or isinstance(index, list | tuple | set | frozenset | range)
    shards = [integer_in(each) for each in index] if is_list and one is None else [one]
    known = [shard for shard in shards if shard is not None and 0 <= shard < _MOST_SHARDS]
    if not shards or len(known) < len(shards):
        raise ValueError(
            f"`index` must be the number of an IPU, from 0 to {_MOST_SHARDS - 1}, or a list of "
            f"such numbers. Received: index={index!r}"
        )
    return known


def _text(argument: str, given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError(
            f"`{argument}` must be a string. Received: {argument}={given!r} of type "
            f"{type(given).__name__}"
        )
    return given
