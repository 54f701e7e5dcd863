"""Marks what is one operation on an IPU and many in TensorFlow.

Poplar's libraries have a whole LSTM, a beam search or a group normalisation as one operation.
TensorFlow computes them here from its own operations, in a scope that says what they are
together, so that the cost model shows one.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

# No default name of a Keras layer has a full stop.
_PREFIX = "poplar."

# What `pipelining_ops.recomputation_checkpoint` is called; it computes nothing.
RECOMPUTATION_CHECKPOINT = "RecomputationCheckpoint"

# What a part of a program that runs on the host is called; `OUTSIDE_COMPILATION_FAMILY` of the cost
# model is the same.
OUTSIDE_COMPILATION = "OutsideCompilation"

# TensorFlow numbers a scope that is entered again.
_NUMBER = re.compile(r"(?:_\d+)+$")

# Between what an operation is called and what shares of memory were chosen for its products,
# forward and backward. XLA hands on nothing of an operation but its name.
_SHARES = "--memory-"
_NO_SHARE = "any"


@contextlib.contextmanager
def poplar_operation(
    kind: str, *, memory_proportions: tuple[float | None, float | None] = (None, None)
) -> Iterator[None]:
    """What is traced within is one operation of the IPU; so is its gradient.

    Args:
        kind: What reports call it, such as `"PopnnLSTM"`.
        memory_proportions: Of a tile's memory, what temporaries of its products may take, in
            the forward and in the backward pass; `None` for what others may take.

    Example:

    >>> @tf.function
    ... def double(x):
    ...     with poplar_operation("Double"):
    ...         return tf.add(x, x)
    >>> graph = double.get_concrete_function(tf.TensorSpec([])).graph
    >>> graph.get_operations()[1].name
    'poplar.Double/Add'
    """
    scope = _PREFIX + kind
    if memory_proportions != (None, None):
        # Numbers of NumPy have a `repr` that is no name of a scope.
        shares = (_NO_SHARE if one is None else repr(float(one)) for one in memory_proportions)
        scope += _SHARES + _SHARES.join(shares)
    with tf.name_scope(scope):
        yield


def is_poplar_operation(scope: str) -> bool:
    """Whether one scope of a name is that of one operation of the IPU."""
    return scope.startswith(_PREFIX)


def poplar_operation_of(name: str) -> str:
    """Of a name, the path to the outermost scope of one operation of the IPU; empty without one.

    Args:
        name: Of a TensorFlow operation, with the calls of functions around it or without.

    Example:

    >>> poplar_operation_of("gradient_tape/layer/poplar.Norm_1/poplar.Sum/mul")
    'gradient_tape/layer/poplar.Norm_1'
    """
    scopes = name.split("/")
    found = (index for index, scope in enumerate(scopes) if is_poplar_operation(scope))
    return "/".join(scopes[: next(found, -1) + 1])


def kind_of_poplar_operation(path: str) -> str:
    """What reports call an operation of the IPU.

    Args:
        path: To its scope.

    Example:

    >>> kind_of_poplar_operation("gradient_tape/layer/poplar.Norm_1")
    'Norm'
    """
    return _NUMBER.sub("", path.rpartition("/")[2].removeprefix(_PREFIX)).partition(_SHARES)[0]


def memory_proportion_of(path: str, *, backward: bool) -> float | None:
    """What share of memory was chosen for the products of an operation of the IPU.

    Args:
        path: To its scope.
        backward: Whether in the backward pass.

    Example:

    >>> memory_proportion_of("layer/poplar.Norm--memory-0.2--memory-any_1", backward=False)
    0.2
    """
    _, *shares = _NUMBER.sub("", path.rpartition("/")[2]).split(_SHARES)
    share = shares[backward] if shares else _NO_SHARE
    return None if share == _NO_SHARE else float(share)


def without_marks(path: str) -> str:
    """A path with the names of operations of the IPU as reports have them.

    Args:
        path: Of scopes.

    Example:

    >>> without_marks("gradient_tape/layer/poplar.Norm_1")
    'gradient_tape/layer/Norm_1'
    """
    return "/".join(map(_without_mark, path.split("/")))


def _without_mark(scope: str) -> str:
    if not is_poplar_operation(scope):
        return scope
    name, _, shares = scope.removeprefix(_PREFIX).partition(_SHARES)
    number = _NUMBER.search(shares)
    return name if number is None else name + number[0]


def differentiable(function: Callable, *tensors: Any) -> Any:
    """What a function returns that returns its gradient too.

    The gradient is named after the place of the call, as those of TensorFlow's operations are,
    so that the cost model knows whose it is. `tf.custom_gradient` alone leaves it without.

    Args:
        function: As `tf.custom_gradient` takes it.
        *tensors: Its arguments.
    """
    scope = tf.get_current_name_scope()

    @tf.custom_gradient
    def named(*tensors):
        results, gradient = function(*tensors)

        def named_gradient(*upstream, **variables):
            with tf.name_scope(f"gradient_tape/{scope}/" if scope else "gradient_tape/"):
                return gradient(*upstream, **variables)

        return results, named_gradient

    return named(*tensors)
