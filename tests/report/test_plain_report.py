"""Reports of programs that are built by hand, as JSON."""

import json
from dataclasses import replace

from small_reports import report

from ipu_keras.report.plain_options import SCHEMA_VERSION


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


def test_what_text_says_in_words_is_in_json():
    """So that whoever reads JSON misses neither a note nor a remark, and no error."""
    found = replace(report(num_ipus=2), note="Inference is modelled, as it was asked for")
    text, plain = str(found), json.loads(found.to_json())
    assert plain["note"] == text.partition("\n")[0] == found.note
    assert plain["remarks"] == [
        "It is for 2 IPUs, which share the layers; one computes at a time",
        "The fullest tile is tile 0 of IPU 0 of 2",
    ]
    assert plain["memory"]["error"] is None
