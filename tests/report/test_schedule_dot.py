"""Schedules in Graphviz's language."""

from hlo_graphs import argument, graph, op, variable

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.machine.target import TARGETS
from ipu_keras.report.report import Report
from ipu_keras.report.schedule_dot import schedule_dot


def test_a_schedule():
    #   x ─▶ sort ─▶ (add w, one sum) ─▶ new value of w
    step = graph(
        argument("x", 8),
        variable('w"1', 8, result=0),
        op("sorted", "sort", (8,), "x", layer="order", dimensions=(0,)),
        op("new", "add", (8,), 'w"1', "sorted"),
        results=("new",),
    )
    model = model_graph("train", step, TARGETS["gc200"], CostOptions())
    first, second = (row.cycles for row in Report.of(model).rows)
    assert schedule_dot(model) == (
        'digraph "train" {\n'
        "  node [shape=box];\n"
        '  v0 [label="argument x", shape=oval];\n'
        '  v1 [label="variable w\\"1", shape=oval];\n'
        f'  s0 [label="0: sorted\\nsort, {first} cycles\\norder"];\n'
        "  v0 -> s0;\n"
        f'  s1 [label="1: new\\nelementwise, {second} cycles"];\n'
        "  s0 -> s1 [style=dashed];\n"
        "  v1 -> s1;\n"
        "  s0 -> s1;\n"
        "}\n"
    )


def test_backslashes_are_kept():
    model = model_graph("a\\b", graph(argument("x", 8)), TARGETS["gc200"], CostOptions())
    assert schedule_dot(model).startswith('digraph "a\\\\b" {')
