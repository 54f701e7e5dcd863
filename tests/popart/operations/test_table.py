"""The table of operations, held against ONNX's own schemas."""

import inspect

import numpy as np
import onnx.defs
import pytest

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.graph import AI_ONNX, AI_ONNX_ML, Node, OnnxGraph, OnnxModel
from ipu_keras.popart.operations.operation import Operation, operation
from ipu_keras.popart.operations.table import (
    OPERATIONS,
    defaults_of,
    known_initialisers,
    operation_of,
)

# Of the domains whose operations ONNX describes, those of the SDK.
VERSIONS = {AI_ONNX: range(6, 12), AI_ONNX_ML: range(1, 2)}
FORMS = onnx.defs.OpSchema.FormalParameterOption

# Families that other branches have: this goes when they are here.
TO_COME = {"If", "Loop", "Scan"}


def schema_of(domain, kind, version):
    name = "" if domain == AI_ONNX else domain
    if not onnx.defs.has(kind, version, name):
        return None
    return onnx.defs.get_schema(kind, version, name)


def described():
    """Each version of each operation that ONNX describes: domain, kind, version, schema."""
    for domain, kind in OPERATIONS:
        for version in VERSIONS.get(domain, ()):
            schema = schema_of(domain, kind, version)
            # A schema holds until the next; that of one version is enough.
            if schema is not None and version in (schema.since_version, VERSIONS[domain][0]):
                yield domain, kind, version, schema


def inputs_of(one: Operation) -> list[str]:
    return [
        "variadic"
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL
        else "single"
        if parameter.default is inspect.Parameter.empty
        else "optional"
        for parameter in one.inputs
    ]


FORM_NAMES = {FORMS.Single: "single", FORMS.Optional: "optional", FORMS.Variadic: "variadic"}


def test_inputs_and_attributes_are_those_of_the_schema():
    for domain, kind, version, schema in described():
        case = f"{kind} of version {version}"
        one = operation_of(domain, kind, version)
        # Branches get no inputs: PopART takes those that models have for them, and uses none.
        ignored = ["variadic"] if kind == "If" else []
        expected = [FORM_NAMES[each.option] for each in schema.inputs] + ignored
        assert inputs_of(one) == expected, case
        assert one.attributes.keys() == schema.attributes.keys(), case
        # What the function needs, nodes have: the schema wants it, or has a default for it.
        defaults = defaults_of(one, version)
        for name, parameter in one.attributes.items():
            is_needed = parameter.default is inspect.Parameter.empty
            expected = schema.attributes[name].required or name in defaults
            assert is_needed == expected, f"{name} of {case}"


def test_they_begin_with_their_first_versions():
    """No version that has a schema is without a function, and none has two."""
    for domain, kind in (key for key in OPERATIONS if key[0] in VERSIONS):
        versions = [one.since for one in OPERATIONS[domain, kind]]
        assert len(set(versions)) == len(versions), kind
        for version in VERSIONS[domain]:
            schema = schema_of(domain, kind, version)
            if schema is None:
                assert version < versions[0], kind
            else:
                assert operation_of(domain, kind, version).since <= version, (kind, version)


def test_no_operation_of_onnx_is_missing():
    names = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    of_onnx = {
        name for name in names if any(schema_of(AI_ONNX, name, v) for v in VERSIONS[AI_ONNX])
    }
    assert of_onnx - {kind for domain, kind in OPERATIONS if domain == AI_ONNX} <= TO_COME


def test_defaults_are_those_of_the_version():
    softmax = operation_of(AI_ONNX, "Softmax", 11)
    assert defaults_of(softmax, 11) == {"axis": 1}
    pad = operation_of(AI_ONNX, "Pad", 10)
    assert defaults_of(pad, 10) == {"mode": "constant", "value": 0.0}
    assert defaults_of(operation_of(AI_ONNX, "Pad", 11), 11) == {"mode": "constant"}


def test_domains_without_schemas_have_no_defaults():
    @operation("MadeUp", domain="of.ours")
    def made_up(x, *, alpha=1.0):
        return alpha * x

    assert defaults_of(made_up, 1) == {}


@pytest.mark.parametrize(
    ("kind", "version", "text"),
    [
        ("Nonsense", 11, r"Unknown operation 'Nonsense' of the domain 'ai.onnx'\. It is none of"),
        ("Mod", 9, r"No operation 'Mod' of the .* in version 9: it exists since version 10\. Rec"),
    ],
)
def test_what_there_is_not_is_refused(kind, version, text):
    with pytest.raises(popart_exception, match=text):
        operation_of(AI_ONNX, kind, version)


def test_a_version_has_the_newest_operation_that_is_not_newer():
    since = [operation_of(AI_ONNX, "TopK", version).since for version in range(6, 12)]
    assert since == [1, 1, 1, 1, 10, 11]


def test_initialisers_that_have_to_be_known():
    nodes = (
        Node("Resize", AI_ONNX, ("x", "", "scales"), ("y",)),
        Node("Dropout", AI_ONNX, ("y", "ratio"), ("z",)),
        # What is also computed with is a weight.
        Node("Mul", AI_ONNX, ("z", "ratio"), ("v",)),
        Node("Mul", AI_ONNX, ("v", "w"), ("u",)),
    )
    initialisers = {name: np.ones(4, np.float32) for name in ("scales", "ratio", "w")}
    graph = OnnxGraph("main", nodes, (), ("u",), initialisers)
    assert known_initialisers(OnnxModel(graph, {AI_ONNX: 13})) == {"scales"}
    # Before version 12, the ratio is an attribute.
    with_ratio = OnnxGraph("main", nodes[:2], (), ("z",), initialisers)
    assert known_initialisers(OnnxModel(with_ratio, {AI_ONNX: 12})) == {"scales", "ratio"}
    assert known_initialisers(OnnxModel(with_ratio, {AI_ONNX: 11})) == {"scales"}
