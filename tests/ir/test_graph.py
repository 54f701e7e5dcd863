"""Graphs as frozen values."""

import dataclasses

import pytest

from ipu_keras.ir import Graph, Op, TensorSpec


def op(name, *body):
    return Op(name=name, kind="Call" if body else "Add", body=body)


def names(graph):
    return [op.name for op in graph.walk()]


def test_walk_of_a_flat_graph():
    assert names(Graph("step", (op("a"), op("b"), op("c")))) == ["a", "b", "c"]


def test_walk_of_nothing():
    assert names(Graph("step", ())) == []


def test_walk_of_nested_bodies():
    # step: a, loop ── body: b, branch ┬─ then: c
    #                                  └─ else: d
    functions = {
        "body": Graph("body", (op("b"), op("branch", "then", "else"))),
        "then": Graph("then", (op("c"),)),
        "else": Graph("else", (op("d"),)),
    }
    graph = Graph("step", (op("a"), op("loop", "body")), functions)
    assert names(graph)[:2] == ["a", "loop"]
    assert sorted(names(graph)) == ["a", "b", "branch", "c", "d", "loop"]


def test_walk_visits_a_body_once():
    # first ─┐
    #        ├─ shared ── inner
    # second ┘
    functions = {
        "shared": Graph("shared", (op("x"), op("deeper", "inner"))),
        "inner": Graph("inner", (op("y"),)),
    }
    graph = Graph("step", (op("first", "shared"), op("second", "shared", "inner")), functions)
    assert sorted(names(graph)) == ["deeper", "first", "second", "x", "y"]


def test_walk_of_a_recursive_function():
    functions = {"f": Graph("f", (op("again", "f"),))}
    assert names(Graph("step", (op("call", "f"),), functions)) == ["call", "again"]


def test_walk_ignores_functions_that_nothing_calls():
    assert names(Graph("step", (op("a"),), {"f": Graph("f", (op("b"),))})) == ["a"]


def test_walk_of_a_call_to_the_unknown():
    assert names(Graph("step", (op("call", "elsewhere"),))) == ["call"]


def test_walk_reads_bodies_of_the_whole_graph_only():
    # The functions of a function are all in the table of the outermost graph.
    inner = Graph("f", (op("call", "g"),), {"g": Graph("g", (op("hidden"),))})
    assert names(Graph("step", (op("a", "f"),), {"f": inner})) == ["a", "call"]


def test_graphs_and_ops_are_values():
    first, second = op("a"), op("a")
    assert first == second
    assert hash(first) == hash(second)
    assert Graph("step", (first,)) == Graph("step", (second,))
    assert Graph("step", (first,)) != Graph("other", (first,))
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.kind = "Mul"


def test_defaults_of_an_op():
    made = Op("a", "Relu")
    assert made.outputs == ()
    assert made.body == ()
    assert made.stateful is False
    assert Op("a", "Relu", (TensorSpec((2,), "float32"),)) != made


def test_what_a_graph_is_made_of_includes_what_it_calls():
    body = Graph("body", (Op("add", "AssignAddVariableOp", stateful=True),))
    graph = Graph("step", (op("x"), Op("loop", "While", body=("body",))), {"body": body})
    assert graph.kinds == {"Add", "While", "AssignAddVariableOp"}
    assert graph.writes_state
    assert not Graph("step", graph.ops).writes_state
    assert Graph("step", ()).kinds == set()
