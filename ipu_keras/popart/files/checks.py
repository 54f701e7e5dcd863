"""Checks a protobuf message before it is taken for a model.

A file may come from anybody and contain anything. ONNX's own checker is no boundary: it accepts
unknown domains and versions, never looks at outputs, and takes longer than loading the model.
"""

import functools
import graphlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx.defs
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.messages import all_graphs, names_taken
from ipu_keras.popart.model.data_types import dtype_of
from ipu_keras.popart.model.graph import AI_GRAPHCORE, AI_ONNX, AI_ONNX_ML
from ipu_keras.popart.model.tensors import check_dimensions, declared_sizes
from ipu_keras.popart.operations.newer_versions import LAST_OF_POPART
from ipu_keras.popart.operations.table import operation_of

_ANY_NUMBER = 2**31 - 1

# The first and last opset of each domain. After 11, the last of PopART, each operation decides
# (`operations/newer_versions.py`); opsets that the installed ONNX does not describe are refused.
OPSETS: Mapping[str, tuple[int, int]] = {
    AI_ONNX: (6, onnx.defs.onnx_opset_version()),
    # No operation of this domain is known, but converters import it whether they need it or not.
    AI_ONNX_ML: (1, _ANY_NUMBER),
    AI_GRAPHCORE: (1, 1),
}

# What to do about the private domains of other software.
_OTHER_DOMAINS = {
    "com.microsoft": "Its operations are those that onnxruntime's optimisers write: give the model "
    "as it was before they ran.",
}

# PopART's builder keeps how a node runs in attributes with this prefix, which no schema has.
_ANNOTATION = "__"

# By type of an attribute: the field that has its value, and whether that may be absent, as protobuf
# does not distinguish an empty list from none.
_VALUES = {
    AttributeProto.FLOAT: ("f", False),
    AttributeProto.INT: ("i", False),
    AttributeProto.STRING: ("s", False),
    AttributeProto.TENSOR: ("t", False),
    AttributeProto.GRAPH: ("g", False),
    AttributeProto.SPARSE_TENSOR: ("sparse_tensor", False),
    AttributeProto.FLOATS: ("floats", True),
    AttributeProto.INTS: ("ints", True),
    AttributeProto.STRINGS: ("strings", True),
    AttributeProto.TENSORS: ("tensors", True),
    AttributeProto.GRAPHS: ("graphs", True),
}
_NEWER = {
    AttributeProto.SPARSE_TENSORS: "sparse tensors",
    AttributeProto.TYPE_PROTO: "a type",
    AttributeProto.TYPE_PROTOS: "types",
}
_NO_VALUES = frozenset({"name", "doc_string", "type"})


def check_model(proto: ModelProto) -> None:
    """Raises a `popart_exception` that says why a message is no model that can be run."""
    # Any field of a message may be absent, so bytes of another file may decode as a model. Every
    # real one has these two.
    if not proto.HasField("graph"):
        raise popart_exception("It has no graph, so it is no ONNX model or only a part of one.")
    if not proto.HasField("ir_version"):
        raise popart_exception("It has no `ir_version`, so it is no ONNX model or only a part.")
    if not 3 <= proto.ir_version <= onnx.IR_VERSION:
        raise popart_exception(
            f"Its `ir_version` is not supported. Expected: 3 to {onnx.IR_VERSION}. Received: "
            f"{proto.ir_version}"
        )
    for name, what, fix in (
        ("functions", "functions", "onnx.inliner.inline_local_functions(model) puts them into it"),
        ("training_info", "graphs for training", "Export the model without them"),
    ):
        if len(getattr(proto, name)):
            raise popart_exception(
                f"It has {what} of its own (`{name}`), and what runs here has all operations in "
                f"its graph. {fix}."
            )
    opsets = _opsets(proto)
    check_graph(proto.graph, opsets)
    _check_operations(proto.graph, opsets)


def _check_operations(proto: GraphProto, opsets: Mapping[str, int]) -> None:
    """Refuses nodes of unknown operations, and names all of them in one error."""
    unknown: dict[str, tuple[NodeProto, str]] = {}
    for graph in all_graphs(proto):
        for node in graph.node:
            domain = node.domain or AI_ONNX
            try:
                operation_of(domain, node.op_type, opsets[domain])
            except popart_exception as error:
                unknown.setdefault(node.op_type, (node, str(error)))
    if unknown:
        (first, reason), *others = unknown.values()
        names = ", ".join(node.op_type for node, _ in others)
        end = f" Not known either: {names}." if others else ""
        raise popart_exception(f"{_title(first)}: {reason}{end}")


def check_graph(proto: GraphProto, opsets: Mapping[str, int]) -> None:
    """Raises a `popart_exception` that says why the message of a main graph cannot be computed."""
    _check_graph(proto, opsets, None)


@dataclass
class _TensorsInReach:
    """The tensors that the nodes of a graph may take, with those of the graphs around it.

    `names` grows while the nodes are checked in their order.
    """

    graph: GraphProto
    around: "_TensorsInReach | None"
    names: set[str] = field(default_factory=set)

    def outwards(self) -> "Iterator[_TensorsInReach]":
        """Yields this scope, then those around it."""
        scope: _TensorsInReach | None = self
        while scope is not None:
            yield scope
            scope = scope.around

    def __contains__(self, name: str) -> bool:
        return any(name in scope.names for scope in self.outwards())


def _opsets(proto: ModelProto) -> dict[str, int]:
    opsets: dict[str, int] = {}
    for each in proto.opset_import:
        domain = _text(each.domain, "The domain of an opset") or AI_ONNX
        if domain in opsets:
            raise popart_exception(f"It imports two opsets of the domain {domain!r}.")
        opsets[domain] = each.version
        if domain in OPSETS:
            _check_version(domain, each.version)
    if not opsets:
        raise popart_exception(
            "It imports no opset, so nobody knows what its operations mean, or it is only a part "
            "of a model. Expected: `opset_import`, as onnx.helper.make_model writes it."
        )
    return opsets


def _check_version(domain: str, version: int) -> None:
    first, last = OPSETS[domain]
    if first <= version <= last:
        return
    fix = ""
    if domain == AI_ONNX and version > last:
        fix = (
            f" The installed onnx {onnx.__version__} describes no newer one: upgrade it, or export "
            f"the model for opset {last} or an older one."
        )
    elif domain == AI_ONNX:
        fix = (
            f" Export the model again, such as with torch.onnx.export(..., opset_version="
            f"{LAST_OF_POPART}); onnx.version_converter.convert_version(model, {LAST_OF_POPART}) "
            "converts some that are so old."
        )
    raise popart_exception(
        f"It needs opset {version} of {domain}, and what is known here is "
        f"{first if first == last else f'{first} to {last}'}.{fix}"
    )


def _check_graph(
    proto: GraphProto, opsets: Mapping[str, int], around: _TensorsInReach | None
) -> None:
    _text(proto.name, "The name of a graph")
    if len(proto.sparse_initializer):
        raise popart_exception("It has sparse initialisers. Expected: dense ones only.")
    scope = _TensorsInReach(proto, around)
    for each in proto.input:
        _add_given(scope, each.name, "inputs")
        _check_type(each)
    initialisers: set[str] = set()
    for tensor in proto.initializer:
        name = _text(tensor.name, "The name of an initialiser")
        if not name or name in initialisers:
            raise popart_exception(
                f"There are two initialisers {name!r}." if name else "An initialiser has no name."
            )
        initialisers.add(name)
    # Before version 4 of its IR, ONNX wants each initialiser among the inputs as well, so these
    # names may be there already.
    scope.names |= initialisers
    for node in proto.node:
        try:
            _check_node(node, opsets, scope)
        except popart_exception as error:
            raise popart_exception(f"{_title(node)}: {error}") from error
    outputs: set[str] = set()
    for each in proto.output:
        name = _text(each.name, "The name of an output")
        if name in outputs and around is None:
            # Only in the main graph: bodies of loops may carry or stack one tensor several times.
            raise popart_exception(f"{name!r} is twice among the outputs.")
        outputs.add(name)
        if name not in scope:
            raise popart_exception(
                f"The output {name!r} is no input, no initialiser, and no result of a node: nobody "
                "makes it."
            )


def _add_given(scope: _TensorsInReach, given: Any, what: str) -> None:
    name = _text(given, f"A name among the {what}")
    if not name or name in scope.names:
        raise popart_exception(
            f"{name!r} is twice among the {what}." if name else f"One of the {what} has no name."
        )
    scope.names.add(name)


def _check_type(proto: onnx.ValueInfoProto) -> None:
    what = f"The input {proto.name!r}"
    kind = proto.type.tensor_type
    if proto.type.HasField("sparse_tensor_type"):
        raise popart_exception(f"{what} is a sparse tensor. Expected: a dense one.")
    if not proto.type.HasField("tensor_type"):
        return
    if kind.elem_type:
        try:
            dtype_of(kind.elem_type)
        except popart_exception as error:
            raise popart_exception(f"{what} has an unknown data type: {error}") from error
    check_dimensions(declared_sizes(kind.shape), what)


def _check_node(node: NodeProto, opsets: Mapping[str, int], scope: _TensorsInReach) -> None:
    kind = _text(node.op_type, "The kind of a node")
    domain = _text(node.domain, "The domain of a node") or AI_ONNX
    _text(node.name, "The name of a node")
    if domain not in OPSETS:
        fix = _OTHER_DOMAINS.get(domain, "")
        raise popart_exception(
            f"Unknown domain {domain!r}. The domains are: {', '.join(OPSETS)}. {fix}".rstrip()
        )
    if domain not in opsets:
        raise popart_exception(
            f"Its domain is {domain!r}, of which the model imports no opset. Add it to "
            "`opset_import`."
        )
    signature = _signature(kind, domain, opsets[domain])
    _check_numbers(node, signature)
    for name in node.input:
        if _text(name, "The name of an input") and name not in scope:
            raise popart_exception(_why_missing(name, node, scope))
    _check_attributes(node.attribute, signature, opsets, scope)
    for name in node.output:
        if not _text(name, "The name of an output"):
            continue
        if name in scope:
            raise popart_exception(
                f"It makes {name!r}, which exists already. Expected: a name of its own for each "
                "result."
            )
        scope.names.add(name)


@dataclass(frozen=True)
class _Signature:
    """The types of an operation's attributes, and its least and largest inputs and outputs.

    `needed` are the positions of inputs that cannot be left out.
    """

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    needed: tuple[int, ...] = ()
    attributes: Mapping[str, int] = field(default_factory=dict)


def _signature(kind: str, domain: str, version: int) -> _Signature:
    in_onnx = "" if domain == AI_ONNX else domain
    if onnx.defs.has(kind, version, in_onnx):
        return _signature_in_onnx(kind, in_onnx, version)
    operation = operation_of(domain, kind, version)
    # ONNX has no schemas of ai.graphcore. Only operations with effects may have no results.
    return _Signature((0, _ANY_NUMBER), (0 if operation.has_effects else 1, _ANY_NUMBER))


# Called for known operations only: names that a file makes up do not fill the cache.
@functools.cache
def _signature_in_onnx(kind: str, domain: str, version: int) -> _Signature:
    schema = onnx.defs.get_schema(kind, version, domain)
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    return _Signature(
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        tuple(position for position, one in enumerate(schema.inputs) if one.option == single),
        {name: int(each.type.value) for name, each in schema.attributes.items()},
    )


def _check_numbers(node: NodeProto, signature: _Signature) -> None:
    for given, (least, most), what in (
        (len(node.input), signature.inputs, "inputs"),
        (len(node.output), signature.outputs, "outputs"),
    ):
        if not least <= given <= most:
            bound = "any number" if most == _ANY_NUMBER else most
            raise popart_exception(
                f"It has invalid number of {what} {given}. Must be between {least}..{bound}."
            )
    for position in signature.needed:
        if position < len(node.input) and not node.input[position]:
            raise popart_exception(f"Its input {position} is left out, which it needs.")


def _check_attributes(
    attributes: Iterable[AttributeProto],
    signature: _Signature,
    opsets: Mapping[str, int],
    scope: _TensorsInReach,
) -> None:
    seen: set[str] = set()
    for each in attributes:
        name = _text(each.name, "The name of an attribute")
        if name in seen or not name:
            raise popart_exception(
                f"It has two attributes {name!r}." if name else "It has an attribute of no name."
            )
        seen.add(name)
        _check_value(each)
        expected = signature.attributes.get(name, each.type)
        if each.type != expected and not name.startswith(_ANNOTATION):
            raise popart_exception(
                f"Its attribute {name!r} has the wrong type. Expected: {_type_name(expected)}. "
                f"Received: {_type_name(each.type)}"
            )
        for graph in [each.g] if each.type == AttributeProto.GRAPH else each.graphs:
            try:
                _check_graph(graph, opsets, scope)
            except popart_exception as error:
                raise popart_exception(f"In its graph {name!r}: {error}") from error


def _check_value(attribute: AttributeProto) -> None:
    """Refuses an attribute whose value is not in the field that its type says."""
    name = f"Its attribute {attribute.name!r}"
    newer = _NEWER.get(attribute.type)
    if attribute.HasField("ref_attr_name"):
        newer = "that of a function around it"
    if newer:
        raise popart_exception(f"{name} is {newer}, which PopART does not know.")
    if attribute.type not in _VALUES:
        raise popart_exception(
            f"{name} has no known type. Expected one of: "
            f"{', '.join(_type_name(each) for each in _VALUES)}."
        )
    wanted, may_be_empty = _VALUES[attribute.type]
    used = {each.name for each, _ in attribute.ListFields()} - _NO_VALUES
    if used != {wanted} and not (may_be_empty and not used):
        raise popart_exception(
            f"{name} is of type {_type_name(attribute.type)}, so its value is in `{wanted}`. "
            f"Received: {', '.join(f'`{each}`' for each in sorted(used)) or 'no value'}"
        )


def _type_name(number: int) -> str:
    return AttributeProto.AttributeType.Name(number)


def _text(value: Any, what: str) -> Any:
    """Returns a string of a message; protobuf gives bytes where it is not valid UTF-8."""
    if isinstance(value, bytes):
        raise popart_exception(f"{what} is no text in UTF-8. Received: {value[:40]!r}")
    return value


def _title(node: NodeProto) -> str:
    called = node.name or next((name for name in node.output if name), "")
    return f"In {node.op_type} {called!r}"


def _why_missing(name: str, node: NodeProto, scope: _TensorsInReach) -> str:
    """Says why a tensor that a node takes does not exist: a cycle, the order, or no maker."""
    for around in scope.outwards():
        nodes = around.graph.node
        maker = next((each for each in nodes if name in each.output), None)
        if maker is None:
            continue
        cycle = _cycle(nodes)
        if cycle:
            return (
                f"It takes {name!r}, and the nodes form a cycle: {' -> '.join(cycle)}. Expected: "
                "a graph without cycles; loops are made with the operation Loop."
            )
        return (
            f"It takes {name!r}, which {_title(maker)[3:]} makes only after it: the nodes are not "
            "sorted. Expected: each node after those whose results it takes."
        )
    return (
        f"It takes {name!r}, which is no input, no initialiser, and no result of a node: nobody "
        "makes it."
    )


def _cycle(nodes: Sequence[NodeProto]) -> list[str]:
    """Returns the results along a cycle of nodes; empty if there is none."""
    makers = {name: position for position, node in enumerate(nodes) for name in node.output if name}
    taken = {
        position: [makers[name] for name in names_taken(node) if name in makers]
        for position, node in enumerate(nodes)
    }
    try:
        graphlib.TopologicalSorter(taken).prepare()
    except graphlib.CycleError as error:
        around = error.args[1]
        shown = around if len(around) <= 8 else [*around[:7], around[-1]]
        return [next(name for name in nodes[each].output if name) for each in shown]
    return []
