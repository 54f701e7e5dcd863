"""Small programs, each way to run them, and what they have to compute."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.host import host_program as host
from ipu_keras.host.plan import plan_host
from ipu_keras.ir import Graph, Op, TensorSpec
from ipu_keras.program import OutfeedMode, Program
from ipu_keras.tracing import graph_of

ALL, LAST = OutfeedMode.ALL, OutfeedMode.LAST
MANY = 66  # more steps than are ever unrolled
X = TensorSpec((4, 3), "float32")


def make_program(
    step, infeed=(X,), unflatten=lambda tensors: tensors[0], repeat_count=3, **options
):
    return Program(
        name="work",
        step=step,
        infeed=infeed,
        unflatten=unflatten,
        repeat_count=repeat_count,
        **options,
    )


def build_as(execution, program, device):
    """As `host.build`, with the host's execution given."""

    step = host.trace(program, for_xla=execution.is_compiled)
    plan = dataclasses.replace(plan_host(program, graph_of(step.function)), executions=(execution,))
    return host.HostCallable(plan, step, device)


def feeds_of(program, seed=0):
    """A super-batch for a program: small integers, which all dtypes hold exactly."""
    random = np.random.default_rng(seed)
    return [
        tf.constant(random.integers(0, 5, (program.repeat_count, *spec.shape)).astype(spec.dtype))
        for spec in program.infeed
    ]


def step_by_step(program, feeds):
    """What the outfeed has to be, by calling the step eagerly."""
    elements = [
        program.unflatten(tuple(feed[step] for feed in feeds))
        for step in range(program.repeat_count)
    ]
    results = [program.step(element) for element in elements]
    if program.outfeed_mode is LAST:
        return tf.nest.map_structure(np.asarray, results[-1])
    return tf.nest.map_structure(lambda *values: np.stack(values), *results)


def assert_same(received, expected):
    tf.nest.assert_same_structure(received, expected)
    for ours, theirs in zip(tf.nest.flatten(received), tf.nest.flatten(expected), strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def ranked(mode, repeat_count, *, stateful):
    """The executions that the compiler may give to such a program."""
    found = set()
    for kind, compiled in itertools.product(["MatMul", "Conv2D"], [None, True, False]):
        program = make_program(
            print, repeat_count=repeat_count, outfeed_mode=mode, compiled=compiled
        )
        graph = Graph("step", (Op("compute", kind), Op("write", "Assign", stateful=stateful)))
        found |= set(plan_host(program, graph).executions)
    return sorted(found, key=lambda execution: execution.value)


def cases(*, stateful):
    return [
        pytest.param(
            execution, mode, repeat_count, id=f"{execution.value}-{mode.value}-{repeat_count}"
        )
        for mode, repeat_count in itertools.product([ALL, LAST], [1, 3, MANY])
        for execution in ranked(mode, repeat_count, stateful=stateful)
    ]


ANY_PROGRAM = pytest.mark.parametrize(("execution", "mode", "repeat_count"), cases(stateful=False))
PROGRAM_WITH_STATE = pytest.mark.parametrize(
    ("execution", "mode", "repeat_count"), cases(stateful=True)
)
