"""Stubs of classes whose attributes are made from tables, which type checkers do not run.

Classes of the package inherit from what is printed here, for checkers alone.
"""

import ast
import enum
import inspect
import textwrap
import typing
from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter
from types import MappingProxyType
from typing import Any

from onnx import AttributeProto

from ipu_keras.popart.builder import AiGraphcore, AiOnnx
from ipu_keras.popart.graphs.graphcore_methods import GRAPHCORE_METHODS
from ipu_keras.popart.graphs.methods import Attribute, Method, onnx_methods
from ipu_keras.popart.graphs.opsets import AiGraphcoreOpset1
from ipu_keras.settings.config_tree import AttributeMetadata
from ipu_keras.settings.ipu_options import OPTIONS

_CONFIG_IMPORTS = """\
from typing import Any

from ipu_keras.settings.config_tree import ConfigCategory, ConfigTree
from ipu_keras.settings.enumerations import (
{enumerations})
from ipu_keras.settings.pipeline_choices import SelectionOrder

"""

_BUILDER_IMPORTS = """\
from collections.abc import Sequence
from typing import Any, overload

from ipu_keras.popart.builder import Builder

"""

# The version that a builder has if nobody chooses one comes first: editors show it first.
_VERSIONS = (10, 11, 9, 8, 7, 6)

_LONGEST_LINE = 96

_TYPES: Mapping[int, Any] = MappingProxyType(
    {
        AttributeProto.FLOAT: float,
        AttributeProto.FLOATS: Sequence[float],
        AttributeProto.INT: int,
        AttributeProto.INTS: Sequence[int],
        AttributeProto.STRING: str,
        AttributeProto.STRINGS: Sequence[str],
    }
)


def config_options() -> str:
    """The options of `IPUConfig`, as a base class of it that declares them."""
    categories = [option.name for option in OPTIONS if option.is_category]
    # What a class names comes before it.
    classes = [_options_below(name) for name in sorted(categories, reverse=True)]
    names = sorted(
        {
            each.__name__
            for option in OPTIONS
            for each in (option.hint, *option.also_accepts)
            if isinstance(each, enum.EnumMeta) and each.__module__.endswith(".enumerations")
        }
    )
    enumerations = "".join(f"    {name},\n" for name in names)
    return _CONFIG_IMPORTS.format(enumerations=enumerations) + "\n".join(
        [*classes, _options_below("")]
    )


def builder_operations() -> str:
    """The operations of a builder's opsets, as base classes of them that declare them."""
    versions = [onnx_methods(version) for version in _VERSIONS]
    names = {name for methods in versions for name in methods} - set(vars(AiOnnx))
    onnx = [
        _operation([_method(methods[name]) for methods in versions if name in methods])
        for name in sorted(names)
    ]
    by_hand = _written_in(AiGraphcoreOpset1)
    graphcore = [
        _operation([_hand_written(name) if name in by_hand else _method(GRAPHCORE_METHODS[name])])
        for name in sorted({*GRAPHCORE_METHODS, *by_hand} - _written_in(AiGraphcore))
    ]
    return _BUILDER_IMPORTS + "\n".join(
        [
            "class AiOnnxOperations:\n" + "\n".join(onnx),
            "class AiGraphcoreOperations:\n" + "\n".join(graphcore),
        ]
    )


def _options_below(path: str) -> str:
    base = "ConfigCategory" if path else "ConfigTree"
    members = [
        _category(option) if option.is_category else _option(option)
        for option in OPTIONS
        if option.name.rpartition(".")[0] == path
    ]
    return f"class {_class_name(path)}({base}):\n" + "".join(members)


def _class_name(path: str) -> str:
    """
    >>> _class_name("io_tiles"), _class_name("")
    ('IoTilesOptions', 'ConfigOptions')
    """
    return "".join(part.capitalize() for part in path.replace(".", "_").split("_") or [""]) + (
        "Options" if path else "ConfigOptions"
    )


def _category(option: AttributeMetadata) -> str:
    name = option.name.rpartition(".")[2]
    header = f"@property\ndef {name}(self) -> {_class_name(option.name)}:\n"
    return textwrap.indent(header + _docstring(_wrapped(option.documentation)), "    ")


def _option(option: AttributeMetadata) -> str:
    name = option.name.rpartition(".")[2]
    kinds = " | ".join(_annotation(each) for each in (option.hint, *option.also_accepts))
    today = option.effect or f"No effect: {option.why_idle}"
    return textwrap.indent(f"{name}: {kinds}\n", "    ") + _docstring(
        f"{_wrapped(option.documentation)}\n\n{_wrapped(f'Today: {today}')}"
    )


def _annotation(kind: Any) -> str:
    """A type as stubs have it: `dict` and lists of older spelling too."""
    if typing.get_origin(kind) is typing.Union:
        return " | ".join(_annotation(each) for each in typing.get_args(kind))
    if kind is dict:
        return "dict[str, Any]"
    if (origin := typing.get_origin(kind)) is not None:
        inner = ", ".join(
            "..." if each is ... else _annotation(each) for each in typing.get_args(kind)
        )
        return f"{origin.__name__}[{inner}]"
    return kind.__name__


def _operation(forms: Sequence[str]) -> str:
    """A method, which has several forms if versions differ."""
    different: dict[str, str] = {}
    for form in forms:
        different.setdefault(form.partition('"""')[0], form)
    decorator = "@overload\n" if len(different) > 1 else ""
    return textwrap.indent("".join(decorator + form for form in different.values()), "    ")


def _method(method: Method) -> str:
    annotations = {
        each.called: _attribute_type(each) for each in (*method.attributes, *method.last)
    }
    annotations |= {"args": Sequence[str], "num_outputs": int}
    parameters = [
        each.replace(kind=each.kind, annotation=_optional(annotations.get(each.name, Any), each))
        for each in list(method.signature.parameters.values())[1:]
    ]
    returned = "list[str]" if method.returns_list else "str"
    return _definition(method.name, parameters, returned, _shown(method.documentation))


def _hand_written(name: str) -> str:
    function = getattr(AiGraphcoreOpset1, name)
    signature = inspect.signature(function)
    return _definition(
        name,
        list(signature.parameters.values())[1:],
        _spelled(signature.return_annotation),
        _shown(inspect.getdoc(function) or ""),
    )


def _shown(documentation: str) -> str:
    """The part that differs between methods; the others say the same of results and errors."""
    return documentation.partition("\n\nReturns:")[0]


def _written_in(kind: type) -> set[str]:
    """Names of methods that stand in the source of a class, where checkers see them."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def _attribute_type(attribute: Attribute) -> Any:
    return Any if attribute.convert is not None else _TYPES.get(attribute.kind, Any)


def _optional(annotation: Any, parameter: Parameter) -> Any:
    return annotation if parameter.default is not None or annotation is Any else annotation | None


def _definition(
    name: str, parameters: Iterable[Parameter], returned: str, documentation: str
) -> str:
    parts = ["self"]
    for each in parameters:
        if each.kind is Parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        parts.append(f"{each.name}: {_spelled(each.annotation)}{_default(each)}")
    line = f"def {name}({', '.join(parts)}) -> {returned}:\n"
    if len(line) > _LONGEST_LINE:
        arguments = "".join(f"    {part},\n" for part in parts)
        line = f"def {name}(\n{arguments}) -> {returned}:\n"
    return line + _docstring(documentation)


def _spelled(annotation: Any) -> str:
    return inspect.formatannotation(annotation).replace("collections.abc.", "")


def _default(parameter: Parameter) -> str:
    value = parameter.default
    if value is Parameter.empty:
        return ""
    is_literal = value is None or type(value) in (bool, int, float, str, list)
    return f" = {value!r}" if is_literal else " = ..."


def _docstring(text: str) -> str:
    quotes = '"""'
    end = "\n" if "\n" in text else ""
    return textwrap.indent(f"{quotes}{text}{end}{quotes}\n", "    ")


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 88, break_on_hyphens=False)
