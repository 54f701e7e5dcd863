"""Lists the supported operations in the form in which PopART's scripts ask for them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import starmap

import onnx.defs

from ipu_keras.popart.model.graph import AI_ONNX, AI_ONNX_ML
from ipu_keras.popart.operations.operation import Operation
from ipu_keras.popart.operations.table import OPERATIONS
from ipu_keras.popart.options.enumerations import DataType

__all__ = [
    "OpDefinition",
    "OperatorIdentifier",
    "getSupportedOperations",
    "getSupportedOperationsDefinition",
    "getUnsupportedOperations",
]

# The opsets at which PopART 2.1 ends, by domain.
_LAST = {AI_ONNX: 11, AI_ONNX_ML: 1}

# ONNX's schema names for the data types that devices have, and for those that are narrowed to them.
_TYPES = {
    "tensor(float)": DataType.FLOAT,
    "tensor(float16)": DataType.FLOAT16,
    "tensor(double)": DataType.DOUBLE,
    "tensor(int8)": DataType.INT8,
    "tensor(uint8)": DataType.UINT8,
    "tensor(int32)": DataType.INT32,
    "tensor(uint32)": DataType.UINT32,
    "tensor(int64)": DataType.INT64,
    "tensor(uint64)": DataType.UINT64,
    "tensor(bool)": DataType.BOOL,
}


@dataclass(frozen=True, order=True)
class OperatorIdentifier:
    """Identifies an operation by domain, type and version.

    Args:
        domain: The operator set, such as `"ai.onnx"`.
        type: The ONNX operator type, such as `"Add"`.
        version: The first version of the domain in which the operation has this meaning.
    """

    domain: str
    type: str
    version: int


def getSupportedOperations(includeInternal: bool = False) -> list[OperatorIdentifier]:
    """Returns the operations that models may have, each in all versions that differ.

    Args:
        includeInternal: Has no effect: no operation exists in programs only.

    Returns:
        A sorted list of identifiers.

    Example:

    >>> OperatorIdentifier("ai.graphcore", "Gelu", 1) in getSupportedOperations()
    True
    """
    return sorted(
        OperatorIdentifier(one.domain, one.kind, one.since)
        for versions in OPERATIONS.values()
        for one in versions
    )


def getUnsupportedOperations(
    opset: int = _LAST[AI_ONNX],
) -> list[OperatorIdentifier]:
    """Returns the operations of ONNX that models may not have.

    Args:
        opset: The version of ai.onnx whose operations are listed.

    Returns:
        A sorted list of identifiers.

    Example:

    >>> {each.domain for each in getUnsupportedOperations(9)} <= {"ai.onnx", "ai.onnx.ml"}
    True
    """
    return sorted(each for each in _of_onnx(opset) if (each.domain, each.type) not in OPERATIONS)


@dataclass(frozen=True)
class OpInput:
    """An input or output of an operation.

    Args:
        name: The name of the input or output in ONNX's schema.
        supportedTensors: The data types that it may have, among those that devices have.
        constant: Whether its value has to be known before anything runs.
    """

    name: str
    supportedTensors: tuple[DataType, ...]
    constant: bool = False


@dataclass(frozen=True)
class OpAttribute:
    """An attribute of an operation.

    Args:
        supportedValuesRegex: A regular expression that matches the values it may have.
    """

    supportedValuesRegex: str


@dataclass(frozen=True)
class OpDefinition:
    """The inputs, outputs and attributes of an operation.

    Args:
        inputs: The inputs in their order, of which the last may be variadic.
        outputs: The outputs in their order; empty for ai.graphcore, which has no schema.
        attributes: The attributes of the operation by name.
    """

    inputs: tuple[OpInput, ...]
    outputs: tuple[OpInput, ...]
    attributes: Mapping[str, OpAttribute]


def getSupportedOperationsDefinition(
    includeInternal: bool = False,
) -> dict[OperatorIdentifier, OpDefinition]:
    """Returns the definitions of the operations that models may have.

    Args:
        includeInternal: Has no effect: no operation exists in programs only.

    Returns:
        A dictionary from identifiers to definitions.

    Example:

    >>> found = getSupportedOperationsDefinition()[OperatorIdentifier("ai.onnx", "Reshape", 5)]
    >>> [(each.name, each.constant) for each in found.inputs]
    [('data', False), ('shape', True)]
    """
    return {
        OperatorIdentifier(one.domain, one.kind, one.since): _definition(one)
        for versions in OPERATIONS.values()
        for one in versions
    }


def _definition(one: Operation) -> OpDefinition:
    names = [parameter.name for parameter in one.inputs]
    constant = [name in one.static for name in names]
    types: list[Iterable[str]] = [_TYPES] * len(names)
    outputs: tuple[OpInput, ...] = ()
    domain = "" if one.domain == AI_ONNX else one.domain
    if onnx.defs.has(one.kind, one.since, domain):
        schema = onnx.defs.get_schema(one.kind, one.since, domain)
        names = [parameter.name for parameter in schema.inputs]
        types = [parameter.types for parameter in schema.inputs]
        outputs = tuple(OpInput(each.name, _tensors(each.types)) for each in schema.outputs)
    constant += [False] * (len(names) - len(constant))
    inputs = zip(names, map(_tensors, types), constant, strict=False)
    return OpDefinition(
        tuple(starmap(OpInput, inputs)),
        outputs,
        {name: OpAttribute(".*") for name in one.attributes},
    )


def _tensors(types: Iterable[str]) -> tuple[DataType, ...]:
    """Returns the data types of devices among those that a schema names."""
    return tuple(each for name, each in _TYPES.items() if name in types)


def _of_onnx(opset: int) -> Iterator[OperatorIdentifier]:
    kinds = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    for domain, last in {**_LAST, AI_ONNX: opset}.items():
        named = "" if domain == AI_ONNX else domain
        for kind in kinds:
            if onnx.defs.has(kind, last, named):
                schema = onnx.defs.get_schema(kind, last, named)
                if not schema.deprecated:
                    yield OperatorIdentifier(domain, kind, schema.since_version)
