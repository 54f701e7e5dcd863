"""Which executables certainly fit."""

import dataclasses

import pytest

from ipu_keras.cost.small_programs import certainly_fits
from ipu_keras.ir import Graph, Op, TensorSpec
from ipu_keras.machine.target import TARGETS
from ipu_keras.program import Pipeline, Program
from ipu_keras.program.executable import Executable

# Of 0.4 of each tile's bytes, nine types of vertices and a compute set take 4,704; the values of
# all ten together may have 6,000.
TARGET = TARGETS["gc200"].with_numbers(
    num_tiles=10, tile_bytes=13_260, memory_element_bytes=0, stack_bytes=0
)


def spec(size):
    return TensorSpec((size,), "float32")


def executable(num_values, num_weights, **options):
    program = Program(name="work", step=abs, infeed=(), unflatten=tuple, repeat_count=1, **options)
    return Executable(
        program=program,
        graph=Graph("step", (Op("a", "Relu", (spec(num_values),)),)),
        host=lambda tensors: None,
        reason="",
        variables=(spec(num_weights),),
    )


@pytest.mark.parametrize(
    ("options", "num_values", "num_weights"),
    [
        ({}, 1000, 500),
        # The update holds each weight with its accumulator, gradient and new value.
        ({"update": abs}, 500, 250),
        # Activations of a batch wait for those of up to three others.
        ({"pipeline": Pipeline(device_mapping=(0, 1))}, 250, 500),
    ],
)
def test_what_is_small(options, num_values, num_weights):
    small = executable(num_values, num_weights, **options)
    assert certainly_fits(small, TARGET)
    assert not certainly_fits(executable(num_values, num_weights + 1, **options), TARGET)
    assert not certainly_fits(executable(num_values + 1, num_weights, **options), TARGET)
    # Half of its tiles hold half of the bytes.
    assert not certainly_fits(small, dataclasses.replace(TARGET, num_tiles=5))
