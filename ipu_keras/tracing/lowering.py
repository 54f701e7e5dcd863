"""Has XLA lower a traced function, after checking for what would crash it.

TensorFlow's entry to XLA's compiler takes the inputs of a function by position and trusts them:
one that is missing or of another type ends the process.
"""

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.contexts import copied_to, eager_context, eagerly
from ipu_keras.internals.tensorflow.log_levels import without_notes
from ipu_keras.internals.tensorflow.variables import contents_of, plain_variable
from ipu_keras.ir import TensorSpec
from ipu_keras.tracing.as_written import AsWritten
from ipu_keras.tracing.stand_ins import defined_with_stand_ins

_HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
_NO_DATASET = (
    "A function for XLA takes numbers and captures variables; of a dataset, read an iterator with "
    "`next` in a loop over `tf.range`."
)
_NO_VARIABLE = (
    "A captured resource must be a variable of the shape and type that the function was traced "
    "with."
)
# The stage before XLA's own passes, which would widen float16 for a CPU.
_STAGE = "hlo_serialized"


# The forms in which XLA names operations that it refuses. The name of a called function, in
# braces before the operation's, is left out, because calls and loops are named besides.
_NAMED = re.compile(r"node `([^`]+)`|(?<!\}\})\{\{node ([^}]+)\}\}|\[\[([^\]{}]+)\]\]")


class LoweringError(RuntimeError):
    """XLA cannot express a traced function, or cannot take its inputs.

    The message carries XLA's text, which names the operation. `operations` are the names of
    those that it refused, as far as it tells; those within a called function follow the name of
    the call.
    """

    def __init__(self, message: str, operations: Iterable[str] = ()):
        super().__init__(message)
        self.operations = frozenset(operations)


@dataclass(frozen=True)
class FunctionInput:
    """An argument or a captured value of a traced function.

    Args:
        spec: The type of the tensor; for a variable, that of its value.
        role: `"argument"`, `"variable"`, `"capture"` for a captured tensor, or `"table"` for
            any other resource, which XLA lacks.
    """

    spec: TensorSpec
    role: str
    name: str


@dataclass(frozen=True)
class Lowering:
    """What XLA made of a function.

    Args:
        module: A serialised `HloModuleProto` of XLA. Calls in it may stand in for operations,
            whose instructions `instructions_of` of `stand_ins` knows.
        refused: Names of the operations for which XLA had to read the values of inputs, as it
            refused them without.
    """

    name: str
    inputs: tuple[FunctionInput, ...]
    module: bytes
    refused: frozenset[str] = frozenset()


def lower(concrete, *, stand_ins: bool = True) -> Lowering:
    """Lowers a function to XLA's operations without executing it.

    Args:
        concrete: A `tf.ConcreteFunction`, or one `AsWritten`.
        stand_ins: Whether calls may stand in for operations that take long to lower.

    Raises:
        LoweringError: XLA cannot take an input, a variable has no value, or XLA refused the
            function.
    """
    with contextlib.ExitStack() as opened:
        # XLA's entry runs eagerly, but the graph of a session may be the default one here.
        opened.enter_context(eagerly())
        opened.enter_context(without_notes())
        if isinstance(concrete, AsWritten):
            opened.enter_context(concrete.defined())
        return _lowered(concrete, stand_ins)


def _lowered(concrete, stand_ins: bool) -> Lowering:
    name = concrete.function_def.signature.name
    inputs = inputs_of(concrete)
    _check_resources(concrete, inputs)
    # A handle does not keep its variable alive, and XLA reads what is behind it.
    variables: list[tf.Variable] = []
    captures = [_on_host(capture, variables) for capture in concrete.captured_inputs]
    _check_values(captures, inputs)
    placeholders = concrete.inputs[: len(concrete.inputs) - len(captures)]
    specs = [tf.TensorSpec(p.shape, p.dtype) for p in placeholders]
    # If XLA has to know the value that a stand-in would give, as of a shape, it gets the
    # function as it was traced.
    if stand_ins:
        with contextlib.suppress(LoweringError), defined_with_stand_ins(concrete) as quick:
            if quick != name:
                return Lowering(name, inputs, _module(quick, specs, captures))
    try:
        return Lowering(name, inputs, _module(name, specs, captures))
    except LoweringError as error:
        if all(given.role != "capture" for given in inputs):
            raise
        # XLA reads captured values, which may be a shape or an axis, only when the
        # arguments have values too. If it reads one of those as well, it is missing
        # among the parameters, which whoever assigns the inputs to them will see.
        with tf.device(_HOST):
            zeros = [tf.zeros(p.shape, p.dtype) for p in placeholders]
        return Lowering(name, inputs, _module(name, zeros, captures), error.operations)


def _module(name: str, arguments: Sequence[Any], captures: Sequence[Any]) -> bytes:
    try:
        return eager_context().get_compiler_ir(
            device_name=_HOST,
            platform_name=None,
            function_name=name,
            flat_args=arguments,
            captured_inputs=captures,
            stage=_STAGE,
        )
    # It is a RuntimeError where XLA has not even a shape for what it is given.
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        raise LoweringError(
            f"XLA cannot lower the function {name!r}. Replace the operation that it names, or run "
            f"without XLA. Received: {error}",
            {next(filter(None, found.groups())) for found in _NAMED.finditer(str(error))},
        ) from error


def _check_resources(concrete, inputs: Sequence[FunctionInput]) -> None:
    """Refuses functions that take a resource other than a variable."""
    pairs = zip(concrete.inputs, inputs, strict=True)
    tables = [placeholder for placeholder, given in pairs if given.role == "table"]
    if tables:
        raise LoweringError(
            f"{_NO_VARIABLE} Received: {tables[0].op.name!r}",
            [op.name for table in tables for op in table.consumers()],
        )


def _check_values(captures: Sequence[Any], inputs: Sequence[FunctionInput]) -> None:
    """Refuses variables without a value, for which XLA would make up one without a type."""
    for given, capture in zip(inputs[len(inputs) - len(captures) :], captures, strict=True):
        if given.role == "variable" and not tf.raw_ops.VarIsInitializedOp(resource=capture):
            raise LoweringError(
                "A captured variable must have a value when its function is lowered; initialize "
                f"it before. Received: {given.name!r}, which has none"
            )


def _on_host(capture, variables: list[tf.Variable]):
    """Returns the same value, or a handle of a variable, where XLA's compiler can read it.

    A value that only a session or another trace knows is replaced by zeros of its type.
    """
    if is_known(capture):
        return capture if capture.device == _HOST else copied_to(capture, _HOST)
    with tf.device(_HOST):
        if capture.dtype != tf.resource:
            return tf.zeros(capture.shape, capture.dtype)
        [(shape, dtype)] = contents_of(capture) or []
        variables.append(plain_variable(tf.zeros(shape, dtype), trainable=False, name="stand_in"))
        return variables[-1].handle


def is_known(capture) -> bool:
    """Whether a captured value is known now, and not only in a session or another trace."""
    return hasattr(capture, "numpy")


def inputs_of(concrete) -> tuple[FunctionInput, ...]:
    """Returns all inputs of a function in order, each as it was when it was traced.

    Raises a `LoweringError` if XLA cannot take one of them.
    """
    signature = concrete.function_def.signature
    captures = concrete.captured_inputs
    placeholders = concrete.inputs
    num_arguments = len(placeholders) - len(captures)
    declared = len(signature.input_arg)
    if declared != len(placeholders) or num_arguments < 0:
        raise LoweringError(
            f"A function's inputs must be its arguments and captured values. Trace it again. "
            f"Received: {signature.name!r} with {declared} declared inputs, "
            f"{len(placeholders)} placeholders and {len(captures)} captures"
        )
    arguments = [_argument(placeholder) for placeholder in placeholders[:num_arguments]]
    names = {id(v.handle): v.name.removesuffix(":0") for v in concrete.graph.variables}
    pairs = zip(captures, placeholders[num_arguments:], strict=True)
    return (*arguments, *(_captured(*pair, names) for pair in pairs))


def _argument(placeholder) -> FunctionInput:
    name = placeholder.op.name
    if placeholder.dtype == tf.variant:
        raise LoweringError(f"{_NO_DATASET} Received: the argument {name!r} of type variant")
    if placeholder.dtype in (tf.resource, tf.string):
        raise LoweringError(
            "An argument of a function for XLA must be a tensor of numbers; let the function "
            f"capture variables instead. Received: {name!r} of type {placeholder.dtype.name}"
        )
    if not placeholder.shape.is_fully_defined():
        raise LoweringError(
            "An argument of a function for XLA must have a fully defined shape; trace it with a "
            f"`tf.TensorSpec` that has one. Received: {name!r} of shape {placeholder.shape}"
        )
    return FunctionInput(_tensor_spec(placeholder.shape, placeholder.dtype), "argument", name)


def _captured(capture, placeholder, names: Mapping[int, str]) -> FunctionInput:
    name = placeholder.op.name
    if not tf.is_tensor(capture):
        raise LoweringError(
            f"A captured value must be a tensor. Received: {capture!r} for {name!r}"
        )
    if capture.dtype == tf.variant:
        raise LoweringError(f"{_NO_DATASET} Received: the captured {name!r} of type variant")
    same_shape = placeholder.shape.is_compatible_with(capture.shape)
    if capture.dtype != placeholder.dtype or not same_shape:
        raise LoweringError(
            f"A captured value must be of the type that the function was traced with. Received: "
            f"{capture.dtype.name} {capture.shape} for {name!r} of type "
            f"{placeholder.dtype.name} {placeholder.shape}"
        )
    if capture.dtype != tf.resource:
        return FunctionInput(_tensor_spec(capture.shape, capture.dtype), "capture", name)
    if contents_of(capture) is None and contents_of(placeholder) is None:
        return FunctionInput(TensorSpec((), "resource"), "table", name)
    # A variable of a session's graph, as those that optimizers of TensorFlow 1 keep, has its
    # own name on its handle. The name of the placeholder has the scopes within the function
    # before it.
    known = name if getattr(capture, "graph", None) is None else capture.op.name
    return FunctionInput(
        _variable_spec(capture, placeholder), "variable", names.get(id(capture), known)
    )


def _variable_spec(capture, placeholder) -> TensorSpec:
    """Returns shape and dtype behind a handle, which must still be those of the trace."""
    found = [_handle_spec(tensor) for tensor in (capture, placeholder)]
    if found[0] is None or found[0] != found[1]:
        raise LoweringError(
            f"{_NO_VARIABLE} Received: {found[0]} for {placeholder.op.name!r} of {found[1]}"
        )
    return found[0]


def _handle_spec(handle) -> TensorSpec | None:
    contents = contents_of(handle)
    if contents is None or len(contents) != 1:
        return None
    [(shape, dtype)] = contents
    return _tensor_spec(shape, dtype) if shape.is_fully_defined() else None


def _tensor_spec(shape, dtype) -> TensorSpec:
    return TensorSpec(tuple(shape.as_list()), dtype.name)
