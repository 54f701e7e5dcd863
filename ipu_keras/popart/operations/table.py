"""Finds the operation and the attribute defaults that a node means, by domain, kind and version."""

import functools
from collections.abc import Iterable, Mapping
from types import MappingProxyType, ModuleType

import onnx.defs

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.graph import AI_ONNX, OnnxModel
from ipu_keras.popart.operations import (
    activations,
    arithmetic,
    blocks,
    casts,
    comparisons,
    constants,
    control_flow,
    convolutions,
    elementary_functions,
    expansion,
    graphcore_effects,
    graphcore_elementwise,
    graphcore_layers,
    graphcore_tensors,
    grids,
    indexing,
    losses,
    normalization,
    pooling,
    products,
    quantization,
    random,
    recurrent,
    reductions,
    regions,
    resizing,
    sequences,
    shapes,
    strings,
)
from ipu_keras.popart.operations.newer_versions import LAST_OF_POPART, UNCHANGED, what_instead
from ipu_keras.popart.operations.operation import Operation


def _collected(modules: Iterable[object]) -> Mapping[tuple[str, str], tuple[Operation, ...]]:
    found: dict[tuple[str, str], list[Operation]] = {}
    for family in modules:
        for each in vars(family).values() if isinstance(family, ModuleType) else ():
            if isinstance(each, Operation):
                found.setdefault((each.domain, each.kind), []).append(each)
    return MappingProxyType(
        {key: tuple(sorted(each, key=lambda one: one.since)) for key, each in found.items()}
    )


# By domain and kind, with the newest version last: those of all families that are imported above.
OPERATIONS = _collected(tuple(globals().values()))


def operation_of(domain: str, kind: str, version: int) -> Operation:
    """Returns the operation that a node means under its model's opset `version` of `domain`."""
    # A model's opset picks the newest definition that is not newer than the opset, as in ONNX.
    versions = OPERATIONS.get((domain, kind), ())
    for each in reversed(versions):
        if each.since <= version:
            _check_is_known(each, version)
            return each
    if versions:
        raise popart_exception(
            f"No operation {kind!r} of the domain {domain!r} in version {version}: it exists "
            f"since version {versions[0].since}. Received: an opset of version {version}"
        )
    raise popart_exception(
        f"Unknown operation {kind!r} of the domain {domain!r}. It is none of those that "
        f"docs/popart.md lists. {what_instead(domain, kind)}".rstrip()
    )


def known_initialisers(model: OnnxModel) -> frozenset[str]:
    """Returns those that operations only take where they need values while tracing.

    Such as the scales of a `Resize`: they are no weights, though they are floating.
    """
    known: set[str] = set()
    others: set[str] = set()
    for node in model.graph.all_nodes():
        operation = operation_of(node.domain, node.kind, model.opsets.get(node.domain, 1))
        parameters = operation.input_names(len(node.inputs))
        for name, parameter in zip(node.inputs, parameters, strict=False):
            (known if parameter in operation.static else others).add(name)
    return frozenset(model.graph.initialisers) & known - others


def draws(model: OnnxModel) -> bool:
    """Whether any operation of a model, or of a graph within it, may draw random numbers."""
    return any(
        operation_of(node.domain, node.kind, model.opsets.get(node.domain, 1)).is_random
        for node in model.graph.all_nodes()
    )


def _check_is_known(operation: Operation, version: int) -> None:
    """Refuses a version of an operation whose change of meaning nobody has read yet."""
    # A new version may look like the old one and compute something else, so computing it as the
    # last known version could be silently wrong.
    if operation.domain != AI_ONNX or version <= LAST_OF_POPART:
        return
    changed = _version_of_schema(operation.kind, version)
    known = (operation.since, *UNCHANGED.get(operation.kind, ()))
    if changed > LAST_OF_POPART and changed not in known:
        raise popart_exception(
            f"{operation.kind!r} of the domain {AI_ONNX!r} became another operation in version "
            f"{changed}, which is not known. Received: an opset of version {version}. Export the "
            f"model for opset {changed - 1}, such as with torch.onnx.export(..., "
            f"opset_version={changed - 1})."
        )


# Called for known operations only: names that a file makes up do not fill the cache.
@functools.cache
def _version_of_schema(kind: str, version: int) -> int:
    has_schema = onnx.defs.has(kind, version, "")
    return onnx.defs.get_schema(kind, version).since_version if has_schema else 0


@functools.cache
def defaults_of(operation: Operation, version: int) -> Mapping[str, object]:
    """Returns attribute defaults from ONNX's schemas; empty for domains that ONNX does not know.

    The defaults of ai.graphcore are those of the functions' parameters.
    """
    domain = "" if operation.domain == AI_ONNX else operation.domain
    if not onnx.defs.has(operation.kind, version, domain):
        return {}
    schema = onnx.defs.get_schema(operation.kind, version, domain)
    return MappingProxyType(
        {
            name: _default(attribute.default_value)
            for name, attribute in schema.attributes.items()
            if attribute.default_value.name
        }
    )


def _default(attribute: onnx.AttributeProto) -> object:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, list):
        return [_text(one) for one in value]
    return _text(value)


def _text(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value
