"""What a pipeline keeps elsewhere, in programs built by hand."""

import doctest
from dataclasses import replace

import pytest
from hlo_graphs import graph, op, staged_step, variable

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.tile import exchange
from ipu_keras.cost.tile.exchange import Members, all_gather_seconds, remote_seconds
from ipu_keras.machine.target import TARGETS
from ipu_keras.program import Pipeline

GC200 = TARGETS["gc200"]
TENSOR = 4 * 64 * 64


def with_momentum():
    """`staged_step` of two layers whose update has a state of its own."""
    step = staged_step(2)
    ops = [one for one in step.ops if one.layer != "sgd"]
    for k in range(2):
        ops.insert(0, variable(f"m{k}", 64, 64, result=3 + k))
        new = [
            op(f"n{k}", "maximum", (64, 64), f"m{k}", f"dw{k}", layer="sgd"),
            op(f"u{k}", "subtract", (64, 64), f"w{k}", f"n{k}", layer="sgd"),
        ]
        ops += [replace(one, weight_update=True) for one in new]
    return graph(*ops, results=("loss", "u0", "u1", "n0", "n1"))


def model(num_replicas=1, minimum=128, **options):
    pipeline = Pipeline(device_mapping=(0, 1), **options)
    return model_graph(
        "step",
        with_momentum(),
        GC200,
        CostOptions(
            gradient_accumulation_count=4,
            steps_per_execution=4,
            num_replicas=num_replicas,
            pipeline=pipeline,
            minimum_remote_tensor_size=minimum,
        ),
    )


def sets(found, family):
    pairs = zip(found.program.compute_sets, found.costs, strict=True)
    return {one.name: (one, cost) for one, cost in pairs if one.family == family}


def variables(found):
    return found.memory.bytes_by_category["variables"]


def test_nothing_moves_unless_asked():
    found = model()
    assert (found.program.remote_bytes, sets(found, "remote copy")) == (0, {})
    # Weights, momenta and accumulators of two layers.
    assert variables(found) == 6 * TENSOR
    assert model(replicated_weight_sharding=True).program == found.program


def test_activations():
    plain, found = model(), model(offload_activations=True)
    assert plain.program.stashes == {"x": 2, "h0": 2}
    assert (found.program.stashes, found.program.remote_bytes) == ({}, 4 * TENSOR)
    assert "stashes" not in found.memory.bytes_by_category
    copies = sets(found, "remote copy")
    assert set(copies) == {"stage 0 forward stash", "stage 0 backward unstash"}
    _, cost = copies["stage 0 forward stash"]
    seconds = remote_seconds(GC200, 2 * TENSOR, num_ipus=2)
    assert cost.cycles == pytest.approx(seconds * 1.33e9, abs=1)
    assert (cost.confidence.value, cost.detail) == ("guessed", "stash")
    assert found.pipeline_run.cycles > plain.pipeline_run.cycles


def test_accumulators():
    found = model(offload_gradient_accumulation_buffers=True)
    assert variables(found) == 4 * TENSOR
    assert found.program.remote_bytes == 2 * TENSOR
    names = [one.name for one in found.program.compute_sets if one.stage == 0 and one.backward]
    # Fetched, added to, and written back.
    first = names.index("dw0/accumulator/stage 0 backward/loaded/load")
    assert names[first + 1 : first + 3] == ["dw0/accumulate", "dw0/accumulate/store"]
    update = [one.name for one in found.program.compute_sets if one.weight_update]
    assert "dw0/accumulator/update/loaded/load" in update
    assert "dw0/accumulator/zero/store" in update


def test_states_of_the_optimizer():
    found = model(offload_weight_update_variables=True)
    assert variables(found) == 4 * TENSOR
    assert found.program.remote_bytes == 2 * TENSOR
    reads = {one.name: one.reads for one in found.program.compute_sets}
    assert reads["n0"] == ("m0/update/loaded", "dw0/accumulator")
    assert reads["n0/store"] == ("n0",)
    assert all(one.weight_update for one, _ in sets(found, "remote copy").values())
    # What is loaded lies where the weight does, and is no message besides.
    costs = dict(zip(reads, found.costs, strict=True))
    loaded = costs["m0/update/loaded/load"]
    assert (loaded.exchange_bytes, loaded.message_bytes) == (128, 0)
    assert [costs[name].exchange_bytes for name in ("n0", "u0")] == [0, 0]


def test_states_in_parts():
    found = model(
        num_replicas=4,
        offload_weight_update_variables=True,
        replicated_optimizer_state_sharding=True,
    )
    assert found.program.remote_bytes == 2 * TENSOR / 4
    one, cost = sets(found, "collective")["m0/update/gathered/all-gather"]
    assert one.writes[0].spec.shape == (64, 64)
    seconds = all_gather_seconds(GC200, TENSOR, Members(4, 4))
    assert cost.cycles == pytest.approx(seconds * 1.33e9, abs=1)
    _, loaded = sets(found, "remote copy")["m0/update/loaded/load"]
    assert loaded.cycles == pytest.approx(
        remote_seconds(GC200, TENSOR // 4, num_ipus=8) * 1.33e9, abs=1
    )


@pytest.mark.parametrize(
    "options",
    [
        {"offload_weight_update_variables": True},
        {"offload_gradient_accumulation_buffers": True},
        {"replicated_weight_sharding": True, "offload_weights": True, "num_replicas": 2},
    ],
)
def test_variables_that_are_too_small_stay(options):
    """Those of this step have all TENSOR bytes: as many are enough, one fewer is not."""
    moved, kept = (model(minimum=TENSOR + more, **options) for more in (0, 1))
    assert moved.program == model(**options).program
    assert moved.program.remote_bytes > 0
    assert (kept.program.remote_bytes, sets(kept, "remote copy")) == (0, {})
    assert variables(kept) == 6 * TENSOR


@pytest.mark.parametrize(
    "options",
    [
        {"offload_weight_update_variables": True},
        {"offload_weight_update_variables": True, "replicated_optimizer_state_sharding": True},
        {"replicated_weight_sharding": True},
        {"replicated_weight_sharding": True, "offload_weights": True},
    ],
)
def test_host_gets_none_of_what_is_written_back(options):
    """The step's new values go to remote memory, or to variables; the loss alone to the host."""
    plain, found = model(num_replicas=2), model(num_replicas=2, **options)
    assert sets(found, "remote copy") or sets(found, "collective") != sets(plain, "collective")
    assert set(found.program.results) - set(found.program.updates) == {"loss"}
    assert found.host_cycles == plain.host_cycles


@pytest.mark.parametrize("offloaded", [False, True])
def test_weights_in_parts(offloaded):
    found = model(num_replicas=2, replicated_weight_sharding=True, offload_weights=offloaded)
    # Of both weights half; of the rest all.
    weights = 0 if offloaded else TENSOR
    assert variables(found) == 4 * TENSOR + weights
    assert found.program.remote_bytes == (TENSOR if offloaded else 0)
    gathered = [name for name in sets(found, "collective") if name.startswith("w1")]
    assert gathered == [
        "w1/stage 1 forward/gathered/all-gather",
        "w1/stage 1 backward/gathered/all-gather",
        "w1/update/gathered/all-gather",
    ]
    reads = {one.name: one.reads for one in found.program.compute_sets}
    assert reads["z1"] == ("h0@ipu1", "w1/stage 1 forward/gathered")
    assert ("u1/shard/store" in reads) == offloaded
    assert found.program.updates.get("u1/shard") == (None if offloaded else "w1")


def test_example_of_remote_memory():
    assert doctest.testmod(exchange).failed == 0
