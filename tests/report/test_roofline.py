"""Operations over bytes, by hand."""

import pytest
from html_reports import GC200, pipelined, report

from ipu_keras.ir import TensorSpec
from ipu_keras.report.roofline import Roof, roof_of, work_of_layers


def test_the_roof_bends_where_memory_no_longer_decides():
    roof = Roof(flops=1000.0, bytes_per_second=100.0)
    assert [roof.at(x) for x in (1.0, 10.0, 100.0)] == [100.0, 1000.0, 1000.0]
    # 24 bytes a cycle on each of 1,472 tiles, and 128 operations of float16.
    found = roof_of(GC200)
    assert found.bytes_per_second == 24 * 1472 * GC200.clock_hz
    assert found.flops == 128 * 1472 * GC200.clock_hz


def test_work_of_layers():
    found = report()
    second, first, sgd = work_of_layers(found.model, found.rows)
    assert (second.name, first.name, sgd.name) == ("second", "first", "sgd")
    cycles = found.rows[0].cycles
    # 1472 x 64 additions of two floats to a third.
    assert (first.flops, first.num_bytes) == (1472 * 64, 3 * 4 * 1472 * 64)
    assert first.flops_per_byte == pytest.approx(1 / 12)
    assert first.cycles == {"forward": cycles, "backward": 0, "weight update": 0}
    assert first.flops_per_second == pytest.approx(1472 * 64 / cycles * GC200.clock_hz)
    # A tile could do two additions a cycle with 24 bytes; it does 64 in all of these cycles.
    assert first.share_of_roof == pytest.approx(64 / (2 * cycles))
    assert first.output == TensorSpec((1472, 64), "float32")
    # Its only result is the variable's new value.
    assert sgd.output is None
    assert (second.flops, second.flops_per_byte, second.share_of_roof) == (0, 0, 0)


def test_phases_add_up():
    found = pipelined()
    layers = {one.name: one for one in work_of_layers(found.model, found.rows)}
    assert sum(one.total_cycles for one in layers.values()) == found.busy_cycles
    for name, one in layers.items():
        rows = [row for row in found.rows if (row.layer or "(no layer)") == name]
        for phase, cycles in one.cycles.items():
            assert cycles == sum(row.cycles for row in rows if row.phase == phase)
    assert min(layers["l1"].cycles.values()) > 0
