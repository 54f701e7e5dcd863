"""Makes the builder methods, which add one operation each, from descriptions of the operations.

Operations of ONNX are described by ONNX's own schemas, those of ai.graphcore by
`graphcore_methods.py`. Signatures, checks and docstrings all follow from a description.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from keyword import iskeyword
from types import MappingProxyType
from typing import Any

import onnx
from onnx import AttributeProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.tensor_types import element_type
from ipu_keras.popart.model.graph import AI_ONNX

REQUIRED = Parameter.empty

ARGS = "args"
NUM_OUTPUTS = "num_outputs"
DEBUG_CONTEXT = "debugContext"
# The name of the same argument in older releases.
DEBUG_PREFIX = "debugPrefix"

# The number by which ONNX's schemas say that there is no limit.
ANY_NUMBER = 2**31 - 1

# Methods have the lower-case name of their operation, but for those that Python reserves, and Xor,
# which PopART renames along with these.
_RENAMED = {
    "And": "logical_and",
    "If": "logical_if",
    "Not": "logical_not",
    "Or": "logical_or",
    "Xor": "logical_xor",
}

# Attributes of ONNX that PopART's builder does not take: explicit `pads` replace `auto_pad`,
# `consumed_inputs` is a relic of ONNX's first versions, and constants must be dense.
_LEFT_OUT = ("auto_pad", "consumed_inputs", "sparse_value")

_TYPE_WORDS = {
    AttributeProto.INT: "Integer",
    AttributeProto.FLOAT: "Number",
    AttributeProto.STRING: "String",
    AttributeProto.INTS: "List of integers",
    AttributeProto.FLOATS: "List of numbers",
    AttributeProto.STRINGS: "List of strings",
    AttributeProto.TENSOR: "NumPy array",
    AttributeProto.GRAPH: "Builder of the graph",
}


@dataclass(frozen=True)
class Attribute:
    """An attribute of an operation, as a builder method takes it.

    Args:
        default: The default of the parameter, or `REQUIRED`. `None`, and an empty list or string
            that is the default, are not written into models.
        convert: Converts what users give to what is written; `None` if both are the same.
        words: Says in docstrings what users give; if empty, the type does.
    """

    name: str
    kind: int
    default: Any = REQUIRED
    convert: Callable[[Any], Any] | None = None
    words: str = ""

    @property
    def called(self) -> str:
        """The name of the parameter, with an underscore behind words that Python reserves."""
        return f"{self.name}_" if iskeyword(self.name) else self.name

    def is_left_out(self, value: Any) -> bool:
        """Whether a value need not be written, as a model without the attribute says the same."""
        has_empty_default = isinstance(self.default, list | str) and len(self.default) == 0
        # Not by `len`, which fails for arrays of rank 0.
        is_empty = isinstance(value, list | tuple | str) and len(value) == 0
        return value is None or (has_empty_default and is_empty)


@dataclass(frozen=True)
class Method:
    """Describes a builder method that adds one operation.

    Args:
        kind: The ONNX operator type, such as `"MatMul"`.
        since: The first version of the domain with this form of the operation.
        inputs: The least and the greatest number of inputs; `ANY_NUMBER` means no limit.
        outputs: The least and the greatest number of results; if they differ, users choose.
        last: The parameters that come behind `debugContext`.
        debug: The name of the parameter `debugContext` in this method.
        has_prefix: Whether the method takes `debugPrefix` as well.
        needed: Parameters without a default that come behind one with a default.
        returns_list: Whether the method returns a list of ids, and not a single id.
    """

    name: str
    kind: str
    domain: str
    since: int
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    attributes: tuple[Attribute, ...]
    inputs_default: Any = REQUIRED
    input_names: tuple[str, ...] = ()
    last: tuple[Attribute, ...] = ()
    debug: str = DEBUG_CONTEXT
    has_prefix: bool = False
    needed: tuple[str, ...] = ()
    returns_list: bool = False

    @property
    def chooses_outputs(self) -> bool:
        """Whether users say how many results there are."""
        return self.outputs[0] != self.outputs[1]

    @property
    def signature(self) -> inspect.Signature:
        """The signature of the method, including `self`."""
        kind = Parameter.POSITIONAL_OR_KEYWORD
        parameters = [Parameter("self", Parameter.POSITIONAL_ONLY)]
        if self.inputs[1]:
            parameters.append(Parameter(ARGS, kind, default=self.inputs_default))
        if self.chooses_outputs:
            parameters.append(Parameter(NUM_OUTPUTS, kind))
        parameters += [
            Parameter(each.called, kind, default=each.default) for each in self.attributes
        ]
        parameters.append(Parameter(self.debug, kind, default=""))
        parameters += [Parameter(each.called, kind, default=each.default) for each in self.last]
        if self.has_prefix:
            parameters.append(Parameter(DEBUG_PREFIX, Parameter.KEYWORD_ONLY, default=""))
        return inspect.Signature(parameters)

    @property
    def documentation(self) -> str:
        """The docstring of the method."""
        entries = []
        if self.inputs[1]:
            names = ", ".join(self.input_names) or "any number of tensors"
            entries.append(f"{ARGS}: List of ids of tensors: {names}.")
        if self.chooses_outputs:
            entries.append(f"{NUM_OUTPUTS}: Number of results, {_range_words(self.outputs)}.")
        entries += [_entry(each) for each in self.attributes]
        entries.append(f"{self.debug}: Name of the operation. Defaults to `''`.")
        entries += [_entry(each) for each in self.last]
        if self.has_prefix:
            entries.append(f"{DEBUG_PREFIX}: Another name of `{self.debug}`.")
        lines = "\n".join(f"    {entry}" for entry in entries)
        if not self.outputs[1]:
            returned = "None."
        else:
            returned = "Ids of the results." if self.returns_list else "The id of the result."
        return (
            f"Adds `{self.kind}` of {self.domain}, as it is since version {self.since}, to the "
            f"model.\n\nArgs:\n{lines}\n\nReturns:\n    {returned}\n\nRaises:\n"
            "    popart_exception: An argument is wrong, or the inputs do not fit the operation."
        )


def _entry(attribute: Attribute) -> str:
    words = attribute.words or _TYPE_WORDS[attribute.kind]
    default = attribute.default
    end = "" if default is REQUIRED else f" Defaults to `{default!r}`."
    return f"{attribute.called}: {words}.{end}"


def _range_words(limits: tuple[int, int]) -> str:
    least, most = limits
    return f"{least}..{'any number' if most == ANY_NUMBER else most}"


def check_number(kind: str, what: str, number: int, limits: tuple[int, int]) -> None:
    """Raises a `popart_exception` if an operation has too few or too many inputs or outputs."""
    least, most = limits
    if not least <= number <= most:
        raise popart_exception(
            f"{kind} has invalid number of {what} {number}. Must be between {_range_words(limits)}"
        )


def bound(
    signature: inspect.Signature, args: tuple[Any, ...], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the arguments of a call by name, with defaults."""
    # `l1loss(**{"lambda": 0.1})` is how scripts name an attribute that is a word of Python.
    named = {f"{name}_" if iskeyword(name) else name: value for name, value in given.items()}
    result = signature.bind(*args, **named)
    result.apply_defaults()
    return dict(result.arguments)


def function_of(method: Method) -> Callable[..., Any]:
    """Makes a builder method, which hands its arguments to `add_operation` of its object."""
    signature = method.signature

    def function(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self.add_operation(method, bound(signature, (self, *args), kwargs))

    function.__name__ = method.name
    function.__doc__ = method.documentation
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def with_methods(methods: Iterable[Method]) -> Callable[[type], type]:
    """Makes a decorator that gives a class builder methods, but for those it defines itself."""

    def decorated(cls: type) -> type:
        for method in methods:
            if method.name not in vars(cls):
                function = function_of(method)
                function.__qualname__ = f"{cls.__qualname__}.{method.name}"
                function.__module__ = cls.__module__
                setattr(cls, method.name, function)
        return cls

    return decorated


@functools.cache
def onnx_methods(version: int) -> Mapping[str, Method]:
    """Returns the methods of an opset of ai.onnx by name."""
    kinds = {each.name for each in onnx.defs.get_all_schemas_with_history() if not each.domain}
    schemas = [
        onnx.defs.get_schema(kind, version) for kind in kinds if onnx.defs.has(kind, version)
    ]
    methods = [_onnx_method(schema) for schema in sorted(schemas, key=lambda each: each.name)]
    return MappingProxyType({each.name: each for each in methods})


def _onnx_method(schema: onnx.defs.OpSchema) -> Method:
    attributes = sorted(
        (_attribute(schema.name, each) for each in schema.attributes.values() if _is_taken(each)),
        key=lambda each: (each.default is not REQUIRED, each.name),
    )
    if schema.name == "Constant" and "sparse_value" in schema.attributes:
        is_sparse = Attribute(
            "is_value_sparse", AttributeProto.INT, False, _not_sparse, "Must be `False`"
        )
        attributes.append(is_sparse)
    outputs = (schema.min_output, schema.max_output)
    return Method(
        name=_RENAMED.get(schema.name, schema.name.lower()),
        kind=schema.name,
        domain=AI_ONNX,
        since=schema.since_version,
        inputs=(schema.min_input, schema.max_input),
        outputs=outputs,
        attributes=tuple(attributes),
        input_names=tuple(_input_words(each) for each in schema.inputs),
        returns_list=outputs != (1, 1),
    )


def _is_taken(attribute: onnx.defs.OpSchema.Attribute) -> bool:
    return attribute.name not in _LEFT_OUT


def _attribute(kind: str, attribute: onnx.defs.OpSchema.Attribute) -> Attribute:
    type_ = int(attribute.type)
    if (kind, attribute.name) == ("Cast", "to"):
        words = "Name of a dtype, such as `'FLOAT16'`, or ONNX's number of it"
        return Attribute("to", type_, REQUIRED, _element_type, words)
    return Attribute(attribute.name, type_, _default(kind, attribute))


def _default(kind: str, attribute: onnx.defs.OpSchema.Attribute) -> Any:
    if attribute.required or int(attribute.type) == AttributeProto.TENSOR:
        return REQUIRED
    if int(attribute.type) in (AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.STRINGS):
        # Reductions distinguish an empty list of axes from none, which reduces all axes.
        return None if kind.startswith("Reduce") else []
    if attribute.default_value.name:
        value = onnx.helper.get_attribute_value(attribute.default_value)
        return value.decode() if isinstance(value, bytes) else value
    return "" if int(attribute.type) == AttributeProto.STRING else None


def _input_words(parameter: onnx.defs.OpSchema.FormalParameter) -> str:
    options = onnx.defs.OpSchema.FormalParameterOption
    if parameter.option == options.Optional:
        return f"{parameter.name} (or '')"
    return f"{parameter.name}..." if parameter.option == options.Variadic else parameter.name


def _element_type(value: Any) -> Any:
    return element_type(value) if isinstance(value, str) else value


def _not_sparse(value: Any) -> None:
    if value:
        raise popart_exception(
            "Sparse constants are not supported: give a dense `value`, and leave out "
            f"`is_value_sparse`. Received: is_value_sparse={value!r}"
        )
