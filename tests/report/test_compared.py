"""What of a report is compared: the same of the report itself and of its JSON."""

import json

import pytest
from html_reports import pipelined, report

from ipu_keras.report.compared import compared, compared_of_plain


@pytest.mark.parametrize("make", [report, pipelined])
def test_json_has_all_that_is_compared(make):
    found = make()
    plain = compared_of_plain(json.loads(found.to_json()))
    whole = compared(found)
    for name in ("totals", "layers", "families", "memory", "layer_memory", "layer_flops"):
        assert getattr(plain, name) == getattr(whole, name), name
    assert (plain.parameters, plain.curves) == (whole.parameters, whole.curves)


def test_curves():
    found = report()
    curves = compared(found).curves
    assert curves.peak_by_tile == tuple(found.memory_by_tile)
    always = found.always_live_bytes
    assert curves.live == tuple(always + size for size in found.liveness[:3])
    microseconds = 1e6 / found.model.target.clock_hz
    assert curves.edges[0] == pytest.approx(found.host_cycles * microseconds)
    assert curves.edges[-1] == pytest.approx(found.cycles_per_step * microseconds)


@pytest.mark.parametrize("plain", [[], {}, {"schema": 3}])
def test_what_is_no_report_of_this_version(plain):
    schema = plain.get("schema") if isinstance(plain, dict) else None
    with pytest.raises(ValueError, match=f"must have schema 4. Received: {schema}"):
        compared_of_plain(plain)
