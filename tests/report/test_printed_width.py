"""All tables that are printed fit a terminal of 80 columns, and have their numbers whole."""

import keras
import pytest
import tensorflow as tf
from html_reports import pipelined
from rich.cells import cell_len

import ipu_keras
from ipu_keras_tools.main import main

IMAGES, LABELS = tf.TensorSpec((512, 28, 28, 1)), tf.TensorSpec((512,), tf.int32)
LONG = "a_layer_whose_name_is_longer_than_what_a_terminal_has_room_for_in_a_single_line_of_its_own"
SCRIPT = """from tensorflow.python import ipu
config = ipu.config.IPUConfig()
config.floating_point_behaviour.inv = True
config.scheduling.algorithm = ipu.config.SchedulingAlgorithm.CHOOSE_BEST
"""


@pytest.fixture(scope="module")
def model():
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(2000, name=LONG),
            keras.layers.Dense(10),
        ],
        name="wide",
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def whole(report):
    """Numbers that the tables of a report show."""
    layers, families = report.layers[:15], report.by("family")
    yield from (f"{layer.parameters:,}" for layer in layers)
    yield from (f"{layer.peak_bytes / 1024:,.1f}" for layer in layers)
    yield from (f"{row.cycles:,}" for row in (*layers, *families))
    yield from (f"{row.exchange_cycles:,}" for row in families)
    yield from (f"{fix.max_tile_bytes:,}" for fix in report.fixes)
    yield from (f"{size:,}" for size in report.model.memory.always_live_by_category.values())
    if report.pipeline is not None:
        yield from (f"{stage.backward_cycles:,}" for stage in report.pipeline.stages)


def printed(model, capsys):
    """By what prints it, texts and the numbers that are in them."""
    # It does not fit, so that there are fixes.
    before = ipu_keras.profile(model, IMAGES, LABELS, target="gc2", steps_per_execution=1000)
    assert before.fixes
    yield "report", str(before), list(whole(before))
    yield "pipeline", str(pipelined()), list(whole(pipelined()))
    after = ipu_keras.profile(model, IMAGES, LABELS, dtype="float16")
    totals = before.diff(after).totals.values()
    yield (
        "diff",
        str(before.diff(after)),
        [text for one in totals if one.change for text in one.texts()],
    )
    choices = ipu_keras.what_if(
        model,
        IMAGES,
        LABELS,
        batch_size=[512, 32],
        target=["gc200", "bow"],
        dtype=["float16"],
        num_ipus=[1, 2],
        recomputation=[True],
        available_memory_proportion=[0.6],
        steps_per_execution=[1000],
    )
    cycles = [f"{row.report.cycles_per_step:,}" for row in choices.rows]
    samples = [f"{row.samples_per_second:,.0f}" for row in choices.rows]
    yield "what-if", str(choices), cycles + samples
    capsys.readouterr()
    ipu_keras.suggest_pipeline(model, 3, IMAGES, LABELS)
    yield "suggest_pipeline", capsys.readouterr().out, []


def commands(folder):
    (folder / "script.py").write_text(SCRIPT)
    yield from (["options"], ["info"], ["info", "-l"], ["check", "script.py"])


def check(name, text):
    tables = [line for line in text.splitlines() if line and line[0] in "┏┃┡│├└"]
    assert tables or name == "info -l", name
    too_wide = [line for line in tables if cell_len(line) > 80]
    assert not too_wide, name
    assert "…" not in text, name
    return tables


def test_all_tables_fit_80_columns(model, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    for name, text, figures in printed(model, capsys):
        cells = [cell.strip() for line in check(name, text) for cell in line.split("│")]
        lacking = [figure for figure in figures if figure not in cells]
        assert not lacking, name
    for arguments in commands(tmp_path):
        main(arguments)
        check(" ".join(arguments), capsys.readouterr().out)


def test_a_wider_terminal_has_one_table_and_a_narrower_one_what_80_columns_have(model, monkeypatch):
    report = ipu_keras.profile(model, IMAGES, LABELS, target="bow")
    texts = {}
    for columns in (40, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        texts[columns] = str(report)
    assert texts[40] == texts[80]
    (heading,) = (line for line in texts[200].splitlines() if "variables KiB" in line)
    assert "confidence" in heading
    assert any(LONG in line for line in texts[200].splitlines() if line.startswith("│"))
    assert not any("variables" in line and "confidence" in line for line in texts[80].splitlines())
