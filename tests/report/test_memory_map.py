"""Where values of programs that are built by hand lie, and when."""

from collections import Counter

import pytest
from html_reports import pipelined, report

from ipu_keras.cost.flat.memory import alive_on_worst_tile
from ipu_keras.report.memory_map import PlacedValue, placed_values


def test_values_of_a_step():
    found = {one.name: one for one in placed_values(report().model)}
    # The new value of `w` is written where `w` lies, and `a` where `x` does.
    assert set(found) == {"x", "w", "b"}
    assert {name: one.kind for name, one in found.items()} == {
        "x": "from the infeed",
        "w": "variable",
        "b": "activation",
    }
    assert [found[name].layer for name in "xwb"] == ["", "first", "second"]
    assert found["w"].is_always_live
    # `b` is made of `a` by the compute set 1, and is a result.
    assert [(found[name].first, found[name].last) for name in "xb"] == [(0, 1), (1, 2)]
    assert {(one.num_bytes, one.tile_bytes, one.num_tiles) for one in found.values()} == {
        (1472 * 256, 256, 1472)
    }


@pytest.mark.parametrize("make", [report, pipelined])
def test_the_map_of_the_fullest_tile_is_what_the_plan_says(make):
    """The page's script asks the same of a row: its IPU, its tiles, and when it is there."""
    model = make().model
    memory = model.memory
    tiles = len(memory.peak_by_tile) // memory.num_ipus
    tile, now = memory.worst_tile % tiles, memory.peak_position
    sizes = Counter()
    for one in placed_values(model):
        is_there = (tile - one.first_tile) % tiles < one.num_tiles and one.first <= now <= one.last
        if one.ipu == memory.worst_ipu and is_there:
            sizes[one.name] += one.tile_bytes
    assert sizes == dict(alive_on_worst_tile(model.program, model.regions, memory))


def test_a_pipeline_keeps_stashes_beside_what_it_computes():
    found = [one for one in placed_values(pipelined().model) if one.name == "x"]
    assert [(one.kind, one.is_always_live) for one in found] == [
        ("stash", True),
        ("from the infeed", False),
    ]
    # Six more micro-batches than the one that runs.
    assert found[0].num_bytes == 6 * found[1].num_bytes


@pytest.mark.parametrize(
    ("first", "number", "words"),
    [(3, 1, "3"), (0, 10, "0 to 9"), (8, 4, "8 to 9, 0 to 1"), (9, 2, "9, 0"), (5, 5, "5 to 9")],
)
def test_tiles_in_words(first, number, words):
    zeros = dict.fromkeys(("num_bytes", "tile_bytes", "ipu", "first", "last"), 0)
    value = PlacedValue(
        name="v",
        layer="",
        kind="variable",
        shape=(),
        dtype="float32",
        first_tile=first,
        num_tiles=number,
        is_always_live=True,
        **zeros,
    )
    assert value.tiles_in_words(tiles_of_ipu=10) == words
