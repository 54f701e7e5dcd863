"""The choice of the host's execution, on graphs that are built by hand.

What is asked here holds for every choice there is: which of several right ones
is the fastest is measured in the benchmarks.
"""

import itertools

import pytest

from ipu_keras.compiler import Compilation
from ipu_keras.compiler.host_execution import CONVOLUTIONS, choose_host_execution
from ipu_keras.ir import Graph, Op
from ipu_keras.program import HostExecution, OutfeedMode, Program

MATMUL = Op("dense/MatMul", "MatMul")
CONVOLUTION = Op("conv2d/convolution", "Conv2D")
CONVOLUTION_GRADIENT = Op("conv2d/gradient", "Conv2DBackpropFilter")
NORMALIZATION = Op("batch_normalization/Rsqrt", "Rsqrt")
ASSIGN = Op("assign", "AssignAddVariableOp", stateful=True)

# Their steps may run in any order, so they carry nothing from one to the next.
OUT_OF_ORDER = {HostExecution.PARALLEL_LOOP}


def nested(*ops):
    """A graph with these operations in the body of a loop."""
    loop = Op("while", "While", body=("cond", "body"))
    return Graph("step", (loop,), {"cond": Graph("cond", ()), "body": Graph("body", ops)})


def flat(*ops):
    return Graph("step", ops)


def choose(graph, onednn=False, **options):
    arguments = {"name": "train", "step": print, "infeed": (), "unflatten": tuple}
    program = Program(**{**arguments, "repeat_count": 8, **options})
    return choose_host_execution(Compilation(program=program, graph=graph, onednn=onednn))


EVERY_CASE = list(
    itertools.product(
        [flat, nested],
        [(MATMUL,), (CONVOLUTION,), (ASSIGN,), (MATMUL, ASSIGN), (CONVOLUTION, ASSIGN), ()],
        [None, True, False],
        list(OutfeedMode),
        [1, 3, 32],
    )
)


@pytest.mark.parametrize(("build", "ops", "compiled", "mode", "repeat_count"), EVERY_CASE)
def test_every_case(build, ops, compiled, mode, repeat_count):
    graph = build(*ops)
    chosen = choose(graph, compiled=compiled, outfeed_mode=mode, repeat_count=repeat_count)

    assert chosen.executions
    assert len(set(chosen.executions)) == len(chosen.executions)
    assert chosen.reason
    # Something is left when XLA lacks an operation.
    assert not chosen.executions[-1].is_compiled
    if ASSIGN in ops:
        assert not OUT_OF_ORDER & set(chosen.executions)
    if compiled is not None:
        assert chosen.executions[0].is_compiled is compiled
    if compiled is False:
        assert not any(execution.is_compiled for execution in chosen.executions)
    # The rest of the value is handed on.
    assert chosen.graph is graph
    assert chosen.program.compiled is compiled


@pytest.mark.parametrize("build", [flat, nested])
def test_a_convolution_is_no_part_of_a_compiled_loop(build):
    chosen = choose(build(MATMUL, CONVOLUTION, ASSIGN))
    assert HostExecution.COMPILED_LOOP not in chosen.executions
    assert "convolution conv2d/convolution" in chosen.reason


@pytest.mark.parametrize("kind", sorted(CONVOLUTIONS))
def test_kinds_of_convolutions(kind):
    assert HostExecution.COMPILED_LOOP not in choose(flat(Op("c", kind), ASSIGN)).executions


@pytest.mark.parametrize("build", [flat, nested])
def test_training_without_convolution_is_compiled(build):
    chosen = choose(build(MATMUL, ASSIGN), repeat_count=32)
    assert chosen.executions[0].is_compiled
    assert "no convolution" in chosen.reason


@pytest.mark.parametrize("compiled", [True, False])
def test_what_was_asked_for_is_the_reason(compiled):
    assert f"jit_compile={compiled}" in choose(flat(CONVOLUTION), compiled=compiled).reason


def test_reads_and_calls_carry_no_state():
    read = Op("read", "ReadVariableOp")
    call = Op("call", "StatefulPartitionedCall", body=("f",))
    graph = Graph("step", (read, call), {"f": Graph("f", (MATMUL,))})
    assert set(choose(graph).executions) & OUT_OF_ORDER


def test_a_state_in_a_function_that_nothing_calls():
    graph = Graph("step", (MATMUL,), {"f": Graph("f", (ASSIGN,))})
    assert choose(graph) == choose(Graph("step", (MATMUL,), {"f": Graph("f", (ASSIGN,))}))
    assert set(choose(graph).executions) & OUT_OF_ORDER


@pytest.mark.parametrize("compiled", [None, True])
def test_a_compiled_convolution_stands_outside_of_loops(compiled):
    for ops in itertools.permutations([CONVOLUTION, ASSIGN, NORMALIZATION]):
        chosen = choose(flat(*ops), compiled=compiled)
        assert HostExecution.COMPILED_LOOP not in chosen.executions


def test_normalized_convolutions_are_compiled_for_inference_without_onednn():
    inference = flat(CONVOLUTION, NORMALIZATION)
    assert choose(inference).executions[0].is_compiled
    assert choose(inference).reason == "normalized convolution conv2d/convolution"
    assert not choose(inference, onednn=True).executions[0].is_compiled
    training = flat(CONVOLUTION, NORMALIZATION, CONVOLUTION_GRADIENT)
    assert not choose(training).executions[0].is_compiled


def test_steps_without_state_are_not_kept_in_one_loop():
    assert choose(flat(MATMUL)).executions[0] is HostExecution.COMPILED_STEPS
    assert choose(flat(MATMUL, ASSIGN)).executions[0] is HostExecution.COMPILED_LOOP
