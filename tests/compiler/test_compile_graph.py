"""The passes in their order, on graphs that are built by hand."""

import dataclasses

import pytest

from ipu_keras.compiler import PASSES, Compilation, compile_graph
from ipu_keras.ir import Graph, Op
from ipu_keras.program import Program, TensorSpec


def step(element):
    return element


def make_program(repeat_count=8):
    return Program(
        name="train",
        step=step,
        infeed=(TensorSpec((8, 3), "float32"),),
        unflatten=tuple,
        repeat_count=repeat_count,
    )


def make_graph():
    body = Graph("body", (Op("x", "MatMul", (TensorSpec((8, 3), "float32"),)),))
    ops = Op("loop", "While", body=("body",)), Op("assign", "AssignVariableOp", stateful=True)
    return Graph("step", ops, {"body": body})


def test_equal_inputs_give_equal_compilations():
    first = compile_graph(make_program(), make_graph())
    second = compile_graph(make_program(), make_graph())
    assert first == second
    assert first != compile_graph(make_program(repeat_count=9), make_graph())


def test_the_compilation_is_finished():
    program, graph = make_program(), make_graph()
    compilation = compile_graph(program, graph)
    assert compilation.program is program
    assert compilation.graph is graph
    assert compilation.executions
    assert compilation.reason


def test_passes_give_new_values():
    start = Compilation(program=make_program(), graph=make_graph())
    copy = dataclasses.replace(start)
    for compiler_pass in PASSES:
        after = compiler_pass(start)
        assert after is not start
        assert start == copy
        start, copy = after, dataclasses.replace(after)
    with pytest.raises(dataclasses.FrozenInstanceError):
        start.reason = "another"


def test_compiling_is_the_passes_in_their_order():
    expected = Compilation(program=make_program(), graph=make_graph())
    for compiler_pass in PASSES:
        expected = compiler_pass(expected)
    assert compile_graph(make_program(), make_graph()) == expected
