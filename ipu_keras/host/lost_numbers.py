"""Has functions note NaN and infinities that nothing they return or write would show.

What makes NaN or an infinity of numbers is an exception. Most operations hand both on, so that
what an execution returns or writes shows them, and looking at that is enough. Some do not: they
choose, compare or drop numbers, or make a finite one of an infinity. What these are given is
looked at within the program, so that a product costs nothing, and an activation one look.

This works on definitions of functions, as `halves.py` does, and before that.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras._rounding import NotFiniteFlag
from ipu_keras.host.fused_updates import TYPES as TYPES_OF_UPDATES
from ipu_keras.host.half_operations import CHANGES, COMPUTING, called_in, is_for_xla
from ipu_keras.host.random_rounding import MODULE_VERSION, register_kernels
from ipu_keras.host.watching_operations import LOOKED_AT, module_that_notes
from ipu_keras.internals.tensorflow.contexts import function_definition
from ipu_keras.internals.tensorflow.functions import defined_like, unused_number
from ipu_keras.internals.tensorflow.operations import definition_of, types_of

_NAN, _INFINITY = frozenset({"nan"}), frozenset({"infinity"})
_BOTH, _NOTHING = _NAN | _INFINITY, frozenset[str]()

# What becomes NaN or an infinity if any number is that it is given, of whatever sign.
_HANDING_ON = frozenset(
    """
    Abs Add AddN AddV2 BatchMatMul BatchMatMulV2 BatchMatMulV3 BiasAdd BiasAddGrad Cast ConcatV2
    Conv2DBackpropInput Cross Einsum ExpandDims Identity L2Loss Log Log1p MatMul Mean Mul Neg Pack
    PreventGradient Prod Reshape ReverseV2 Snapshot Split SplitV Sqrt Square SquaredDifference
    Squeeze StopGradient Sub Sum Transpose Unpack XlaDot XlaDotV2
    """.split()  # noqa: SIM905
)
# The same, of these inputs only: numbers of others need not be in any window.
_HANDING_ON_OF = {
    "Conv2D": 1,
    "Conv2DBackpropFilter": 2,
    "DepthwiseConv2dNative": 1,
    "DepthwiseConv2dNativeBackpropFilter": 2,
    "Div": 0,
    "RealDiv": 0,
}
# What NaN stays, and an infinity may not: one divided by it is zero.
_HANDING_NAN_ON = frozenset(
    """
    Cos Div Elu Erf Erfc Exp Expm1 LogSoftmax RealDiv Reciprocal Rsqrt Selu Sigmoid Sin Softmax
    Softplus Softsign Tanh
    """.split()  # noqa: SIM905
)
# What operations make of finite numbers, if that is not both.
_MAKING = {
    **dict.fromkeys("Acos Asin Sqrt".split(), _NAN),  # noqa: SIM905
    **dict.fromkeys(
        """
        Atan Atan2 Cos Erf Erfc Sigmoid Sin Softmax Softsign Tanh
        """.split(),  # noqa: SIM905
        _NOTHING,
    ),
}
_WITH_EFFECTS = {
    "PartitionedCall": "StatefulPartitionedCall",
    "StatelessCase": "Case",
    "StatelessIf": "If",
    "StatelessWhile": "While",
}
# What they write is looked at when the execution is over.
_WRITING = frozenset({"AssignVariableOp", *CHANGES, *TYPES_OF_UPDATES})


def noting_lost_numbers(concrete: Any, flag: NotFiniteFlag) -> Any:
    """Returns a function that does the same, and raises a flag at NaN or an infinity that is lost.

    What a `tf.ConcreteFunction` itself returns, and what it or those that it calls write, is left
    to be looked at by its caller.
    """
    register_kernels()
    functions = _NotingFunctions(flag)
    name = concrete.inference_fn.name.decode()
    is_changed = functions.rewritten(name, in_xla=False, is_whole=True) != name
    return defined_like(concrete, functions.made) if is_changed else concrete


class _NotingFunctions:
    """Functions that call each other, and what becomes of them."""

    def __init__(self, flag: NotFiniteFlag):
        self._flag = flag
        self._names: dict[tuple[str, bool], str] = {}
        self.made: list[tuple[str, Any]] = []

    def rewritten(self, name: str, *, in_xla: bool, is_whole: bool = False) -> str:
        """Returns the name of what takes the place of a function: its own if that notes nothing."""
        definition = function_definition(name)
        in_xla = in_xla or is_for_xla(definition)
        if (name, in_xla) not in self._names:
            self._names[name, in_xla] = name
            found = type(definition)()
            found.CopyFrom(definition)
            if self._note_in(found, in_xla, is_whole):
                found.signature.is_stateful = True
                new = f"{name}_noting_{unused_number()}"
                self._names[name, in_xla] = found.signature.name = new
                self.made.append((name, found))
        return self._names[name, in_xla]

    def _note_in(self, definition: Any, in_xla: bool, is_whole: bool) -> bool:
        """Has a function and those that it calls note what is lost; returns whether it does."""
        is_changed = False
        for node in definition.node_def:
            for called in called_in(node):
                instead = self.rewritten(called.name, in_xla=in_xla or is_for_xla(node))
                if instead != called.name:
                    is_changed, called.name = True, instead
                    # TensorFlow leaves out a call without effects, or its effects.
                    node.op = _WITH_EFFECTS.get(node.op, node.op)
        nodes = {node.name: node for node in definition.node_def}
        lost = _lost_in(definition, set(definition.ret.values()) if is_whole else set())
        for tensor, dtype in lost.items():
            add = self._note_in_xla if in_xla else self._note
            add(definition, nodes[tensor.partition(":")[0]], tensor, dtype)
        return is_changed or bool(lost)

    def _note(self, definition: Any, node: Any, tensor: str, dtype: tf.DType) -> None:
        noting = _added(definition, "IpuNoteNotFinite", node, tensor, "noted")
        noting.attr["flag"].i = self._flag.address
        noting.attr["T"].list.type.append(dtype.as_datatype_enum)

    def _note_in_xla(self, definition: Any, node: Any, tensor: str, dtype: tf.DType) -> None:
        size = definition.node_def.add(
            name=f"{tensor.replace(':', '_')}/every", op="Const", device=node.device
        )
        size.attr["dtype"].type = tf.int32.as_datatype_enum
        size.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([-1], tf.int32))
        flat = definition.node_def.add(
            name=f"{tensor.replace(':', '_')}/flat", op="Reshape", device=node.device
        )
        flat.input.extend([tensor, f"{size.name}:output:0"])
        flat.attr["T"].type = dtype.as_datatype_enum
        flat.attr["Tshape"].type = tf.int32.as_datatype_enum
        call = _added(definition, "XlaCallModule", node, f"{flat.name}:output:0", "noted")
        call.attr["version"].i = MODULE_VERSION
        call.attr["module"].s = module_that_notes([dtype], self._flag).encode()
        call.attr["platforms"].list.s.append(b"CPU")
        call.attr["Tin"].list.type.append(dtype.as_datatype_enum)
        call.attr["Tout"].list.type.append(tf.int64.as_datatype_enum)
        call.attr["Sout"].list.shape.add()


def _added(definition: Any, kind: str, node: Any, tensor: str, name: str) -> Any:
    """Adds a node that is to run, although nothing needs what it returns."""
    found = definition.node_def.add(
        name=f"{tensor.replace(':', '_')}/{name}", op=kind, input=[tensor], device=node.device
    )
    definition.control_ret[found.name] = found.name
    definition.signature.control_output.append(found.name)
    return found


def _lost_in(definition: Any, shown: set[str]) -> dict[str, tf.DType]:
    """Returns the tensors of a function that may have NaN or infinities that are lost.

    Args:
        shown: Those that are looked at anyway.
    """
    constants = {n.name: n for n in definition.node_def if n.op == "Const"}
    makes: dict[str, frozenset[str]] = {}
    takers: dict[str, list[tuple[Any, int]]] = {}
    for node in definition.node_def:
        for k, tensor in enumerate(node.input):
            takers.setdefault(tensor, []).append((node, k))
    lost: dict[str, tf.DType] = {}
    # Definitions need not have nodes in the order in which they run.
    for node in _in_order(definition.node_def):
        given = [makes.get(tensor, _NOTHING) for tensor in node.input]
        kinds = _made_by(node, constants).union(
            *(kinds & _handed_on(node, k) for k, kinds in enumerate(given))
        )
        if not kinds:
            continue
        for tensor, dtype in _outputs(node):
            if dtype not in LOOKED_AT or tensor in shown:
                continue
            handed_on = _NOTHING.union(*(_handed_on(*taker) for taker in takers.get(tensor, ())))
            if kinds <= handed_on:
                makes[tensor] = kinds
            else:
                lost[tensor] = dtype
    return lost


def _made_by(node: Any, constants: Mapping[str, Any]) -> frozenset[str]:
    """Returns what a node may make of finite numbers."""
    if node.op == "Cast":
        # All integers are finite numbers of float32.
        source, to_half = tf.as_dtype(node.attr["SrcT"].type), node.attr["DstT"].type == 19
        return _INFINITY if source.is_floating or to_half else _NOTHING
    if node.op not in COMPUTING:
        return _NOTHING
    if node.op in ("Add", "AddV2", "Sub") and any(
        _is_small(constants.get(name.partition(":")[0])) for name in node.input
    ):
        return _NOTHING
    return _MAKING.get(node.op, _BOTH)


def _is_small(constant: Any) -> bool:
    """Whether a sum of a constant and any finite number is finite, as it is rounded."""
    if constant is None:
        return False
    value = tf.make_ndarray(constant.attr["value"].tensor)
    if value.dtype.kind != "f":
        return False
    largest = np.finfo(value.dtype).max
    return bool((np.abs(value) < np.spacing(largest) / 2).all())


def _handed_on(node: Any, k: int) -> frozenset[str]:
    """Returns of what input `k` of a node may have another of its outputs, or a variable, has."""
    if any(dtype not in LOOKED_AT for _, dtype in _outputs(node)):
        return _NOTHING
    if node.op in _HANDING_ON or node.op in _WRITING or _HANDING_ON_OF.get(node.op) == k:
        return _BOTH
    return _NAN if node.op in _HANDING_NAN_ON else _NOTHING


def _outputs(node: Any) -> list[tuple[str, tf.DType]]:
    return [
        (f"{node.name}:{output.name}:{k}", tf.as_dtype(dtype))
        for output in definition_of(node.op).output_arg
        for k, dtype in enumerate(types_of(output, node))
    ]


def _in_order(nodes: Sequence[Any]) -> list[Any]:
    """Returns nodes after those whose results they take."""
    by_name = {node.name: node for node in nodes}
    found: dict[str, Any] = {}
    waiting = [(node, False) for node in reversed(nodes)]
    while waiting:
        node, is_ready = waiting.pop()
        if node.name in found:
            continue
        if is_ready:
            found[node.name] = node
            continue
        waiting.append((node, True))
        names = (name.removeprefix("^").partition(":")[0] for name in node.input)
        waiting.extend((by_name[n], False) for n in names if n in by_name and n not in found)
    return list(found.values())
