"""Reports of programs that are built by hand, for tests of pages."""

from hlo_graphs import argument, graph, op, staged_step, variable

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.machine.target import TARGETS
from ipu_keras.program import Pipeline
from ipu_keras.report.report import Report

GC200 = TARGETS["gc200"]
SECTIONS = [
    "summary",
    "memory",
    "values",
    "liveness",
    "trace",
    "tree",
    "layers",
    "roofline",
    "families",
    "compute-sets",
    "operations",
    "hardware",
    "error-bands",
    "glossary",
]


def program(layer="first"):
    return graph(
        argument("x", 1472, 64),
        variable("w", 1472, 64, result=1),
        op("a", "add", (1472, 64), "x", "w", layer=layer),
        op("b", "sort", (1472, 64), "a", layer="second", dimensions=(0,)),
        op("new", "multiply", (1472, 64), "w", "b", layer="sgd"),
        results=("b", "new"),
    )


def report(of=None, target=GC200, name="step", batch_size=None, **options):
    model = model_graph(name, of or program(), target, CostOptions(**options))
    return Report.of(model, batch_size=batch_size)


def pipelined(num_replicas=1):
    """The report of four stages, which are on as many IPUs."""
    return report(
        staged_step(4),
        batch_size=64,
        gradient_accumulation_count=8,
        steps_per_execution=16,
        num_replicas=num_replicas,
        pipeline=Pipeline(device_mapping=(0, 1, 2, 3)),
    )
