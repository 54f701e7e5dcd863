"""Lets calls stand in for operations that TensorFlow takes long to lower.

For each `Sqrt`, `Relu` or `Einsum` of a function, TensorFlow builds MLIR passes to find the few
instructions that it consists of. That takes 10 ms, and Adam has a square root for every
variable. Random numbers are spelled out in a hundred instructions. A custom call takes 0.2 ms,
and whoever reads XLA's module knows what it stands for.
"""

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.contexts import eager_context
from ipu_keras.internals.tensorflow.protos import FunctionDef
from ipu_keras.ir import Op, TensorSpec
from ipu_keras.tracing.concrete import called_functions
from ipu_keras.tracing.definitions import (
    another_name,
    leave_out_unneeded,
    name_in_definition,
    take_instead,
)

_CALL = "XlaCustomCall"
_RESULT = "output"  # the call's name for its result
# A call's target: the operation's type and, for some types, a detail.
_TARGET = re.compile(r"ipu\.stand_in\.(?P<kind>\w+) ?(?P<detail>.*)")

# An equation of two operands that one product and one transposition may compute.
_EQUATION = re.compile(r"(\w+),(\w+)->(\w+)", re.ASCII)

# Their inputs are a shape, which the call has itself, a key, a counter and the number of an
# algorithm, of which IPUs have only one.
_DRAWS = frozenset(
    {"StatelessRandomNormalV2", "StatelessRandomUniformV2", "StatelessTruncatedNormalV2"}
)
# Makes a key and a counter from a seed, in as many instructions as the draw itself.
_SEEDING = "StatelessRandomGetKeyCounter"


@contextlib.contextmanager
def defined_with_stand_ins(concrete: Any) -> Iterator[str]:
    """While this is open, TensorFlow knows a traced function with stand-ins for slow operations.

    The functions that it calls have stand-ins too. A result that has to be known when XLA
    lowers the function, such as a shape, cannot come from a stand-in. The name of the new
    function is yielded, or its own if it needs none.
    """
    definitions: dict[str, FunctionDef] = {}
    name = _define(concrete, definitions)
    tensorflow = eager_context()
    with contextlib.ExitStack() as added:
        for definition in definitions.values():
            tensorflow.add_function_def(definition)
            added.callback(tensorflow.remove_function, definition.signature.name)
        yield name


def _define(function: Any, definitions: dict[str, FunctionDef]) -> str:
    """Returns the name of a function with stand-ins, and adds its definition if it needs any."""
    name = function.name.decode()
    if name in definitions:
        return definitions[name].signature.name
    slow = {op.name: op for op in function.graph.get_operations() if _is_slow(op)}
    called = {
        inner: other
        for inner, other_function in called_functions(function.graph).items()
        if (other := _define(other_function, definitions)) != inner
    }
    if not slow and not called:
        return name
    definition = eager_context().get_function_def(name)
    # A definition names an operation's results as its `OpDef` does, and the call's has another
    # name.
    results = {name_in_definition(op.outputs[0]): f"{op.name}:{_RESULT}:0" for op in slow.values()}
    take_instead(definition, results)
    inputs = {node.name: node.input[:] for node in definition.node_def}
    for node in definition.node_def:
        if node.name in slow:
            _stand_in(node, slow[node.name], inputs)
        elif called:
            _call_others(node, called)
    leave_out_unneeded(definition)  # drops keys and counters that no draw takes now
    definition.signature.name = another_name(name)
    definitions[name] = definition
    return definition.signature.name


def _is_slow(op: tf.Operation) -> bool:
    if op.type not in _INSTRUCTIONS:
        return False
    (result,) = op.outputs
    # Integers may be parts of shapes, which XLA has to know.
    is_number = result.dtype.is_floating or op.type == "IsFinite"
    if not is_number or not result.shape.is_fully_defined():
        return False
    if op.type == "BiasAddGrad":
        last_axis = op.get_attr("data_format") == b"NHWC"
        return last_axis and op.inputs[0].shape.is_fully_defined()
    if op.type in ("LogSoftmax", "Softmax"):
        return result.shape[-1] > 1  # for rows of one, XLA leaves out the copies
    return op.type != "Einsum" or _is_product(op.get_attr("equation").decode())


def _call_others(node: tf.compat.v1.NodeDef, names: Mapping[str, str]) -> None:
    for value in node.attr.values():
        called = [value.func] if value.HasField("func") else value.list.func
        for function in called:
            function.name = names.get(function.name, function.name)


def _stand_in(
    node: tf.compat.v1.NodeDef, op: tf.Operation, inputs: Mapping[str, Sequence[str]]
) -> None:
    """Turns an operation's node into a call; `inputs` are those of all nodes, by node."""
    taken = _taken(op)
    data = [inputs[user.name][position] for user, position in taken]
    controls = node.input[len(op.inputs) :]
    del node.input[:]
    node.input.extend([*data, *controls])
    dtype = op.outputs[0].dtype.as_datatype_enum
    for attribute in list(node.attr):
        if not attribute.startswith("_"):
            del node.attr[attribute]
    node.op = _CALL
    node.attr["target_name"].s = f"ipu.stand_in.{op.type} {_detail(op)}".strip().encode()
    node.attr["backend_config"].s = b""
    types = [user.inputs[position].dtype.as_datatype_enum for user, position in taken]
    node.attr["T"].list.type.extend(types)
    node.attr["dtype"].type = dtype
    node.attr["shape"].shape.CopyFrom(op.outputs[0].shape.as_proto())


def _detail(op: tf.Operation) -> str:
    """Returns what decides an operation's instructions besides the type of its result."""
    if op.type == "Einsum":
        return op.get_attr("equation").decode()
    return ",".join(map(str, op.inputs[0].shape)) if op.type == "BiasAddGrad" else ""


def _taken(op: tf.Operation) -> list[tuple[tf.Operation, int]]:
    """Returns the inputs of operations that a call takes, by their positions."""
    if op.type not in _DRAWS:
        return [(op, position) for position in range(len(op.inputs))]
    _, key, counter, _ = op.inputs
    seeding = key.op
    # In another scope, the seeding is an operation of its own in reports, and stays one.
    same_scope = seeding.name.rpartition("/")[0] == op.name.rpartition("/")[0]
    if seeding.type == _SEEDING and seeding is counter.op and same_scope:
        return [(seeding, 0)]  # the seed
    return [(op, 1), (op, 2)]


class _Written:
    """The instructions of the operation that a call stands in for, as XLA would write them."""

    def __init__(self, call: Op, unique_name: Callable[[str], str]):
        self.ops: list[Op] = []
        self.shape, self.dtype = call.outputs[0].shape, call.outputs[0].dtype
        self._call = call
        self._unique_name = unique_name

    def add(
        self,
        kind: str,
        *inputs: str,
        shape: Sequence[int] | None = None,
        dtype: str | None = None,
        **attributes: Any,
    ) -> str:
        """Adds an instruction, by default with the call's shape and dtype; returns its name."""
        spec = TensorSpec(tuple(self.shape if shape is None else shape), dtype or self.dtype)
        name = self._unique_name(kind)
        self.ops.append(
            replace(
                self._call,
                name=name,
                kind=kind,
                outputs=(spec,),
                inputs=inputs,
                attributes=attributes,
            )
        )
        return name

    def full(self, value: float) -> str:
        return self.add("broadcast", self.add("constant", shape=(), value=value), dimensions=())


def _one_instruction(kind: str) -> Callable[..., object]:
    def write(written: _Written, *inputs: str) -> None:
        written.add(kind, *inputs)

    return write


def _reciprocal(written: _Written, x: str) -> None:
    written.add("divide", written.full(1.0), x)


def _relu(written: _Written, x: str) -> None:
    written.add("maximum", x, written.full(0.0))


def _relu_gradient(written: _Written, gradients: str, features: str) -> None:
    zero = written.full(0.0)
    is_on = written.add("compare", features, zero, dtype="bool", direction="GT")
    written.add("select", is_on, gradients, zero)


def _relu6(written: _Written, x: str) -> None:
    bounds = [written.add("constant", shape=(), value=value) for value in (0.0, 6.0)]
    low, high = (written.add("broadcast", bound, dimensions=()) for bound in bounds)
    written.add("clamp", low, x, high)


def _filled(value: float) -> Callable[..., object]:
    def write(written: _Written, _like: str) -> None:
        written.full(value)

    return write


def _bias_gradient(written: _Written, gradients: str, *, detail: str) -> None:
    shape = tuple(map(int, detail.split(",")))
    wide = _type_of_sums(written.dtype)
    zero = written.add("constant", shape=(), dtype=wide, value=-0.0)
    if wide != written.dtype:
        gradients = written.add("convert", gradients, shape=shape, dtype=wide)
    axes = tuple(range(len(shape) - 1))
    sums = written.add("reduce", gradients, zero, dtype=wide, dimensions=axes, operation="add")
    if wide != written.dtype:
        written.add("convert", sums)


def _type_of_sums(dtype: str) -> str:
    """Returns the type in which XLA sums, as it sums short types in float32."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _softmax(written: _Written, logits: str) -> None:
    _, exponentials, sums = _parts_of_softmax(written, logits)
    written.add("divide", exponentials, _along_last_axis(written, sums))


def _log_softmax(written: _Written, logits: str) -> None:
    shifted, _, sums = _parts_of_softmax(written, logits)
    logarithms = written.add("log", sums, shape=(*written.shape[:-1], 1))
    written.add("subtract", shifted, _along_last_axis(written, logarithms))


def _parts_of_softmax(written: _Written, logits: str) -> tuple[str, str, str]:
    """Adds logits minus their row's largest, their exponentials, and the sums of these."""
    *rows, _ = written.shape
    wide = _type_of_sums(written.dtype)
    zero = written.add("constant", shape=(), dtype=wide, value=-0.0)
    lowest = written.add("constant", shape=(), value=-math.inf)
    axis = (len(rows),)
    largest = written.add(
        "reduce", logits, lowest, shape=rows, dimensions=axis, operation="maximum"
    )
    largest = written.add("reshape", largest, shape=(*rows, 1))
    shifted = written.add("subtract", logits, _along_last_axis(written, largest))
    exponentials = written.add("exponential", shifted)
    terms = exponentials
    if wide != written.dtype:
        terms = written.add("convert", exponentials, dtype=wide)
    sums = written.add(
        "reduce", terms, zero, shape=rows, dtype=wide, dimensions=axis, operation="add"
    )
    if wide != written.dtype:
        sums = written.add("convert", sums, shape=rows)
    return shifted, exponentials, written.add("reshape", sums, shape=(*rows, 1))


def _along_last_axis(written: _Written, x: str) -> str:
    """Repeats what has one element along the last axis to the shape of the result."""
    *rows, _ = written.shape
    # Three instructions for one broadcast are what XLA writes; the graph must not tell
    # stand-ins apart.
    same = written.add("broadcast", x, shape=(*rows, 1), dimensions=tuple(range(len(rows) + 1)))
    flat = written.add("reshape", same, shape=rows)
    return written.add("broadcast", flat, dimensions=tuple(range(len(rows))))


def _is_product(equation: str) -> bool:
    """Whether each label is an axis of the result, or contracted between both operands."""
    found = _EQUATION.fullmatch(equation)
    if found is None or any(len(set(labels)) < len(labels) for labels in found.groups()):
        return False
    left, right, result = map(set, found.groups())
    return result <= left | right and left ^ right <= result


def _einsum(written: _Written, x: str, y: str, *, detail: str) -> None:
    operands, result = detail.split("->")
    left, right = operands.split(",")
    batch = [label for label in left if label in right and label in result]
    contracted = [label for label in left if label in right and label not in result]
    free = [label for label in left + right if label not in batch + contracted]
    labels = batch + free
    sizes = dict(zip(result, written.shape, strict=True))
    product = written.add(
        "dot",
        x,
        y,
        shape=tuple(sizes[label] for label in labels),
        lhs_contracting_dimensions=tuple(map(left.index, contracted)),
        rhs_contracting_dimensions=tuple(map(right.index, contracted)),
        lhs_batch_dimensions=tuple(map(left.index, batch)),
        rhs_batch_dimensions=tuple(map(right.index, batch)),
    )
    written.add("transpose", product, dimensions=tuple(map(labels.index, result)))


# What XLA makes of operations. A test compares each entry with the graph without stand-ins.
_INSTRUCTIONS: Mapping[str, Callable[..., object]] = {
    "Abs": _one_instruction("abs"),
    "BiasAddGrad": _bias_gradient,
    "Ceil": _one_instruction("ceil"),
    "Cos": _one_instruction("cosine"),
    "Einsum": _einsum,
    "Exp": _one_instruction("exponential"),
    "Expm1": _one_instruction("exponential-minus-one"),
    "Floor": _one_instruction("floor"),
    "IsFinite": _one_instruction("is-finite"),
    "Log1p": _one_instruction("log-plus-one"),
    "LogSoftmax": _log_softmax,
    "OnesLike": _filled(1.0),
    "Reciprocal": _reciprocal,
    "Relu": _relu,
    "Relu6": _relu6,
    "ReluGrad": _relu_gradient,
    "Rsqrt": _one_instruction("rsqrt"),
    "Sigmoid": _one_instruction("logistic"),
    "Sign": _one_instruction("sign"),
    "Softmax": _softmax,
    "Sqrt": _one_instruction("sqrt"),
    "StatelessRandomNormalV2": _one_instruction("rng"),
    "StatelessRandomUniformV2": _one_instruction("rng"),
    "StatelessTruncatedNormalV2": _one_instruction("rng"),
    "Tanh": _one_instruction("tanh"),
    "ZerosLike": _filled(0.0),
}


def operation_of_call(target: str) -> str:
    """Returns the type of the operation that a call's target stands for, or "".

    Example:

    >>> operation_of_call("ipu.stand_in.Einsum ij,jk->ik")
    'Einsum'
    """
    found = _TARGET.fullmatch(target)
    return "" if found is None else found["kind"]


def instructions_of(call: Op, unique_name: Callable[[str], str]) -> Sequence[Op]:
    """Returns what XLA would have made of the operation that a call stands for.

    The instruction with the result is the last one. If `call` stands for nothing, it is
    returned itself.
    """
    target = _TARGET.fullmatch(call.attributes.get("custom_call_target", ""))
    if target is None:
        return [call]
    written = _Written(call, unique_name)
    options = {"detail": target["detail"]} if target["detail"] else {}
    _INSTRUCTIONS[target["kind"]](written, *call.inputs, **options)
    return written.ops
