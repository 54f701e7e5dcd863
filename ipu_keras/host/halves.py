"""Has finished functions compute float16 as an IPU does.

An IPU widens halves to float32, computes, and rounds the result once. Its halves have no
infinity: what is too large becomes 65504 (or NaN, with `floating_point_behaviour.nanoo`), and an
infinite operand, or a division by zero, makes NaN (Tile Vertex ISA 1.2.3, section 2.9).

This works on definitions of functions, after all that looks at graphs, so that gradients, loops,
branches, XLA's programs and TensorFlow's executor are treated alike, and reports see nothing of
it. Functions without halves stay as they are.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras._device import address_of
from ipu_keras._rounding import register
from ipu_keras.internals.tensorflow.contexts import function_definition
from ipu_keras.internals.tensorflow.functions import defined_like
from ipu_keras.internals.tensorflow.operations import definition_of
from ipu_keras.machine.numerics import Numerics

_HALF, _FLOAT = tf.float16.as_datatype_enum, tf.float32.as_datatype_enum
_LARGEST = 65504.0

# What the kernel makes of numbers that are too large, see `_cext/_rounding.pyx`.
_SATURATED, _SATURATED_IF_FINITE, _NEVER_FINITE, _INFINITE = range(4)

# What computes new numbers, by the attributes that are the types of what it computes with. What
# moves, compares or chooses numbers is not here: halves stay halves in it.
COMPUTING: dict[str, tuple[str, ...]] = dict.fromkeys(
    """
    Acos Acosh Add AddN AddV2 Asin Asinh Atan Atan2 Atanh AvgPool AvgPool3D AvgPool3DGrad
    AvgPoolGrad BatchMatMul BatchMatMulV2 BiasAdd BiasAddGrad Conv2D Conv2DBackpropFilter
    Conv2DBackpropInput Conv3D Conv3DBackpropFilterV2 Conv3DBackpropInputV2 Cos Cosh Cumprod Cumsum
    DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput
    Digamma Div DivNoNan Einsum Elu EluGrad Erf Erfc Erfinv EuclideanNorm Exp Expm1 FloorDiv
    FloorMod FusedBatchNormGradV3 FusedBatchNormV3 Inv InvGrad L2Loss LRN LRNGrad LeakyRelu
    LeakyReluGrad Lgamma Log Log1p LogSoftmax MatMul MaxPoolGrad MaxPoolGradV2 Mean Mod Mul
    MulNoNan Ndtri Pow Prod RealDiv Reciprocal ReciprocalGrad Rsqrt RsqrtGrad SegmentMean
    SegmentProd SegmentSum Selu SeluGrad Sigmoid SigmoidGrad Sin Sinh Softmax
    SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign SoftsignGrad
    SparseSoftmaxCrossEntropyWithLogits Sqrt SqrtGrad Square SquaredDifference Sub Sum Tan Tanh
    TanhGrad TensorScatterAdd TensorScatterSub TruncateMod UnsortedSegmentProd UnsortedSegmentSum
    Xdivy Xlog1py Xlogy
    """.split(),  # noqa: SIM905 (a list of a name a line would be a hundred lines)
    ("T",),
)
COMPUTING["BatchMatMulV3"] = ("Ta", "Tb", "Tout")

# Those of them whose results are halves whatever finite halves they are given.
_BOUNDED = frozenset(
    "Acos Asin Atan Atan2 Cos Erf Erfc Sigmoid Sin Softmax Softsign Tanh".split()  # noqa: SIM905
)

# Those of them that make infinities of finite numbers: they divide by zero, or have a pole.
_SINGULAR = frozenset(
    """
    Acosh Atanh Cosh Digamma Div DivNoNan EluGrad Erfinv Exp Expm1 FloorDiv FloorMod Inv InvGrad
    Lgamma Log Log1p LogSoftmax Mod Ndtri Pow RealDiv Reciprocal ReciprocalGrad Rsqrt RsqrtGrad
    Sinh SqrtGrad TruncateMod Xdivy Xlog1py Xlogy
    """.split()  # noqa: SIM905
)

# What moves or chooses halves: its results are finite where all that it is given is.
_MOVING = frozenset(
    """
    Abs BroadcastTo CheckNumerics ConcatV2 ExpandDims GatherV2 Identity IdentityN MaxPool MaxPoolV2
    Max Maximum Min Minimum Neg Pack Pad PreventGradient Relu Relu6 Relu6Grad ReluGrad Reshape
    ReverseV2 Roll Select SelectV2 Slice Split SplitV Squeeze StopGradient StridedSlice
    StridedSliceGrad Tile Transpose Unpack ZerosLike
    """.split()  # noqa: SIM905
)

# Their float32 overflows for finite halves as well, which is an overflow and no infinite operand.
_OVERFLOWING = frozenset({"Cosh", "Exp", "Expm1", "Pow", "Sinh"})

# What changes a variable by what it computes, and what computes that.
_CHANGES = {"AssignAddVariableOp": "AddV2", "AssignSubVariableOp": "Sub"}

# Before the name of a tensor, says that nothing takes its place there.
_AS_IT_IS = "="

_numbers = itertools.count()


def computes_halves(concrete: Any) -> bool:
    """Whether a traced function, or one that it calls, computes numbers of float16."""
    return _HalvedFunctions(Numerics()).are_computed_in(concrete.inference_fn.name.decode())


def with_halves(concrete: Any, numerics: Numerics) -> Any:
    """Returns a function that computes halves as an IPU does; the given one if it has none.

    Args:
        concrete: A `tf.ConcreteFunction` that is called as it is: a caller with halves of its own
            would have it written anew once more.
        numerics: How halves overflow on the device.
    """
    functions = _HalvedFunctions(numerics)
    name = concrete.inference_fn.name.decode()
    if not functions.are_computed_in(name):
        return concrete
    functions.rewritten(name)
    return defined_like(concrete, functions.made)


class _HalvedFunctions:
    """Functions that call each other, and what becomes of them."""

    def __init__(self, numerics: Numerics):
        self._numerics = numerics
        self._concerned: dict[str, bool] = {}
        self._names: dict[tuple[str, bool], str] = {}
        self.made: list[tuple[str, Any]] = []

    def are_computed_in(self, name: str) -> bool:
        """Whether a function, or one that it calls, computes halves."""
        if name not in self._concerned:
            self._concerned[name] = any(
                _computes_halves(node)
                or any(self.are_computed_in(called.name) for called in _called(node))
                for node in function_definition(name).node_def
            )
        return self._concerned[name]

    def rewritten(self, name: str, in_xla: bool = False) -> str:
        """Returns the name of what takes the place of a function, called by XLA's programs or not.

        XLA has no kernels of ours, and needs none: it rounds as part of other operations.
        """
        if not self.are_computed_in(name):
            return name
        definition = function_definition(name)
        in_xla = in_xla or _is_for_xla(definition)
        if (name, in_xla) not in self._names:
            self._names[name, in_xla] = f"{name}_halves_{next(_numbers)}"
            kind = _Rewriting if in_xla else _RewritingForExecutor
            found = kind(definition, self.rewritten, self._numerics).result()
            found.signature.name = self._names[name, in_xla]
            self.made.append((name, found))
        return self._names[name, in_xla]


def _computes_halves(node: Any) -> bool:
    if node.op == "Cast":
        return node.attr["DstT"].type == _HALF and node.attr["SrcT"].type != _HALF
    names = ("dtype",) if node.op in _CHANGES else COMPUTING.get(node.op, ())
    return any(node.attr[name].type == _HALF for name in names)


def _positions(node: Any, types: Iterable[str]) -> list[int]:
    """Returns which inputs of a node have a type that is one of these attributes."""
    every = [
        argument.type_attr
        for argument in definition_of(node.op).input_arg
        for _ in range(node.attr[argument.number_attr].i if argument.number_attr else 1)
    ]
    return [k for k, name in enumerate(every) if name in types]


def _called(node: Any) -> list[Any]:
    """Returns the functions that a node names, which may be changed."""
    found = [value.func for value in node.attr.values() if value.HasField("func")]
    return found + [function for value in node.attr.values() for function in value.list.func]


@functools.cache
def _register_kernels() -> None:
    """Makes `IpuRound` and `IpuWiden` known to TensorFlow, once in a process."""
    register(address_of)


def _is_widening(node: Any) -> bool:
    types = (node.attr["SrcT"].type, node.attr["DstT"].type) if node.op == "Cast" else ()
    return types == (_HALF, _FLOAT)


def _is_for_xla(called: Any) -> bool:
    """Whether XLA compiles a function, or the function that a node calls."""
    # Whoever asks for an attribute that is not there makes it.
    return "_XlaMustCompile" in called.attr and called.attr["_XlaMustCompile"].b


class _Rewriting:
    """Writes one function anew: all that computes halves does so in float32, and rounds."""

    _in_xla = True

    def __init__(self, definition: Any, renamed: Callable[[str, bool], str], numerics: Numerics):
        self._definition = definition
        self._renamed = renamed
        self._nanoo = numerics.nanoo
        self._nodes: list[Any] = []
        # The operations that others wait for, without taking a result.
        self._awaited = {
            name[1:] for node in definition.node_def for name in node.input if name[0] == "^"
        }
        # By the tensor that was a half, the one that is it now.
        self._instead: dict[str, str] = {}
        self._constants: dict[tuple[str, int], str] = {}
        # The operations of which no half is infinite, so that what is computed of it need not look.
        self._finite_ops: set[str] = set()
        # Where new operations are, and what they wait for.
        self._device = ""

    def result(self) -> Any:
        """Returns the definition of the new function, under the name of the old one."""
        found = type(self._definition)()
        found.CopyFrom(self._definition)
        for node in found.node_def:
            self._device = node.device
            in_xla = self._in_xla or _is_for_xla(node)
            for function in _called(node):
                function.name = self._renamed(function.name, in_xla)
            if not _computes_halves(node):
                self._note_moved(node)
                self._move(node)
            elif node.op in _CHANGES:
                self._change(node)
            elif node.op == "Cast":
                self._cast(node)
            else:
                self._compute(node)
        for key, name in list(found.ret.items()):  # setting one may move others
            found.ret[key] = self._half_of(name)
        for node in self._nodes:  # to which this may add
            for k, name in enumerate(node.input):
                node.input[k] = self._half_of(name)
        nodes = [*self._nodes]
        del found.node_def[:]
        found.node_def.extend(nodes)
        return found

    def _half_of(self, tensor: str) -> str:
        """Returns what nodes take for a tensor that they name."""
        return self._instead.get(tensor, tensor).removeprefix(_AS_IT_IS)

    def _move(self, node: Any) -> None:
        self._nodes.append(node)

    def _note_moved(self, node: Any) -> None:
        """Notes whether halves that are moved, or constant, are finite."""
        if node.op == "Const":
            value = tf.make_ndarray(node.attr["value"].tensor)
            if value.dtype != np.float16 or not np.isinf(value).any():
                self._finite_ops.add(node.name)
        elif node.op in _MOVING and self._are_finite(node.input):
            self._finite_ops.add(node.name)

    def _are_finite(self, tensors: Iterable[str]) -> bool:
        return all(name.partition(":")[0] in self._finite_ops for name in tensors if name[0] != "^")

    def _compute(self, node: Any) -> None:
        kind = definition_of(node.op)
        halves = {name for name in COMPUTING[node.op] if node.attr[name].type == _HALF}
        wide = _positions(node, halves)
        is_finite = node.op not in _SINGULAR and self._are_finite(node.input[k] for k in wide)
        is_bounded = node.op in _BOUNDED and is_finite
        self._finite_ops.add(node.name)
        self._widen(node, wide, halves)
        for argument in kind.output_arg:
            if argument.type_attr in halves:
                tensor = f"{node.name}:{argument.name}:0"
                operands = [node.input[k] for k in wide] if node.op in _OVERFLOWING else []
                name = f"{node.name}/{argument.name}"
                result = _AS_IT_IS + tensor
                checked = [] if is_finite else operands or [result]
                self._note(tensor, self._rounded(result, name, checked, is_bounded))

    def _widen(self, node: Any, positions: Iterable[int], types: Iterable[str]) -> None:
        """Gives a node float32 in place of the halves among its inputs."""
        for k in positions:
            node.input[k] = self._cast_to(_FLOAT, node.input[k], f"{node.name}/wide_{k}")
        for name in types:
            node.attr[name].type = _FLOAT
        self._nodes.append(node)

    def _change(self, node: Any) -> None:
        """Reads, computes and writes, in place of an operation that does all of it in halves."""
        handle, value, *controls = node.input
        read = self._new("ReadVariableOp", f"{node.name}/read", [handle, *controls], dtype=_HALF)
        self._new(_CHANGES[node.op], f"{node.name}/changed", [f"{read}:value:0", value], T=_HALF)
        changed = self._nodes.pop()
        self._compute(changed)
        node.op = "AssignVariableOp"
        self._finite_ops.discard(node.name)
        node.input[1] = f"{changed.name}:z:0"
        self._nodes.append(node)

    def _cast(self, node: Any) -> None:
        source = node.attr["SrcT"].type
        tensor, wide = f"{node.name}:y:0", node.input[0]
        if source != _FLOAT:
            node.attr["DstT"].type = _FLOAT
            self._nodes.append(node)
            wide = _AS_IT_IS + tensor
        rounded = self._rounded(wide, node.name, [wide])
        self._note(tensor, rounded)
        self._finite_ops.add(node.name)
        if source == _FLOAT:
            self._drop(node, rounded)

    def _drop(self, node: Any, instead: str) -> None:
        """Leaves out a cast, but for its name if other operations wait for that."""
        if node.name in self._awaited:
            node.op, node.input[0] = "NoOp", f"^{instead.removeprefix(_AS_IT_IS).partition(':')[0]}"
            node.attr.clear()
            self._nodes.append(node)

    def _note(self, tensor: str, rounded: str) -> None:
        """Notes what takes the place of a tensor that was a half."""
        self._instead[tensor] = rounded

    def _rounded(
        self, wide: str, name: str, operands: Sequence[str], is_bounded: bool = False
    ) -> str:
        """Returns the half that a result in float32 becomes: NaN where an operand is not finite."""
        if is_bounded:
            return self._cast_to(_HALF, wide, f"{name}/half")
        if not self._nanoo:
            return self._cast_to(_HALF, self._saturated(wide, name, operands), f"{name}/half")
        half = self._cast_to(_HALF, wide, f"{name}/half")
        return self._finite(half, _HALF, [half], _HALF, f"{name}/kept")

    def _saturated(self, wide: str, name: str, operands: Sequence[str]) -> str:
        limits = [self._constant(value, _FLOAT) for value in (-_LARGEST, _LARGEST)]
        clipped = self._new("ClipByValue", f"{name}/clipped", [wide, *limits], T=_FLOAT)
        # Clipping keeps NaN.
        return self._finite(f"{clipped}:output:0", _FLOAT, operands, _FLOAT, f"{name}/kept")

    def _finite(
        self, value: str, dtype: int, operands: Sequence[str], type_of_operands: int, name: str
    ) -> str:
        """Returns a value where operands are finite, and NaN elsewhere."""
        nan = self._constant(float("nan"), dtype) if operands else ""
        for k, operand in enumerate(operands):
            finite = self._new("IsFinite", f"{name}/finite_{k}", [operand], T=type_of_operands)
            chosen = self._new(
                "SelectV2", f"{name}/chosen_{k}", [f"{finite}:y:0", value, nan], T=dtype
            )
            value = f"{chosen}:output:0"
        return value

    def _cast_to(self, dtype: int, tensor: str, name: str) -> str:
        source = _HALF if dtype == _FLOAT else _FLOAT
        return f"{self._new('Cast', name, [tensor], SrcT=source, DstT=dtype)}:y:0"

    def _constant(self, value: float, dtype: int) -> str:
        # By text, as NaN is not equal to itself.
        key = (repr(value), dtype)
        if key not in self._constants:
            name = f"ipu_halves/constant_{len(self._constants)}"
            self._new("Const", name, [], dtype=dtype)
            tensor = tf.make_tensor_proto(value, tf.as_dtype(dtype))
            self._nodes[-1].attr["value"].tensor.CopyFrom(tensor)
            self._constants[key] = f"{name}:output:0"
        return self._constants[key]

    def _new(self, kind: str, name: str, inputs: Sequence[str], **types: int) -> str:
        node = type(self._definition).FromString(b"").node_def.add()
        node.name, node.op, node.device = name, kind, self._device
        node.input.extend(inputs)
        for attribute, dtype in types.items():
            node.attr[attribute].type = dtype
        self._nodes.append(node)
        return name


class _RewritingForExecutor(_Rewriting):
    """Rounds by kernels of our own: TensorFlow would go over each result several times.

    What is rounded stays float32 as long as only float32 of it is needed, and what moves or
    chooses such numbers, for which TensorFlow's kernels take longer with halves.
    """

    _in_xla = False

    def __init__(self, *given: Any):
        super().__init__(*given)
        _register_kernels()
        # Halves in float32, by the name of the half.
        self._wide: dict[str, str] = {}
        # Those of which nothing is a half, unless it is asked for, and their devices.
        self._only_wide: dict[str, str] = {}

    def _half_of(self, tensor: str) -> str:
        if tensor in self._only_wide and tensor not in self._instead:
            name = f"{tensor.replace(':', '/')}/half"
            self._device = self._only_wide[tensor]
            self._round("IpuRound", name, self._wide[tensor], _INFINITE)
            self._instead[tensor] = f"{name}:halves:0"
        return super()._half_of(tensor)

    def _note(self, tensor: str, rounded: str) -> None:
        self._wide[tensor] = rounded
        self._only_wide[tensor] = self._device

    def _move(self, node: Any) -> None:
        if _is_widening(node):
            wide = self._cast_to(_FLOAT, node.input[0], node.name)
            self._instead[f"{node.name}:y:0"] = wide
            self._drop(node, wide)
        elif self._moves_wide(node):
            self._widen(node, _positions(node, ["T"]), ["T"])
            tensor = f"{node.name}:{definition_of(node.op).output_arg[0].name}:0"
            self._note(tensor, _AS_IT_IS + tensor)
        else:
            super()._move(node)

    def _moves_wide(self, node: Any) -> bool:
        """Whether halves that a node moves are in float32 already, and what it returns may be."""
        if node.op not in _MOVING or "T" not in node.attr or node.attr["T"].type != _HALF:
            return False
        results = definition_of(node.op).output_arg
        is_one = len(results) == 1 and not results[0].number_attr
        return is_one and any(node.input[k] in self._wide for k in _positions(node, ["T"]))

    def _rounded(
        self, wide: str, name: str, operands: Sequence[str], is_bounded: bool = False
    ) -> str:
        overflow = _SATURATED
        if self._nanoo:
            overflow = _NEVER_FINITE
        elif wide in operands:
            overflow = _SATURATED_IF_FINITE
        rounded = f"{self._round('IpuRoundWide', f'{name}/rounded', wide, overflow)}:rounded:0"
        others = [] if self._nanoo else [operand for operand in operands if operand != wide]
        return self._finite(rounded, _FLOAT, others, _FLOAT, f"{name}/kept")

    def _round(self, kind: str, name: str, wide: str, overflow: int) -> str:
        self._new(kind, name, [wide])
        self._nodes[-1].attr["overflow"].i = overflow
        return name

    def _cast_to(self, dtype: int, tensor: str, name: str) -> str:
        assert dtype == _FLOAT
        if tensor not in self._wide:
            self._wide[tensor] = f"{self._new('IpuWiden', f'{name}/wide', [tensor])}:wide:0"
        return self._wide[tensor]
