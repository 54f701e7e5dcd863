"""What pooling costs, against figures that were computed by hand."""

from graph_costs import LAUNCH, TILES, WAY, costs
from hlo_graphs import argument, op

ZERO = op("zero", "constant", (), value=0.0)


def window(size, stride, padding=(0, 0), **attributes):
    return {
        "window_size": (1, size, size, 1),
        "window_stride": (1, stride, stride, 1),
        "window_padding": ((0, 0), padding, padding, (0, 0)),
        "base_dilation": (1, 1, 1, 1),
        "window_dilation": (1, 1, 1, 1),
        **attributes,
    }


def halves(name, *shape):
    return op(name, "parameter", shape, role="argument", dtype="float16")


def pooled(source, result, **attributes):
    return costs(
        halves("x", *source),
        ZERO,
        op("y", "reduce-window", result, "x", "zero", dtype="float16", **attributes),
    )["y"]


def test_one_window_for_each_tile():
    # 6 x 6 windows of one vector of channels on 36 tiles: 13 + 6 * (13 + 4 * (20 + 8 + 3)).
    found = pooled((1, 12, 12, 4), (1, 6, 6, 4), operation="maximum", **window(2, 2))
    assert found.tiles == 36
    assert found.compute_cycles == 13 + 6 * (13 + 4 * 31) + LAUNCH
    # Four vectors of eight bytes arrive, of which convolutions make larger groups: popnn makes
    # them anew.
    assert found.exchange_bytes == 4 * 8
    assert found.exchange_cycles == 8 + WAY + 8
    # It may not lie in a memory element of the results.
    assert found.separate_bytes == 4 * 8


def test_workers_begin_where_the_one_before_ends():
    # Each tile has four of 5,888 rows of three windows, and each worker two windows: the second
    # has the last of a row and the first of the next.
    found = pooled(
        (4 * TILES, 6, 4),
        (4 * TILES, 3, 4),
        operation="maximum",
        window_size=(1, 2, 1),
        window_stride=(1, 2, 1),
        base_dilation=(1, 1, 1),
        window_dilation=(1, 1, 1),
    )
    assert found.tiles == TILES
    assert found.compute_cycles == 13 + 6 * 2 * (13 + 2 * (20 + 8 + 3)) + LAUNCH
    assert found.exchange_bytes == 4 * 6 * 8


def test_gradients_of_maxima_skip_what_no_window_reaches():
    # Windows of 3, 2 apart: an element is in two or in one of them along each axis.
    found = costs(
        halves("x", 1, 5, 5, 8),
        halves("g", 1, 2, 2, 8),
        ZERO,
        op(
            "y",
            "select-and-scatter",
            (1, 5, 5, 8),
            "x",
            "g",
            "zero",
            dtype="float16",
            operation="add",
            **window(3, 2),
        ),
    )["y"]
    # An element on each of 50 tiles, in four windows where it is in most: each costs 28 + 5.
    assert found.tiles == 50
    assert found.compute_cycles == 13 + 6 * (30 + 4 * 33) + LAUNCH
    # What was pooled, and 2 x 2 of the results and of their gradients.
    assert found.exchange_bytes == 8 + 2 * 4 * 8


def test_a_window_of_all_is_a_reduction():
    source = argument("x", 8, 7, 7, 64)
    whole = costs(
        source,
        ZERO,
        op("y", "reduce-window", (8, 1, 1, 64), "x", "zero", operation="add", **window(7, 7)),
    )["y"]
    reduced = costs(
        source,
        ZERO,
        op("y", "reduce", (8, 64), "x", "zero", dimensions=(1, 2), operation="add"),
    )["y"]
    assert whole == reduced


def test_more_of_anything_never_costs_less():
    sizes = [(1, 32, 32, 8), (1, 32, 32, 64), (2, 32, 32, 64), (2, 64, 64, 64), (2, 64, 64, 65)]
    cycles = []
    for batch, *field, channels in sizes:
        result = (batch, *(n // 2 for n in field), channels)
        found = pooled((batch, *field, channels), result, operation="add", **window(2, 2))
        cycles.append(found.cycles)
    assert cycles == sorted(cycles)
