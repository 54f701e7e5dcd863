"""Changes functions in TensorFlow's own form, the `FunctionDef`.

Building a graph in Python instead takes ten times as long for a step of a thousand operations.
"""

import re
from collections.abc import Collection, Mapping

import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import unused_number
from ipu_keras.internals.tensorflow.operations import definition_of
from ipu_keras.internals.tensorflow.protos import FunctionDef

# The last number in a definition's name counts what the process has traced.
_COUNTER = re.compile(r"(?:_\d+(?=\D*$)|$)")


def another_name(name: str) -> str:
    """Returns a name that no function has yet, and that differs from another in its number only.

    Example:

    >>> another_name("__inference_step_12")[:17]
    '__inference_step_'
    """
    return _COUNTER.sub(f"_{unused_number()}", name, count=1)


def name_in_definition(tensor: tf.Tensor) -> str:
    """Returns what a definition calls an operation's result in a traced graph, as `"Add:z:0"`.

    Graphs number the results of an operation through; definitions number them within each named
    result of its `OpDef`.
    """
    op, index = tensor.op, tensor.value_index
    for result in op.op_def.output_arg:
        count = 1
        if result.number_attr:
            count = op.get_attr(result.number_attr)
        elif result.type_list_attr:
            count = len(op.get_attr(result.type_list_attr))
        if index < count:
            break
        index -= count
    return f"{op.name}:{result.name}:{index}"


def take_instead(definition: FunctionDef, names: Mapping[str, str]) -> None:
    """Changes a definition so that others take the place of some tensors, by their names in it."""
    for node in definition.node_def:
        for position, name in enumerate(node.input):
            if name in names:
                node.input[position] = names[name]
    for result, name in definition.ret.items():
        definition.ret[result] = names.get(name, name)


def leave_out_unneeded(definition: FunctionDef, needless: Collection[str] = frozenset()) -> None:
    """Takes out of a definition what no result and no effect needs; XLA would be given all of it.

    Nodes that are `needless` have no effect, though TensorFlow thinks so; nothing waits for
    them any more.
    """
    waits = {f"^{name}" for name in needless}
    for node in definition.node_def:
        if waits & set(node.input):
            kept_inputs = [name for name in node.input if name not in waits]
            del node.input[:]
            node.input.extend(kept_inputs)
    effects = [result for result, name in definition.control_ret.items() if name in needless]
    for result in effects:
        del definition.control_ret[result]
        definition.signature.control_output.remove(result)
    nodes = {node.name: node for node in definition.node_def}
    pending = [
        *definition.ret.values(),
        *definition.control_ret.values(),
        *(node.name for node in nodes.values() if node.name not in needless and _acts(node.op)),
    ]
    needed: set[str] = set()
    while pending:
        name = pending.pop().lstrip("^").partition(":")[0]
        if name in nodes and name not in needed:  # it may be an argument of the function
            needed.add(name)
            pending.extend(nodes[name].input)
    kept = [node for node in definition.node_def if node.name in needed]
    del definition.node_def[:]
    definition.node_def.extend(kept)


def _acts(kind: str) -> bool:
    """Whether operations of a kind may have effects; calls of functions may."""
    op_def = definition_of(kind)
    return op_def is None or op_def.is_stateful
