"""Normalizations that are operations of Poplar's libraries, on graphs built by hand."""

from dataclasses import replace

import pytest
from hlo_graphs import graph, missing_references
from normalization_graphs import C, N, batch_norm, gradient, passes

from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.fusion import fuse
from ipu_keras.cost.flat.joint_normalizations import with_normalized_bodies
from ipu_keras.cost.passes import model_graph
from ipu_keras.ir import num_elements
from ipu_keras.machine.target import TARGETS
from ipu_keras.tracing.poplar_calls import with_poplar_calls

GC200 = TARGETS["gc200"]
RESULTS = ("dx", "dbeta", "dgamma")


def plain_step(results=RESULTS, layer="bn"):
    """x ─ batch norm ─ y ─ next/dy ─ gradient"""
    names = {"dy": "next/dy"}
    ops = [
        replace(
            one,
            name=names.get(one.name, one.name),
            inputs=tuple(names.get(name, name) for name in one.inputs),
            layer=one.layer.replace("bn", layer),
        )
        for one in (*batch_norm(), *gradient())
    ]
    return graph(*ops, results=results)


def marked_step(**options):
    """The same, as one operation and its gradient."""

    def mark(one):
        if one.kind in ("parameter", "constant") or one.name == "next/dy":
            return one
        scope = "gradient_tape/bn/poplar.Norm" if one.backward else "bn/poplar.Norm"
        return replace(one, poplar_operation=scope)

    step = plain_step(**options)
    found = with_poplar_calls(replace(step, ops=tuple(map(mark, step.ops))))
    assert missing_references(found) == []
    return found


def bodies(program):
    return [one for one in program.compute_sets if one.body is not None]


@pytest.mark.parametrize("layer", ["bn", ""])
def test_passes_are_those_of_the_whole(layer):
    """And what has no layer needs none, as it is known what belongs together."""
    forward, backward = bodies(with_normalized_bodies(flatten(marked_step(layer=layer))))
    assert [members for members, *_ in passes(forward.body)] == ["sum power", "scaled shifted"]
    assert [members for members, *_ in passes(backward.body)] == [
        "dbeta product dgamma",
        "centred from_var from_y dx32",
    ]


def test_the_gradient_reads_the_input_and_vectors():
    program = with_normalized_bodies(flatten(marked_step()))
    forward, backward = bodies(program)
    large = [name for name in backward.reads if num_elements(program.values[name].spec) == N * C]
    assert sorted(large) == ["next/dy", "x"]
    # What it reads of the operation is a result of that one, and nothing else is one besides y.
    made = {value.name: value.spec for value in forward.writes}
    assert sorted(num_elements(spec) for spec in made.values()) == [C, C, N * C]
    assert {name for name in backward.reads if name in made} < set(made)
    assert set(fuse(program).values) >= {*backward.reads, *forward.reads, *made}


def test_a_mark_changes_a_name_and_little_else():
    plain, marked = (model_graph("step", one, GC200) for one in (plain_step(), marked_step()))
    assert [one.family for one in marked.program.compute_sets] == ["Norm", "elementwise", "Norm"]
    assert marked.cycles_per_step == pytest.approx(plain.cycles_per_step, rel=0.05)
    # `y` may not take the place of `x`, nor `dx` that of the gradient.
    assert marked.memory.max_tile_bytes == pytest.approx(plain.memory.max_tile_bytes, rel=0.1)


def test_what_others_use_too_stays_a_result():
    step = marked_step(results=(*RESULTS, "squares"))
    program = with_normalized_bodies(flatten(step))
    forward, _ = bodies(program)
    assert program.results[-1] in {value.name for value in forward.writes}
    assert model_graph("step", step, GC200).cycles_per_step > 0


def test_an_operation_that_normalizes_nothing_is_as_it_was():
    step = marked_step()
    functions = {
        name: replace(
            body, ops=tuple(replace(o, kind="sqrt") if o.kind == "rsqrt" else o for o in body.ops)
        )
        for name, body in step.functions.items()
    }
    before = flatten(replace(step, functions=functions))
    after = with_normalized_bodies(before)
    assert [one.reads for one in after.compute_sets] == [one.reads for one in before.compute_sets]
    assert [one.writes for one in after.compute_sets] == [one.writes for one in before.compute_sets]
    assert not any(passes(one.body) for one in bodies(after))
