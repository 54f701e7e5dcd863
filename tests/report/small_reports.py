"""Reports of a small step that is built by hand."""

from hlo_graphs import argument, graph, op, variable

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.machine.target import TARGETS
from ipu_keras.report.report import Report

GC200 = TARGETS["gc200"]


def program():
    return graph(
        argument("x", 1472, 64),
        variable("w", 1472, 64, result=1),
        op("a", "add", (1472, 64), "x", "w", layer="first"),
        op("b", "sort", (1472, 64), "a", layer="second", dimensions=(0,)),
        op("c", "tanh", (1472, 64), "b", layer="first"),
        op("new", "multiply", (1472, 64), "w", "c", layer="sgd"),
        results=("c", "new"),
    )


def report(target=GC200, batch_size=None, **options):
    model = model_graph("step", program(), target, CostOptions(**options))
    return Report.of(model, batch_size=batch_size)
