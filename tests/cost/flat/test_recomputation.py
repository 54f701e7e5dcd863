"""What runs again for the gradient, on programs built by hand."""

from dataclasses import replace

import pytest
from hlo_graphs import (
    argument,
    graph,
    inner_parameter,
    op,
    spec,
    training_step,
    variable,
    with_checkpoint,
)

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.liveness import lifetimes, schedule
from ipu_keras.cost.flat.recomputation import recompute
from ipu_keras.cost.passes import model_graph
from ipu_keras.ir import Op
from ipu_keras.machine.target import TARGETS

GC200 = TARGETS["gc200"]


def names(program):
    return [one.name for one in program.compute_sets]


def test_segments_run_again_before_their_gradient():
    """Four layers with five stored values, in two segments.

    l0 l1 | l2 l3 loss: `h1` is the checkpoint, and `z` is never stored. The second segment stays.
    """
    before = schedule(flatten(training_step(4)))
    program = recompute(before)
    again = ["z0/recomputed", "h0/recomputed"]
    position = names(program).index("z0/recomputed")
    assert names(program)[position : position + 2] == again
    assert [name for name in names(program) if name not in again] == names(before)
    # The first that needs `h0` follows; `dz1` reads the checkpoint.
    reads = {one.name: one.reads for one in program.compute_sets}
    assert program.compute_sets[position + 2].name == "dw1"
    assert reads["dw1"] == ("h0/recomputed", "dz1")
    assert reads["dz1"] == ("dh1", "h1")
    assert reads["dz0"] == ("dh0", "h0/recomputed")
    assert reads["h0/recomputed"] == ("z0/recomputed",)
    repeated = program.compute_sets[position]
    assert (repeated.layer, repeated.backward, repeated.flops) == ("l0", True, 2 * 64**3)
    # `h0` leaves memory once `z1` is done.
    assert lifetimes(program)["h0"].last == names(program).index("z1")
    assert lifetimes(before)["h0"].last == names(before).index("dz0")


def test_memory_for_cycles():
    """Of 64 layers with 4 MB of activations each, about two square roots stay."""
    step = training_step(64, batch=16384, width=64)
    kept, dropped = (
        model_graph("step", step, GC200, CostOptions(recomputation=again))
        for again in (False, True)
    )
    size = 4 * 16384 * 64
    assert kept.memory.live_by_position.max() > 64 * size
    assert dropped.memory.live_by_position.max() < 32 * size
    assert kept.cycles_per_step < dropped.cycles_per_step < 1.5 * kept.cycles_per_step


def test_activations_that_are_too_large_fit():
    """1.3 GB of activations; an IPU has 0.9 GB."""
    step = training_step(81, batch=65536, width=64)
    kept, dropped = (
        model_graph("step", step, GC200, CostOptions(recomputation=again))
        for again in (False, True)
    )
    assert not kept.memory.fits
    assert dropped.memory.fits
    assert dropped.cycles_per_step > kept.cycles_per_step


def test_what_takes_more_code_than_it_saves_is_kept():
    """Sixteen layers of 4 KiB of activations each, which is 128 bytes on 32 tiles.

    At the fullest position, no more than 16 of them are alive, 2 KiB of a tile at the
    very worst; twelve repeated layers have two compute sets each, whose code alone is
    24 x (24 + 48) bytes, and vertices. Of 4 MiB each, or 2.8 KiB of a tile, they pay.
    """
    options = CostOptions(recomputation=True)
    small, large = (training_step(16, batch=batch, width=64) for batch in (16, 16384))
    found, plain = model_graph("step", small, GC200, options), model_graph("step", small, GC200)
    assert "z0/recomputed" in names(recompute(schedule(flatten(small))))
    assert names(found.program) == names(plain.program)
    assert (found.memory.peak_by_tile == plain.memory.peak_by_tile).all()
    assert (found.costs, found.host_cycles) == (plain.costs, plain.host_cycles)
    again = model_graph("step", large, GC200, options)
    assert "z0/recomputed" in names(again.program)
    assert again.memory.max_tile_bytes < model_graph("step", large, GC200).memory.max_tile_bytes
    assert (found.kept, again.kept) == (None, None)


def test_every_read_is_of_what_was_made():
    program = recompute(schedule(flatten(training_step(30))))
    made = {name for name, value in program.values.items() if value.role != "activation"}
    for one in program.compute_sets:
        assert made.issuperset(one.reads), one.name
        made.update(value.name for value in one.writes)
    assert made == set(program.values)


def layers_above(value):
    """Three layers that read a value, c to e, and the gradients of the upper two, ge and gd."""
    return (
        op("c", "tanh", (100,), value, layer="two"),
        op("d", "tanh", (100,), "c", layer="three"),
        op("e", "tanh", (100,), "d", layer="four"),
        op("ge", "multiply", (100,), "e", "d", layer="four", backward=True),
        op("gd", "multiply", (100,), "ge", "c", layer="three", backward=True),
    )


@pytest.mark.parametrize(("kind", "again"), [("pad", True), ("random", True), ("fft", False)])
def test_only_what_gives_the_same_comes_again(kind, again):
    program = recompute(
        flatten(
            graph(
                argument("x", 100),
                op("seed", "slice", (2,), "x", layer="one"),
                op("a", kind, (100,), "seed", layer="one"),
                op("b", "tanh", (100,), "a", layer="one"),
                *layers_above("b"),
                op("gb", "multiply", (100,), "gd", "a", layer="one", backward=True),
            )
        )
    )
    # A seed fits on one tile and is kept.
    repeated = [one.reads for one in program.compute_sets if "/recomputed" in one.name]
    assert repeated == ([("seed",)] if again else [])
    reader = next(one for one in program.compute_sets if one.name == "gb")
    assert reader.reads == ("gd", "a/recomputed" if again else "a")


def test_variables_are_read_again_before_they_are_updated():
    """The update of `w` needs no activation of its segment, and comes early."""
    program = recompute(
        flatten(
            graph(
                argument("x", 100),
                variable("w", 100, result=0),
                op("a", "add", (100,), "x", "w", layer="one"),
                op("b", "tanh", (100,), "a", layer="one"),
                *layers_above("b"),
                op("u", "subtract", (100,), "w", "gd", layer="sgd"),
                op("gb", "multiply", (100,), "gd", "a", layer="one", backward=True),
                results=("u", "gb"),
            )
        )
    )
    order = names(program)
    assert order.index("a/recomputed") == order.index("u") - 1


def test_what_a_loop_changes_in_place_stays():
    """The gradient needs what the loop made of `s`, which making `s` again would not give."""
    body = graph(
        inner_parameter("i", 100),
        op("next", "tanh", (100,), "i", layer="one"),
    )
    condition = graph(inner_parameter("i", 100), op("more", "compare", (), "i", layer="one"))
    while_loop = Op(
        "while",
        "while",
        (spec(100),),
        inputs=("s",),
        body=("condition", "body"),
        attributes={"trip_count": 5, "max_trip_count": None},
    )
    program = flatten(
        graph(
            argument("x", 100),
            op("s", "tanh", (100,), "x", layer="one"),
            while_loop,
            op("b", "tanh", (100,), "while", layer="one"),
            *layers_above("b"),
            op("gs", "multiply", (100,), "gd", "while", layer="one", backward=True),
            functions={"condition": condition, "body": body},
        )
    )
    assert names(recompute(program)) == names(program)


def test_a_gradient_in_the_midst_of_its_segment():
    """XLA may order it so; then nothing of the segment runs again."""
    program = flatten(
        graph(
            argument("x", 100),
            op("a", "tanh", (100,), "x", layer="one"),
            op("ga", "multiply", (100,), "a", "x", layer="one", backward=True),
            op("b", "tanh", (100,), "a", layer="one"),
            op("o", "tanh", (100,), "b", layer="one"),
            *layers_above("o"),
            op("gb", "multiply", (100,), "gd", "b", layer="one", backward=True),
            results=("ga", "gb"),
        )
    )
    assert names(recompute(program)) == names(program)


def test_checkpoints_stay_and_end_segments():
    """l0 l1 | l2 l3 loss becomes l0 | l1 | l2 l3 loss, of which `h0` and `h1` are kept."""
    before = schedule(flatten(training_step(4)))
    marked = recompute(replace(before, checkpoints=("h0",)))
    assert names(marked) == names(before)
    assert set(names(recompute(before))) - set(names(before)) == {"z0/recomputed", "h0/recomputed"}


def again(program):
    """The end of the program: from what the first segment computes again on."""
    found = names(program)[names(program).index("dz3") + 1 :]
    return [name.removesuffix("/recomputed") for name in found]


def test_checkpoints_shorten_what_is_computed_at_once():
    """Sixteen layers are cut into four segments, of which a checkpoint halves the first.

    l0 l1 l2 l3 | ... becomes l0 l1 | l2 l3 | ...: `h0` comes when l1 needs it.
    """
    step, shape = training_step(16, batch=16384, width=64), (16384, 64)
    options = CostOptions(recomputation=True)
    whole = model_graph("step", step, GC200, options)
    halved = model_graph("step", with_checkpoint(step, "h1", shape), GC200, options)
    # Gradients of activations read a weight before it is updated.
    behind = ["dw3", "dh2", "u3", "dz2", "dw2", "dh1", "u2", "dz1"]
    last = ["dw1", "u1", "dz0", "dw0", "u0"]
    assert again(whole.program) == ["z0", "h0", "z1", "h1", "z2", "h2", *behind, "dh0", *last]
    assert again(halved.program) == ["z2", "h2", *behind, "dh0", "z0", "h0", *last]
    before, now = (
        found.memory.live_by_position[names(found.program).index("dw3")]
        for found in (whole, halved)
    )
    assert before - now >= 4 * 16384 * 64  # at least `h0` is not there yet


def test_without_recomputation_checkpoints_change_nothing():
    step = training_step(4)
    plain = model_graph("step", step, GC200)
    marked = model_graph("step", with_checkpoint(step, "z1"), GC200)
    assert names(marked.program) == names(plain.program)
    assert marked.costs == plain.costs
    assert marked.memory.max_tile_bytes == plain.memory.max_tile_bytes


def test_a_checkpoint_is_written_to_memory():
    """Else `z` would be a part of the vertex that makes `h`."""
    step = graph(
        argument("x", 100),
        op("z", "tanh", (100,), "x", layer="one"),
        op("h", "sine", (100,), "z", layer="one"),
    )
    options = CostOptions(recomputation=True)
    assert names(model_graph("step", step, GC200, options).program) == ["h"]
    marked = with_checkpoint(step, "z", (100,))
    assert names(model_graph("step", marked, GC200, options).program) == ["z", "h"]


def test_without_a_gradient_nothing_changes():
    program = flatten(
        graph(argument("x", 100), *(op(f"y{k}", "tanh", (100,), "x") for k in range(20)))
    )
    assert recompute(program) is program


def test_a_choice_that_is_none():
    with pytest.raises(ValueError, match=r"True or False\. Received: recomputation='yes'"):
        CostOptions(recomputation="yes")
