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
    Abs Add AddN AddV2 BatchMatMul BatchMatMulV2 BatchMatMulV3 BiasAdd BiasAddGrad BroadcastTo Cast
    ConcatV2 Conv2DBackpropInput Einsum ExpandDims Identity IdentityN L2Loss Log Log1p MatMul Mean
    Mul Neg Pack PreventGradient Prod ReciprocalGrad Reshape ReverseV2 RsqrtGrad Snapshot Split
    SplitV Sqrt Square SquaredDifference Squeeze StopGradient Sub Sum Tile Transpose Unpack XlaDot
    XlaDotV2 XlaOptimizationBarrier
    """.split()  # noqa: SIM905
)
# The same, of these inputs only: numbers of others need not be in any window.
_HANDING_ON_OF = {
    "Conv2D": 1,
    "Conv2DBackpropFilter": 2,
    "DepthwiseConv2dNative": 1,
    "DepthwiseConv2dNativeBackpropFilter": 2,
    "Div": 0,
    "FusedBatchNormGradV3": 0,
    "FusedBatchNormV3": 0,
    "RealDiv": 0,
    "SigmoidGrad": 1,
    "SqrtGrad": 1,
    "TanhGrad": 1,
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


def noting_lost_numbers(concrete: Any) -> tuple[Any, NotFiniteFlag]:
    """Returns a function that does the same, and the flag that it raises if numbers are lost.

    What a `tf.ConcreteFunction` itself returns, and what it or those that it calls write, is left
    to be looked at by its caller. The flag has to live as long as the function may run.
    """
    register_kernels()
    flag = NotFiniteFlag()
    functions = _NotingFunctions(flag)
    name = concrete.inference_fn.name.decode()
    is_changed = functions.rewritten(name, in_xla=False, is_whole=True) != name
    return defined_like(concrete, functions.made) if is_changed else concrete, flag


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
                    # TensorFlow leaves out effects of what is not said to have any.
                    node.op = _WITH_EFFECTS.get(node.op, node.op)
                    _have_run(definition, node)
        lost = _lost_in(definition, set(definition.ret.values()) if is_whole else set())
        if in_xla and lost:
            self._note_in_xla(definition, lost)
        elif lost:
            self._note(definition, lost)
        return is_changed or bool(lost)

    def _note(self, definition: Any, lost: Mapping[str, tf.DType]) -> None:
        devices = {node.name: node.device for node in definition.node_def}
        for k, (tensor, dtype) in enumerate(lost.items()):
            # Each by itself, so that it is looked at soon and does not stay in memory.
            noting = _added(definition, "IpuNoteNotFinite", f"ipu_noting_{k}", [tensor])
            noting.device = devices[tensor.partition(":")[0]]
            noting.attr["flag"].i = self._flag.address
            noting.attr["T"].list.type.append(dtype.as_datatype_enum)
            _have_run(definition, noting)

    def _note_in_xla(self, definition: Any, lost: Mapping[str, tf.DType]) -> None:
        every = _added(definition, "Const", "ipu_noting_size", [])
        every.attr["dtype"].type = tf.int32.as_datatype_enum
        every.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([-1], tf.int32))
        vectors = []
        for k, (tensor, dtype) in enumerate(lost.items()):
            vectors.append(f"ipu_noting_{k}:output:0")
            flat = _added(
                definition, "Reshape", f"ipu_noting_{k}", [tensor, f"{every.name}:output:0"]
            )
            flat.attr["T"].type = dtype.as_datatype_enum
            flat.attr["Tshape"].type = tf.int32.as_datatype_enum
        # Calls take time, so there is one.
        call = _added(definition, "XlaCallModule", "ipu_noting", vectors)
        call.attr["version"].i = MODULE_VERSION
        call.attr["module"].s = module_that_notes([*lost.values()], self._flag).encode()
        call.attr["platforms"].list.s.append(b"CPU")
        call.attr["Tin"].list.type.extend(dtype.as_datatype_enum for dtype in lost.values())
        call.attr["Tout"].list.type.append(tf.int64.as_datatype_enum)
        call.attr["Sout"].list.shape.add()
        _have_run(definition, call)


def _added(definition: Any, kind: str, name: str, tensors: Sequence[str]) -> Any:
    return definition.node_def.add(name=name, op=kind, input=tensors)


def _have_run(definition: Any, node: Any) -> None:
    """Has a function run a node, although nothing needs what it returns."""
    if node.name not in definition.control_ret.values():
        definition.control_ret[node.name] = node.name
        definition.signature.control_output.append(node.name)


def _lost_in(definition: Any, shown: set[str]) -> dict[str, tf.DType]:
    """Returns the tensors of a function that may have NaN or infinities that are lost.

    Args:
        shown: Those that are looked at anyway.
    """
    nodes = _running(definition)
    constants = {
        node.name: tf.make_ndarray(node.attr["value"].tensor)
        for node in nodes
        if node.op == "Const" and tf.as_dtype(node.attr["dtype"].type) in LOOKED_AT
    }
    # What has infinities by intention, such as a mask, from a constant on.
    intended = {f"{k}:output:0" for k, value in constants.items() if not np.isfinite(value).all()}
    makes: dict[str, frozenset[str]] = {}
    takers: dict[str, list[tuple[Any, int]]] = {}
    for node in nodes:
        for k, tensor in enumerate(node.input):
            takers.setdefault(tensor, []).append((node, k))
    lost: dict[str, tf.DType] = {}
    returned = set(definition.ret.values())
    for node in nodes:
        given = [makes.get(tensor, _NOTHING) for tensor in node.input]
        handed = _NOTHING.union(*(each & _handed_on(node, k) for k, each in enumerate(given)))
        made = _made_by(node, constants)
        is_intended = node.op not in _HANDING_NAN_ON and not intended.isdisjoint(node.input)
        for tensor, dtype in _outputs(node):
            if dtype not in LOOKED_AT or tensor in shown:
                continue
            # A result of its own that nothing needs may be anything, and is not computed.
            kinds = handed | made if tensor in takers or tensor in returned else handed
            found_by = _NOTHING.union(*(_handed_on(*taker) for taker in takers.get(tensor, ())))
            if is_intended:
                intended.add(tensor)
            if kinds <= found_by or is_intended:
                makes[tensor] = kinds
            else:
                lost[tensor] = dtype
    return lost


def _made_by(node: Any, constants: Mapping[str, np.ndarray]) -> frozenset[str]:
    """Returns what a node may make of finite numbers."""
    if node.op == "Cast":
        # All integers are finite numbers of float32.
        source, made = (tf.as_dtype(node.attr[name].type) for name in ("SrcT", "DstT"))
        return _INFINITY if source.is_floating or made == tf.float16 else _NOTHING
    if node.op not in COMPUTING:
        return _NOTHING
    if node.op in ("Add", "AddV2", "Sub") and any(
        _is_small(constants.get(_name_in(tensor))) for tensor in node.input
    ):
        return _NOTHING
    return _MAKING.get(node.op, _BOTH)


def _is_small(value: np.ndarray | None) -> bool:
    """Whether the sum of a constant and any finite number is finite, as it is rounded."""
    if value is None:
        return False
    # Half of what lies between the largest number and the one before it.
    info = np.finfo(value.dtype)
    return bool((np.abs(value) < np.ldexp(0.5, info.maxexp - 1 - info.nmant)).all())


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
        # TensorFlow's kernels leave in this what was in memory before.
        if output.name != "reserve_space_3"
        for k, dtype in enumerate(types_of(output, node))
    ]


def _running(definition: Any) -> list[Any]:
    """Returns the nodes of a function that run, each after those whose results it takes."""
    by_name = {node.name: node for node in definition.node_def}
    found: dict[str, Any] = {}
    ends = [*definition.ret.values(), *definition.control_ret.values()]
    waiting = [(_name_in(end), False) for end in ends]
    while waiting:
        name, is_ready = waiting.pop()
        if name in found or name not in by_name:
            continue
        node = by_name[name]
        if is_ready:
            found[name] = node
        else:
            waiting.append((name, True))
            waiting.extend((_name_in(each), False) for each in node.input)
    return list(found.values())


def _name_in(tensor: str) -> str:
    """Returns the name of the node that a node takes a tensor of, or waits for."""
    return tensor.removeprefix("^").partition(":")[0]
