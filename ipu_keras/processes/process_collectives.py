"""Adds up, gathers and hands around tensors over processes, in graphs and outside of them."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import is_trace
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.internals.tensorflow.xla import call_module_of
from ipu_keras.machine.system import SYSTEM
from ipu_keras.processes.joining import FUNCTION
from ipu_keras.processes.timed_messages import gathered, handed_on

# MLIR's names of the types that can be added up.
_TYPES = {
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "int32": "i32",
    "int64": "i64",
    "uint32": "ui32",
    "uint64": "ui64",
}
# Integers of as many bytes as a number with a floating point.
_BITS = {2: tf.uint16, 4: tf.uint32, 8: tf.uint64}
_MODULE = """module {{
  func.func public @main({parameters}) -> ({types}) {{
    {found}stablehlo.custom_call @{function}({given})
      {{api_version = 4 : i32, has_side_effect = true,
        output_operand_aliases = [{aliases}]}} : ({types}) -> ({types})
    return {returned} : {types}
  }}
}}"""
# The name of a graph's collection that holds what its last reduction returned, so that reductions
# of a program follow each other in the same order in all processes: two of them in different
# orders would wait for each other for ever.
# No string, as savers would warn that they cannot export what it has.
_LAST: Any = ("ipu_last_reduction",)
# The same for initial values of variables, which only initializers run.
_LAST_INITIAL: Any = ("ipu_last_initial_value",)
# The same for what `_effects` knows of a graph's operations.
_EFFECTS: Any = ("ipu_effects",)
# What a session runs again without another effect.
_READS = frozenset({"VarHandleOp", "ReadVariableOp", "XlaCallModule"})


def all_reduce(tensors: Sequence[Any], *, chain: Any = _LAST) -> list[tf.Tensor]:
    """Returns the sums of tensors over all processes, bit for bit the same in all of them.

    Args:
        tensors: Numbers of 16 to 64 bits, of shapes that are known in a graph.
        chain: The collection of a graph that says what its last reduction returned.

    Raises:
        TypeError: A tensor is of another type.
    """
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    for tensor in tensors:
        if tensor.dtype.name not in _TYPES:
            raise TypeError(
                f"Processes add up {', '.join(_TYPES)}. Received: a tensor of {tensor.dtype.name}"
            )
    if SYSTEM.world.size == 1 or not tensors:
        return tensors
    if tf.executing_eagerly():
        return [tf.constant(_sum_of(tensor.numpy())) for tensor in tensors]
    found = list(tensors)
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        places = [k for k, tensor in enumerate(tensors) if tensor.dtype == dtype]
        for place, total in zip(
            places, _one_call([tensors[k] for k in places], chain), strict=True
        ):
            found[place] = total
    return found


def all_gather(tensor: Any) -> tf.Tensor:
    """Returns the tensors of all processes, one behind the other along the first axis.

    In a graph they have the same shape; outside, the first axis may differ.
    """
    tensor = tf.convert_to_tensor(tensor)
    world = SYSTEM.world
    if world.size == 1:
        return tensor
    if tf.executing_eagerly():
        return tf.constant(np.concatenate(gathered(tensor.numpy())))
    # All parts but a process's own are zeros, so that their sum is all of them.
    before, after = world.rank, world.size - world.rank - 1
    rest = [[0, 0]] * (tensor.shape.rank - 1)
    (rows, *_) = static_sizes(tensor)
    (found,) = all_reduce([tf.pad(tensor, [[before * rows, after * rows], *rest])])
    return found


def put_together(values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the tensors of all processes, equally many of each and of one shape, in a graph.

    They keep their bits, whatever their type.
    """
    dtype, world = values[0].dtype, SYSTEM.world
    own = tf.stack(values)
    if dtype.is_floating:
        own = tf.bitcast(own, _BITS[dtype.size])
    is_added = own.dtype.name in _TYPES
    found = tf.cast(all_gather(own if is_added else tf.cast(own, tf.int32)), own.dtype)
    found = tf.bitcast(found, dtype) if dtype.is_floating else found
    return tf.unstack(found, len(values) * world.size)


def broadcast(tensor: Any, root: int, *, is_initial: bool = False) -> tf.Tensor:
    """Returns the tensor of the process `root`, in all processes.

    Args:
        is_initial: Whether it is the initial value of a variable.
    """
    tensor = tf.convert_to_tensor(tensor)
    if SYSTEM.world.size == 1:
        return tensor
    if tf.executing_eagerly():
        return tf.constant(handed_on(tensor.numpy(), root))
    own = tensor if SYSTEM.world.rank == root else tf.zeros_like(tensor)
    in_session = not is_trace(tf.compat.v1.get_default_graph())
    (found,) = all_reduce([own], chain=_LAST_INITIAL if is_initial and in_session else _LAST)
    return found


def _sum_of(array: np.ndarray) -> np.ndarray:
    # In the order of the ranks, and so with the same bits in all processes.
    first, *others = gathered(array)
    total = first.copy()
    for other in others:
        total += other
    return total


def _one_call(tensors: Sequence[tf.Tensor], chain: Any) -> list[tf.Tensor]:
    """Adds up tensors of one type by one call, behind the graph's last one."""
    dtype = tensors[0].dtype
    graph = tf.compat.v1.get_default_graph()
    calls = graph.get_collection_ref(chain)
    # A function that a session calls does not follow what is in the session's own graph, which
    # would be computed again whenever it runs.
    follows = bool(calls) and (calls[-1].graph is graph or is_trace(calls[-1].graph))
    if follows and not is_trace(graph):
        _warn_of_more(calls[-1], tensors)
    token = tf.cast(calls[-1], dtype) if follows else tf.zeros([], dtype)
    given = [*tensors, token]
    *totals, token = call_module_of(given, version=9, module=_module_for(given))
    calls[:] = [token]
    return totals


def _warn_of_more(last: tf.Tensor, tensors: Sequence[tf.Tensor]) -> None:
    """Warns if a session does, or needs, more for a sum because that follows the last one.

    Without an order, each process would begin with another of two sums that it runs at once.
    """
    needed: set[str] = set().union(*(_effects(tensor.op) for tensor in tensors))
    if more := sorted(_effects(last.op) - needed):
        warnings.warn(
            "Sums over processes follow each other in the order in which a graph has them, so a "
            f"session that runs this sum of {tensors[0].name!r} runs or needs what the sums before "
            f"it do, too: {', '.join(more[:5])}{', ...' if len(more) > 5 else ''}. If it is to "
            "run without that, as in an evaluation, make it first, or in a graph of its own.",
            stacklevel=2,
        )


def _effects(op: tf.Operation) -> frozenset[str]:
    """Returns what a session changes, or has to be fed, if it runs an operation."""
    (known,) = op.graph.get_collection_ref(_EFFECTS) or [{}]
    op.graph.get_collection_ref(_EFFECTS)[:] = [known]
    waiting = [op]
    while waiting:
        one = waiting[-1]
        needed = [*one.control_inputs, *(tensor.op for tensor in one.inputs)]
        missing = [each for each in needed if each not in known]
        if one not in known:
            known[one] = frozenset()  # until what it needs is known, as loops need themselves
            if missing:
                waiting.extend(missing)
                continue
        waiting.pop()
        found = {*map(known.__getitem__, needed)}
        is_fed = one.type.startswith("Placeholder")
        if is_fed or (one.op_def.is_stateful and one.type not in _READS):
            found.add(frozenset({one.name}))
        # Most have what another one has, of which they need no copy.
        known[one] = found.pop() if len(found) == 1 else frozenset().union(*found)
    return known[op]


def _module_for(tensors: Sequence[tf.Tensor]) -> str:
    types = [
        f"tensor<{''.join(f'{size}x' for size in static_sizes(t))}{_TYPES[t.dtype.name]}>"
        for t in tensors
    ]
    count = len(types)
    return _MODULE.format(
        parameters=", ".join(f"%a{k}: {kind}" for k, kind in enumerate(types)),
        given=", ".join(f"%a{k}" for k in range(count)),
        found=f"%r:{count} = ",
        aliases=", ".join(map(_alias, range(count))),
        returned=", ".join(f"%r#{k}" for k in range(count)),
        types=", ".join(types),
        function=FUNCTION,
    )


def _alias(place: int) -> str:
    """Has a total take the memory of what is added up, of which XLA makes a copy if it has to."""
    return (
        f"#stablehlo.output_operand_alias<output_tuple_indices = [{place}], "
        f"operand_index = {place}, operand_tuple_indices = []>"
    )
