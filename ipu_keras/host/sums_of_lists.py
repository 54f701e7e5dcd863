"""Has functions add up lists of halves as tensors of halves, which are computed as on an IPU.

The gradient of a loop is such a list for each array that it reads, and TensorFlow adds lists up by
themselves if there are several for one array.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.host.operation_kinds import LOOPS
from ipu_keras.internals.tensorflow.operations import definition_of

_HALF, _INT32 = tf.float16.as_datatype_enum, tf.int32.as_datatype_enum
_LIST = tf.variant.as_datatype_enum


def with_sums_of_tensors(definition: Any, definition_of_function: Callable[[str], Any]) -> Any:
    """Returns the definition of a function that does the same; the given one if it has no sums.

    Args:
        definition_of_function: Returns the definition of a function of that name.
    """
    nodes = definition.node_def
    sums = {each.name for each in nodes if each.op == "AddN" and each.attr["T"].type == _LIST}
    if sums:
        lists = _lists_of_halves(definition, definition_of_function)
        sums = {name for name in sums if f"{name}:sum:0" in lists}
    if not sums:
        return definition
    found = type(definition).FromString(definition.SerializeToString())
    nodes = list(found.node_def)
    del found.node_def[:]
    for node in nodes:
        if node.name in sums:
            _add_sum(found, node)
        else:
            found.node_def.append(node)
    renamed = {f"{name}:sum:0": f"{name}:output_handle:0" for name in sums}
    for node in found.node_def:
        for k, name in enumerate(node.input):
            node.input[k] = renamed.get(name, name)
    for result, name in list(found.ret.items()):  # setting one may move others
        found.ret[result] = renamed.get(name, name)
    return found


def _lists_of_halves(definition: Any, definition_of_function: Callable[[str], Any]) -> set[str]:
    """Returns the names of tensors of a function that are lists of halves.

    Types of elements are said only by what reads and writes lists, also within loops, and lists
    that are added up, or go around in a loop, have one type.
    """
    alike: dict[str, set[str]] = {}
    found = []
    for node in definition.node_def:
        given = [name for name in node.input if name[0] != "^"]
        pairs = []
        if node.op in ("AddN", "Identity", "ZerosLike"):
            (result,) = definition_of(node.op).output_arg
            pairs = [(name, f"{node.name}:{result.name}:0") for name in given]
        elif node.op in LOOPS:
            body = definition_of_function(node.attr["body"].func.name)
            inside = _lists_of_halves(body, definition_of_function)
            taken = zip(given, body.signature.input_arg, strict=True)
            found += [name for name, argument in taken if argument.name in inside]
            pairs = [(name, f"{node.name}:output:{k}") for k, name in enumerate(given)]
        elif "element_dtype" in node.attr and node.attr["element_dtype"].type == _HALF:
            results = [each for each in definition_of(node.op).output_arg if each.type == _LIST]
            found += [*given[:1], *(f"{node.name}:{each.name}:0" for each in results)]
        for one, other in pairs:
            alike.setdefault(one, set()).add(other)
            alike.setdefault(other, set()).add(one)
    known: set[str] = set()
    while found:
        tensor = found.pop()
        if tensor not in known:
            known.add(tensor)
            found += alike.get(tensor, ())
    return known


def _add_sum(found: Any, node: Any) -> None:
    """Adds the nodes that stand for a sum of lists; the last one has its name."""

    def new(kind: str, name: str, inputs: list[str], **types: int) -> Any:
        made = found.node_def.add(name=name, op=kind, input=inputs, device=node.device)
        for attribute, dtype in types.items():
            made.attr[attribute].type = dtype
        return made

    lists = [name for name in node.input if name[0] != "^"]
    waited_for = node.input[len(lists) :]
    shape, tensors = f"{node.name}/shape", [f"{node.name}/list_{k}" for k in range(len(lists))]
    new("TensorListElementShape", shape, [lists[0], *waited_for], shape_type=_INT32)
    shape = f"{shape}:element_shape:0"
    for name, each in zip(tensors, lists, strict=True):
        stacked = new("TensorListStack", name, [each, shape, *waited_for], element_dtype=_HALF)
        stacked.attr["num_elements"].i = -1
    added = new("AddN", f"{node.name}/added", [f"{name}:tensor:0" for name in tensors], T=_HALF)
    added.attr["N"].i = len(tensors)
    new(
        "TensorListFromTensor",
        node.name,
        [f"{added.name}:sum:0", shape],
        element_dtype=_HALF,
        shape_type=_INT32,
    )
