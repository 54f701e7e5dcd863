"""The benchmark of BERT in its ways of writing it, on a network of a few layers."""

from dataclasses import replace

import bert
import pytest

SMALL = replace(
    bert.NETWORKS["base"],
    width=64,
    num_heads=2,
    layers_by_stage=(0, 1, 1, 1),
    vocabulary=300,
    micro_batch=4,
    accumulation=10,
)


@pytest.fixture(scope="module")
def reports():
    return {name: bert.report_of(SMALL, way) for name, way in bert.WAYS.items()}


@pytest.mark.parametrize("way", bert.WAYS)
def test_stages_keep_halves_of_what_enters_and_of_checkpoints(reports, way):
    program = reports[way].model.program
    kept = [program.values[name].spec for name in program.stashes]
    large = [spec for spec in kept if spec.shape == (4, bert.LENGTH, 64)]
    # A stage ends with a checkpoint, which only the next one keeps.
    assert len(large) == 3
    assert {spec.dtype for spec in large} == {"float16"}


def test_a_batched_head_is_as_one_of_flat_rows(reports):
    detailed, batched = (reports[name] for name in ("detailed", "batched"))
    assert batched.cycles_per_step == pytest.approx(detailed.cycles_per_step, rel=0.05)
    assert batched.memory_by_tile.max() == pytest.approx(detailed.memory_by_tile.max(), rel=0.05)
