"""Groups, orders and data frames of rows that are made by hand."""

import sys
from dataclasses import replace

import pytest
from report_rows import row

from ipu_keras.report.data_frame import data_frame
from ipu_keras.report.rows import arranged

ROWS = (
    row("product", compute=60, exchange=30, sync=10, layer="dense", family="dot", flops=1000),
    row("sum", compute=50, sync=20, layer="dense", flops=10, repeat=4, temporary_bytes=8),
    row("norm", compute=1, layer="", confidence="calibrated", temporary_bytes=64),
    row("order", compute=99, layer="top", family="sort", confidence="guessed", backward=True),
)


def names(key, sort="cycles"):
    return [one.name for one in arranged(ROWS, key, sort)]


def test_groups():
    dense, top, none = arranged(ROWS, "layer", "cycles")
    assert (dense.name, dense.family, dense.layer) == ("dense", "mixed", "dense")
    assert (dense.compute_cycles, dense.exchange_cycles, dense.sync_cycles) == (110, 30, 30)
    assert (dense.cycles, dense.flops, dense.temporary_bytes) == (170, 1010, 8)
    assert (top.name, top.cycles, top.backward) == ("top", 99, True)
    assert (none.name, none.layer) == ("(no layer)", "")
    assert names("family") == ["dot", "sort", "elementwise"]
    assert names("backward") == ["forward", "backward"]
    assert names("confidence") == ["derived", "guessed", "calibrated"]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("cycles", ["product", "order", "sum", "norm"]),
        ("compute_cycles", ["order", "product", "sum", "norm"]),
        # Equal ones in the order of their names.
        ("exchange_cycles", ["product", "norm", "order", "sum"]),
        ("sync_cycles", ["sum", "product", "norm", "order"]),
        ("flops", ["product", "sum", "norm", "order"]),
        ("temporary_bytes", ["norm", "sum", "order", "product"]),
        ("repeat", ["sum", "norm", "order", "product"]),
        ("name", ["norm", "order", "product", "sum"]),
        (None, ["product", "sum", "norm", "order"]),
    ],
)
def test_orders(sort, expected):
    assert names("op", sort) == expected


def test_groups_in_order_of_execution():
    assert names("layer", None) == ["dense", "(no layer)", "top"]
    assert names("layer", "name") == ["(no layer)", "dense", "top"]


def test_what_cannot_be_grouped_or_sorted():
    keys = "layer, family, backward, confidence, stage, phase, op"
    with pytest.raises(ValueError, match=rf"one of {keys}\. Received: 'tile'"):
        arranged(ROWS, "tile", "cycles")
    with pytest.raises(ValueError, match=r"repeat, name or None\. Received: 'seconds'"):
        arranged(ROWS, "layer", "seconds")


def test_data_frame():
    frame = data_frame(ROWS, clock_hz=1000.0, total_cycles=270)
    assert frame["name"].tolist() == ["product", "sum", "norm", "order"]
    assert frame["cycles"].tolist() == [100, 70, 1, 99]
    assert frame["seconds"].tolist() == [0.1, 0.07, 0.001, 0.099]
    assert frame["share"].sum() == pytest.approx(1)
    assert frame["backward"].tolist() == [False, False, False, True]
    numbers = [column for column in frame if frame[column].dtype == "int64"]
    assert numbers == [
        "repeat",
        "cycles",
        "compute_cycles",
        "exchange_cycles",
        "sync_cycles",
        "flops",
        "exchange_bytes",
        "temporary_bytes",
        "ipu",
    ]
    # Nothing of a row is left out but what steps without parts have not.
    parts = {"stage", "weight_update"}
    assert set(vars(ROWS[0])) - parts == set(frame) - {"cycles", "seconds", "share"}
    assert list(data_frame((), 1000.0, 0)) == list(frame)


def test_a_data_frame_of_a_step_with_parts():
    rows = [replace(ROWS[0], stage=1), replace(ROWS[1], weight_update=True)]
    frame = data_frame(rows, clock_hz=1000.0, total_cycles=170)
    assert frame["phase"].tolist() == ["forward", "weight update"]
    assert frame["stage"].tolist()[0] == 1


def test_stages_and_phases():
    rows = [replace(ROWS[0], stage=1), ROWS[1], replace(ROWS[3], weight_update=True)]
    assert [row.name for row in arranged(rows, "stage", None)] == [
        "stage 1",
        "(no stage)",
        "weight update",
    ]
    assert [row.name for row in arranged(rows, "phase", None)] == ["forward", "weight update"]


def test_a_data_frame_needs_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r'A data frame needs pandas, .*"ipu-keras\[report\]"'):
        data_frame(ROWS, 1000.0, 270)
