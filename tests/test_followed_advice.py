"""Advice is followed before it is given: what a line promises is got by who writes it."""

import re

import pytest
from advised_models import MODELS

from ipu_keras.advice.changes import Fix

# A promise that is kept is within this share of what is got.
NEAR = 0.05

# The changes that are among the advice for each model, so that none is silent.
ADVISED = {
    "that fits": {"32 steps per execution"},
    "with wide layers": {"float16", "a pipeline of 4 stages"},
    "with many activations": {"batch size 256", "recomputation"},
    "of three layers": {"float16 and availableMemoryProportion 0.3", "32 steps per execution"},
    "of convolutions": {"float16", "batch size 32", "a pipeline of 2 stages"},
    "of LSTMs": {"float16"},
    "of attention": {"float16", "batch size 4"},
    "of a graph": {"32 tiles for input and output", "data in float16"},
    "of an autoencoder": {"float16"},
    "that predicts": {"float16, availableMemoryProportion 0.15, a pipeline of 2 stages"},
    "with a call of its own": {"float16", "a pipeline of 4 stages"},
    "in stages": {"float16", "batch size 64"},
    "in stages of a layer": {"the optimizer's state in remote memory: fits"},
}


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_promised_is_got(kind, capsys):
    advised = MODELS[kind]
    report = advised.report()
    steps = report.next_steps
    for fix, step in zip(report.fixes, steps, strict=False):
        check_fix(fix, advised.report(step.lines))
    for step in steps[len(report.fixes) :]:
        if promise := re.search(r"a step takes ([\d,]+) cycles", step.finding):
            cycles = int(promise[1].replace(",", ""))
            after = advised.report(step.lines)
            assert after.cycles_per_step == pytest.approx(cycles, rel=NEAR), step
            assert cycles < 0.95 * report.cycles_per_step
    said = "\n".join([*map(str, report.fixes), *(step.finding for step in steps)])
    assert [words for words in ADVISED[kind] if words not in said] == []


def check_fix(fix: Fix, after) -> None:
    memory = after.model.memory
    assert memory.max_tile_bytes == pytest.approx(fix.max_tile_bytes, rel=NEAR), fix
    seconds = after.seconds_per_step / after.batch_size
    assert seconds == pytest.approx(fix.seconds_per_sample, rel=NEAR), fix
    assert (after.verdict == "too close to say") == fix.is_close, fix
    assert after.fits == fix.fits, fix
