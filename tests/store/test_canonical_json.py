"""Frozen values as JSON: their text, and that they come back as they were."""

import dataclasses
import doctest
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hlo_graphs import graph, loop, op

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.passes import model_graph
from ipu_keras.ir import Graph
from ipu_keras.machine.target import TARGETS, Target
from ipu_keras.store import canonical_json
from ipu_keras.store.canonical_json import digest, from_json, to_json


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Everything:
    number: float
    colour: Colour
    pair: tuple[int, str]
    maybe: int | None = None
    table: Mapping[tuple[str, str], int] = field(default_factory=dict)
    anything: Any = None
    below: Mapping[str, "Everything"] = field(default_factory=dict)


def test_examples():
    assert doctest.testmod(canonical_json).failed == 0


def test_the_text():
    value = Everything(0.5, Colour.RED, (1, "a"), table={("x", "y"): 2}, anything={"b": (True,)})
    assert to_json(value) == (
        '{"number":0.5,"colour":"red","pair":[1,"a"],"maybe":null,"table":[[["x","y"],2]],'
        '"anything":{"b":[true]},"below":{}}'
    )
    assert digest("a") == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"


def test_values_come_back():
    inner = Everything(1e-300, Colour.RED, (-1, "ü"), maybe=3)
    value = Everything(
        float("inf"), Colour.RED, (1, "a\n"), table={("x", "y"): 2}, below={"k": inner}
    )
    assert from_json(Everything, to_json(value)) == value
    # A view has the text of the mapping behind it.
    assert to_json(dataclasses.replace(inner, below=MappingProxyType({}))) == to_json(inner)


def test_the_order_of_mappings_is_kept():
    found = from_json(Mapping[str, int], to_json({"b": 1, "a": 2}))
    assert list(found) == ["b", "a"]
    assert to_json({"b": 1, "a": 2}) != to_json({"a": 2, "b": 1})


def test_arrays():
    array = np.array([[1, 2], [3, 2**62]])
    found = from_json(np.ndarray, to_json(array))
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype
    assert to_json((np.int64(3), np.float32(0.5))) == "[3,0.5]"


@pytest.mark.parametrize(("name", "target"), TARGETS.items())
def test_targets(name, target):
    assert from_json(Target, to_json(target)) == target


def test_graphs_and_their_models():
    window = op("y", "negate", (3,), "x", window_padding=((0, 1), (1, 0)))
    for one in (loop(4), graph(op("x", "iota", (3,)), window)):
        assert from_json(Graph, to_json(one)) == one
    model = model_graph("loop", loop(4), TARGETS["gc200"], CostOptions())
    found = from_json(ModelledProgram, to_json(model))
    assert to_json(found) == to_json(model)
    assert (found.program, found.costs) == (model.program, model.costs)
    assert list(found.regions.items()) == list(model.regions.items())
    assert found.memory.worst_tile == model.memory.worst_tile


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", object, Graph, (1, lambda: 0)])
def test_what_has_no_json(value):
    with pytest.raises(TypeError, match=r"Only dataclasses, .* Received: .* of type "):
        to_json(value)


def test_types_that_cannot_be_read():
    with pytest.raises(TypeError, match=r"cannot be read from JSON\. Received: .*set"):
        from_json(set, "[]")
    with pytest.raises(TypeError, match=r"which type of several it is\. Received: int \| str"):
        from_json(int | str, "1")
