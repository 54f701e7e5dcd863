"""Single nodes of ONNX models: run in each way in which they can be, and their gradients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from differences import jacobians

from ipu_keras.popart.model.graph import AI_ONNX, GraphInput, Node, OnnxGraph, OnnxModel
from ipu_keras.popart.operations.evaluation import outputs_of
from ipu_keras.popart.operations.operation import Operation
from ipu_keras.popart.operations.table import operation_of

# Kinds whose results have sizes that depend on values.
OF_UNKNOWN_SIZE = {"Compress", "NonZero", "StringNormalizer", "Unique"}


@dataclass(frozen=True)
class Case:
    """A node, and what it has to compute.

    Args:
        kind: Of its operation.
        inputs: Arrays; `None` for one that is left out, and a list of arrays for a sequence.
        expected: Its result; several in a tuple, and a sequence as a list.
        attributes: By name.
        version: Of the domain.
        domain: Whose operation it is.
    """

    kind: str
    inputs: Sequence[Any]
    expected: Any
    attributes: Mapping[str, Any] = field(default_factory=dict)
    version: int = 11
    domain: str = AI_ONNX

    @property
    def operation(self) -> Operation:
        """What computes it."""
        return operation_of(self.domain, self.kind, self.version)

    @property
    def given(self) -> dict[str, Any]:
        """Inputs by name of tensor, without those that are left out."""
        return {
            f"x{position}": arrays(value)
            for position, value in enumerate(self.inputs)
            if value is not None
        }

    @property
    def static(self) -> set[str]:
        """Names of tensors that have to be known."""
        names = [parameter.name for parameter in self.operation.inputs]
        return {f"x{i}" for i, name in enumerate(names) if name in self.operation.static}

    def model(self, known: Mapping[str, Any] | None = None) -> OnnxModel:
        """The node as a model.

        Args:
            known: Those inputs that are initialisers.
        """
        known = known or {}
        names = tuple("" if x is None else f"x{i}" for i, x in enumerate(self.inputs))
        several = self.expected if isinstance(self.expected, tuple) else (self.expected,)
        outputs = tuple(f"y{i}" for i in range(len(several)))
        node = Node(self.kind, self.domain, names, outputs, attributes=self.attributes)
        inputs = tuple(GraphInput(name) for name in names if name and name not in known)
        return OnnxModel(
            OnnxGraph("one", (node,), inputs, outputs, known), {self.domain: self.version}
        )


def case(kind: str, inputs: Sequence[Any], expected: Any, version: int = 11, **attributes: Any):
    """A `Case` for `pytest.mark.parametrize`."""
    return pytest.param(Case(kind, inputs, expected, attributes, version), id=f"{kind}-{version}")


def array(value: Any) -> Any:
    """Numbers as ONNX models have them: with 32 bits behind the point, and with 64 without one."""
    made = np.asarray(value)
    if isinstance(value, np.ndarray | np.generic):
        return made
    if made.dtype.kind == "U":
        return made.astype(object)
    return made.astype(np.float32) if made.dtype == np.float64 else made


def arrays(value: Any) -> Any:
    """An input; a sequence if it is a list of arrays."""
    if isinstance(value, list) and all(isinstance(each, np.ndarray) for each in value):
        return value
    return array(value)


def check(case: Case) -> None:
    """Computes a node eagerly, traced, and if it can be, while tracing; all has to be expected."""
    given = case.given
    compare(outputs_of(case.model(), given), case)
    static = {name: value for name, value in given.items() if name in case.static}
    compare(traced(case.model(static), {k: v for k, v in given.items() if k not in static}), case)
    if not any(isinstance(value, list) for value in given.values()):
        compare(outputs_of(case.model(given), {}), case)


def traced(model: OnnxModel, given: Mapping[str, Any]) -> list[Any]:
    """What a model computes in a function, to which its inputs are given."""

    @tf.function(autograph=False)
    def run(tensors):
        return outputs_of(model, tensors)

    tensors = tf.nest.map_structure(tf.constant, given)
    results = run(tensors)
    if model.graph.nodes[0].kind not in OF_UNKNOWN_SIZE:
        # Programs need all shapes while tracing.
        shapes = tf.nest.map_structure(
            lambda one: one.shape, run.get_concrete_function(tensors).structured_outputs
        )
        assert shapes == tf.nest.map_structure(lambda one: one.shape, results)
    return results


def compare(results: Sequence[Any], case: Case) -> None:
    several = case.expected if isinstance(case.expected, tuple) else (case.expected,)
    assert len(results) == len(several)
    for result, expected in zip(results, several, strict=True):
        if isinstance(result, list):
            assert len(result) == len(expected)
            for one, wanted in zip(result, expected, strict=True):
                assert_same(one, wanted)
        else:
            assert_same(result, expected)


def assert_same(result: Any, expected: Any) -> None:
    got, wanted = np.asarray(result), array(expected)
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    if wanted.dtype == object:
        assert [text.decode() if isinstance(text, bytes) else text for text in got.flat] == list(
            wanted.flat
        )
    elif wanted.dtype.kind == "f":
        tolerance = 2e-3 if wanted.dtype == np.float16 else 1e-6
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(got, wanted)


def check_gradient(kind: str, inputs: Sequence[Any], version: int = 11, **attributes: Any) -> None:
    """Holds the gradient of a node against differences, for the inputs that have fractions.

    Args:
        kind: Of the operation.
        inputs: As of `Case`; those with fractions get 64 bits.
        version: Of the domain.
        **attributes: Of the node.
    """
    one = Case(kind, inputs, None, attributes, version)
    given = one.given
    wanted = {name for name, x in given.items() if x.dtype.kind == "f" and name not in one.static}
    known = {name: value for name, value in given.items() if name not in wanted}
    model = one.model(known)
    names = sorted(wanted)

    def first_output(*tensors):
        return outputs_of(model, dict(zip(names, tensors, strict=True)))[0]

    values = [tf.constant(given[name], tf.float64) for name in names]
    by_tape, by_differences = jacobians(first_output, values, 1e-4)
    for ours, differences in zip(by_tape, by_differences, strict=True):
        np.testing.assert_allclose(ours, differences, rtol=1e-5, atol=1e-6)
