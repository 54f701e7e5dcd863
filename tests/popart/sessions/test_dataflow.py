"""What sessions are asked to return."""

import numpy as np
import pytest

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options.enumerations import AnchorReturnTypeId
from ipu_keras.popart.sessions.dataflow import AnchorReturnType, DataFlow


@pytest.mark.parametrize("name", ["All", "ALL", "all", "aLL"])
def test_names_are_of_any_case(name):
    assert AnchorReturnType(name).id() is AnchorReturnTypeId.All


def test_a_period():
    every = AnchorReturnType("EveryN", 3)
    assert (every.id(), every.rp()) == (AnchorReturnTypeId.EveryN, 3)
    assert every == AnchorReturnType("everyn", 3) != AnchorReturnType("EveryN", 2)
    assert repr(every) == "AnchorReturnType('EveryN', 3)"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("Some",),
            "Invalid anchor return type 'Some'. Use one of 'Final', 'EveryN', 'All', 'Sum'",
        ),
        (("EveryN",), "Must specify return period with option 'EVERYN'"),
        (("EveryN", 0), "Anchor return period must be greater than zero"),
        (("EveryN", -2), "Received: returnPeriod=-2"),
        (("Final", 2), "must not be supplied with option 'FINAL'"),
    ],
)
def test_bad_return_types(arguments, text):
    with pytest.raises(popart_exception) as error:
        AnchorReturnType(*arguments)
    assert text in str(error.value)


def test_only_periodic_types_have_a_period():
    with pytest.raises(popart_exception, match="should not be used"):
        AnchorReturnType("All").rp()


def test_a_dictionary_of_anchors():
    flow = DataFlow(4, {"a": AnchorReturnType("Final"), "b": AnchorReturnType("EveryN", 2)})
    assert flow.batchesPerStep() == 4
    assert flow.nAnchors() == 2
    assert flow.anchors() == ["a", "b"]
    assert flow.isAnchored("a")
    assert not flow.isAnchored("c")
    assert flow.art("b").rp() == 2
    with pytest.raises(popart_exception, match=r"'c' is no anchor\. There are: a, b\."):
        flow.art("c")


def test_a_list_of_anchors():
    assert DataFlow(1, ["a", "b"]).art("b") == AnchorReturnType("All")
    assert DataFlow(1, ["a"], AnchorReturnType("Sum")).art("a") == AnchorReturnType("Sum")
    assert DataFlow(1).nAnchors() == 0


@pytest.mark.parametrize(
    ("count", "anchors", "text"),
    [
        (0, ["a"], "'Batches per step' must be greater than zero"),
        (0, [], "'Batches per step' must be greater than zero"),
        (-1, [], "Received: batchesPerStep=-1"),
        (4, {"a": AnchorReturnType("EveryN", 3)}, "must divide the batches of a step"),
        (2, {"a": AnchorReturnType("EveryN", 4)}, "must not be greater than the batches"),
    ],
)
def test_bad_data_flows(count, anchors, text):
    with pytest.raises(popart_exception) as error:
        DataFlow(count, anchors)
    assert text in str(error.value)


def test_a_type_of_all_anchors_is_one():
    with pytest.raises(TypeError, match=r"^`anchorReturnType` must be an Anch.* Received: 'Final'"):
        DataFlow(1, ["a"], "Final")


@pytest.mark.parametrize("count", [True, np.True_, 2.0, "2", None])
def test_counts_are_integers(count):
    with pytest.raises(TypeError, match=r"^`batchesPerStep` must be an integer\. Received: batch"):
        DataFlow(count, ["a"])
    if count is not None:
        with pytest.raises(TypeError, match=r"^`returnPeriod` must be an integer\. Received: ret"):
            AnchorReturnType("EveryN", count)


def test_integers_of_numpy_become_those_of_python():
    flow = DataFlow(np.int64(4), {"a": AnchorReturnType("EveryN", np.uint8(2))})
    numbers = flow.batchesPerStep(), flow.art("a").rp()
    assert numbers == (4, 2)
    assert [type(one) for one in numbers] == [int, int]


@pytest.mark.parametrize("anchors", ["a", {"a": "All"}, 3])
def test_anchors_of_another_type(anchors):
    with pytest.raises(TypeError, match="`anchorTensors` must"):
        DataFlow(1, anchors)
