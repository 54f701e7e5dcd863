"""Brings what operations of Poplar's libraries consist of into the form that an IPU executes."""

from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram
from ipu_keras.cost.flat.fusion import fuse
from ipu_keras.cost.flat.in_place import share_memory
from ipu_keras.cost.flat.liveness import schedule
from ipu_keras.cost.flat.recurrent_steps import RECURRENT, with_products_in_steps
from ipu_keras.cost.flat.views import with_views


def with_bodies_in_order(program: FlatProgram) -> FlatProgram:
    """Takes views in bodies, fuses and orders them, and shares memory, as passes do outside."""
    return replace(program, compute_sets=tuple(map(_in_order, program.compute_sets)))


def _in_order(one: ComputeSet) -> ComputeSet:
    if one.body is None:
        return one
    given = with_products_in_steps(one.body) if one.family in RECURRENT else one.body
    body = share_memory(schedule(with_bodies_in_order(fuse(with_views(given)))))
    return replace(one, body=body, flops=sum(s.flops * s.repeat for s in body.compute_sets))
