"""Reports of programs that are built by hand, as JSON."""

import json

from small_reports import report

from ipu_keras.report import SCHEMA_VERSION


def test_json():
    found = json.loads(report().to_json())
    assert found["schema"] == SCHEMA_VERSION
    assert found["cycles"]["per_step"] == report().cycles_per_step
    assert (found["batch_size"], found["samples_per_second"]) == (None, None)
    assert found["target"]["numbers"]["num_tiles"] == 1472
    assert found["target"]["numbers"]["amp_flops"]["float16/float32"] == 64
    assert "arXiv:1912.03413" in found["target"]["sources"]["num_workers"][0]
    assert found["memory"]["peak_by_tile"] == report().model.memory.peak_by_tile.tolist()
    assert [row["name"] for row in found["rows"]] == ["a", "b", "c", "new"]
    assert found["options"] == {
        "available_memory_proportion": 0.6,
        "steps_per_execution": 1,
        "dtype": None,
        "recomputation": False,
        "num_ipus": 1,
    }


def test_equal_programs_have_equal_json():
    assert report().to_json() == report().to_json()
    assert report().to_json() != report(steps_per_execution=2).to_json()
