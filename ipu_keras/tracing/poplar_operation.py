"""Marks what is one operation on an IPU and many in TensorFlow.

Poplar's libraries have a whole LSTM, a beam search or a group normalisation as one operation.
TensorFlow computes them here by its own operations, in a scope whose name says what they are
together, so that the cost model shows one.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

# Default names of Keras layers have no full stop, so no layer is taken for an operation.
_PREFIX = "poplar."

# The kind of a `pipelining_ops.recomputation_checkpoint`, which computes nothing.
RECOMPUTATION_CHECKPOINT = "RecomputationCheckpoint"

# The kind of a part of a program that runs on the host. `OUTSIDE_COMPILATION_FAMILY` of the
# cost model has to be the same.
OUTSIDE_COMPILATION = "OutsideCompilation"

# TensorFlow numbers a scope that is entered again.
_NUMBER = re.compile(r"(?:_\d+)+$")

# Separates an operation's name from the shares of memory that its products may take, forward
# and backward. They are in the name, so that gradients, which are named after the scope, have
# them too.
_SHARES = "--memory-"
_NO_SHARE = "any"


@contextlib.contextmanager
def poplar_operation(
    kind: str, *, memory_proportions: tuple[float | None, float | None] = (None, None)
) -> Iterator[None]:
    """Makes what is traced within one operation of the IPU, and so its gradient.

    Args:
        kind: The operation's name in reports, such as `"PopnnLSTM"`.
        memory_proportions: Shares of a tile's memory that temporaries of its products may take,
            in the forward and in the backward pass; `None` for the default share.

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
        # The `repr` of NumPy's numbers has parentheses, which names of scopes must not have.
        shares = (_NO_SHARE if one is None else repr(float(one)) for one in memory_proportions)
        scope += _SHARES + _SHARES.join(shares)
    with tf.name_scope(scope):
        yield


def is_poplar_operation(scope: str) -> bool:
    """Whether one scope of a name is that of an operation of the IPU."""
    return scope.startswith(_PREFIX)


def poplar_operation_of(name: str) -> str:
    """Returns the path to the outermost scope of an operation of the IPU in a name, or "".

    Example:

    >>> poplar_operation_of("gradient_tape/layer/poplar.Norm_1/poplar.Sum/mul")
    'gradient_tape/layer/poplar.Norm_1'
    """
    scopes = name.split("/")
    found = (index for index, scope in enumerate(scopes) if is_poplar_operation(scope))
    return "/".join(scopes[: next(found, -1) + 1])


def kind_of_poplar_operation(path: str) -> str:
    """Returns the name in reports of the operation of the IPU whose scope has this path.

    Example:

    >>> kind_of_poplar_operation("gradient_tape/layer/poplar.Norm_1")
    'Norm'
    """
    return _NUMBER.sub("", path.rpartition("/")[2].removeprefix(_PREFIX)).partition(_SHARES)[0]


def memory_proportion_of(path: str, *, backward: bool) -> float | None:
    """Returns the share of a tile's memory chosen for an operation's products, or `None`.

    Example:

    >>> memory_proportion_of("layer/poplar.Norm--memory-0.2--memory-any_1", backward=False)
    0.2
    """
    _, *shares = _NUMBER.sub("", path.rpartition("/")[2]).split(_SHARES)
    share = shares[backward] if shares else _NO_SHARE
    return None if share == _NO_SHARE else float(share)


def without_marks(path: str) -> str:
    """Returns a path in which operations of the IPU have the names that reports show.

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
    """Calls a function that returns its gradient too, as `tf.custom_gradient` takes it.

    The gradient is named after the place of the call, as gradients of TensorFlow's operations
    are, so that the cost model knows which layer it belongs to. `tf.custom_gradient` alone
    gives it no scope.
    """
    scope = tf.get_current_name_scope()

    @tf.custom_gradient
    def named(*tensors):
        results, gradient = function(*tensors)

        def named_gradient(*upstream, **variables):
            with tf.name_scope(f"gradient_tape/{scope}/" if scope else "gradient_tape/"):
                return gradient(*upstream, **variables)

        return results, named_gradient

    # Eagerly, a variable that `function` reads would not count as what it was given.
    return named(*map(tf.convert_to_tensor, tensors))
