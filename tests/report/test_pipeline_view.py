"""Reports of pipelines that are built by hand, in all their forms."""

import json
import re
from itertools import pairwise

import pytest
from hlo_graphs import staged_step

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.pipeline.timing import time_pipeline
from ipu_keras.machine.target import TARGETS
from ipu_keras.program import Pipeline
from ipu_keras.report import html
from ipu_keras.report.html_pipeline import pipeline_picture
from ipu_keras.report.plain_options import SCHEMA_VERSION, plain_options
from ipu_keras.report.report import Report
from ipu_keras.settings.pipeline_choices import PipelineSchedule, PipelineStageOptions

GC200 = TARGETS["gc200"]


def report(count=8, batch_size=None, num_replicas=1, recomputation=False, **options):
    pipeline = Pipeline(device_mapping=(0, 1), **options)
    model = model_graph(
        "step",
        staged_step(2),
        GC200,
        CostOptions(
            gradient_accumulation_count=count,
            steps_per_execution=count,
            num_replicas=num_replicas,
            recomputation=recomputation,
            pipeline=pipeline,
        ),
    )
    return Report.of(model, batch_size=batch_size)


def test_figures():
    found = report()
    view, run = found.pipeline, found.model.pipeline_run
    assert (view.schedule, view.num_micro_batches, view.cycles) == ("Grouped", 8, run.cycles)
    assert sum(view.cycles_by_phase.values()) == view.cycles
    assert list(view.cycles_by_phase) == ["fill", "steady", "drain", "weight update"]
    assert view.utilisation + view.bubble_share == pytest.approx(1)
    assert [stage.num_stashed for stage in view.stages] == [3, 1]
    assert tuple(stage.cycles for stage in view.stages) == run.stage_cycles
    assert found.compute_cycles == -(-view.cycles // 8)
    assert found.cycles_per_step == found.compute_cycles + found.host_cycles
    assert found.busy_cycles == sum(row.cycles for row in found.rows) > found.compute_cycles


def test_rows_by_stage():
    found = report()
    groups = {row.name: row for row in found.by("stage", sort=None)}
    assert list(groups) == ["stage 0", "stage 1", "weight update"]
    assert groups["stage 0"].stage == 0
    assert groups["weight update"].weight_update
    assert [row.name for row in found.by("phase", sort="name")] == [
        "backward",
        "forward",
        "weight update",
    ]
    # Of the weight update, a step has an eighth.
    pairs = zip(found.model.program.compute_sets, found.model.costs, strict=True)
    update = sum(
        -(-size // 8)
        for one, cost in pairs
        if one.weight_update
        for size in (cost.compute_cycles, cost.exchange_cycles, cost.sync_cycles)
    )
    assert groups["weight update"].cycles == update


def test_text():
    text = str(report(batch_size=16, num_replicas=2))
    assert "samples/s, 16 in a step on each of 2 replicas" in text
    assert "Weights are updated after 8 steps" in text
    assert re.search(r"Grouped pipeline of 2 stages, 8 micro-batches in [\d,]+ cycles", text)
    assert "is the slowest, with" in text
    assert "Stages, cycles for a micro-batch" in text
    assert "one computes at a time" not in text


def test_samples_of_all_replicas():
    found = report(batch_size=16, num_replicas=2)
    assert found.samples_per_second == pytest.approx(32 / found.seconds_per_step)
    assert found.peak_flops == 4 * 128 * 1472 * 1.33e9
    assert found.flops_per_step == 2 * sum(row.flops for row in found.rows)


def test_json():
    found = json.loads(report().to_json())
    assert found["schema"] == SCHEMA_VERSION
    assert found["pipeline"]["stages"][1]["ipu"] == 1
    assert found["pipeline"]["slowest_stage"] in (0, 1)
    assert (found["rows"][0]["stage"], found["rows"][0]["weight_update"]) == (0, False)
    assert found["options"]["pipeline"]["schedule"] == "Grouped"
    assert found["options"]["gradient_accumulation_count"] == 8


def test_options_as_plain_values():
    options = CostOptions(
        pipeline=Pipeline(
            device_mapping=(0, 1),
            schedule=PipelineSchedule.Sequential,
            weight_update_options=PipelineStageOptions(matmul_options={"a": "b"}),
        )
    )
    plain = plain_options(options)
    assert plain["pipeline"]["device_mapping"] == [0, 1]
    assert plain["pipeline"]["weight_update_options"]["matmul_options"] == {"a": "b"}
    assert list(plain_options(CostOptions())) == [
        "available_memory_proportion",
        "steps_per_execution",
        "dtype",
        "recomputation",
        "num_ipus",
    ]


def test_data_frame():
    frame = report().to_dataframe(by="op", sort=None)
    assert set(frame["phase"]) == {"forward", "backward", "weight update"}
    assert frame["share"].sum() == pytest.approx(1)
    assert list(frame["stage"][:2]) == [0, 0]


def test_timeline_has_a_row_for_each_ipu():
    found = report()
    events = json.loads(found.to_chrome_trace())["traceEvents"]
    for ipu in (0, 1):
        slices = [e for e in events if e["pid"] == ipu and e["ph"] == "X" and e["tid"] == 1]
        names = [e["name"] for e in slices]
        assert "bubble" in names
        assert {"F0.0", "B0.7", "W"} <= set(names) if ipu == 0 else {"F1.0"} <= set(names)
        # One after the other, until the end.
        for one, following in pairwise(slices):
            assert one["ts"] + one["dur"] == pytest.approx(following["ts"])
        end = (found.host_cycles * 8 + found.pipeline.cycles) / 1330
        assert slices[-1]["ts"] + slices[-1]["dur"] == pytest.approx(end)


def test_perfetto(tmp_path):
    report(recomputation=True).to_perfetto(tmp_path / "step.pftrace")
    assert b"R0.0" in (tmp_path / "step.pftrace").read_bytes()


def test_page():
    found = html.page(report())
    assert '<section id="pipeline">' in found
    assert found.count("IPU 1</li>") == 1
    assert "F1.3: forward," in found
    assert 'id="pipeline"' not in html.page(plain())


def plain():
    return Report.of(model_graph("step", staged_step(2), GC200))


def test_a_long_pipeline_is_cut_at_a_step():
    timing = report(count=16).pipeline_timing
    whole, cut = pipeline_picture(timing), pipeline_picture(timing, max_bars=20)
    assert (whole.is_whole, whole.cycles) == (True, timing.cycles)
    assert not cut.is_whole
    assert cut.cycles in timing.starts
    assert 0 < len(cut.bars) <= 20
    assert max(bar.start + bar.cycles for bar in cut.bars) <= cut.cycles


def test_a_program_without_a_pipeline():
    found = plain()
    assert (found.pipeline, found.pipeline_timing) == (None, None)
    assert found.busy_cycles == found.compute_cycles
    assert "pipeline" not in json.loads(found.to_json())


def test_the_slowest_stage_is_named():
    found = report()
    slowest = found.pipeline.slowest_stage
    cycles = found.pipeline.stages[slowest].cycles
    assert f"stage {slowest} on IPU {slowest} is the slowest, with {cycles:,}" in str(
        found.pipeline
    )
    steps = found.model.pipeline_run.steps()
    assert time_pipeline(steps, found.model.pipeline_run.part_cycles) == found.pipeline_timing


def test_remote_memory_is_mentioned():
    assert "65,536 bytes lie in remote memory" in str(report(offload_activations=True))
