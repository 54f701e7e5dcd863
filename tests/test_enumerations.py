"""Every member of every enumeration, wherever one is told from another.

An enumeration that is added has to be named here, and a member that is added has to pass.
"""

import ast
from itertools import product
from pathlib import Path

import keras
import numpy as np
import pytest
from hlo_graphs import forward_only, staged_step
from report_rows import row

from ipu_keras.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    IPUConfig,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    StochasticRoundingBehaviour,
)
from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.pipeline.schedule import Activity, Phase
from ipu_keras.host.plan import HostExecution
from ipu_keras.host.step_loops import Collect
from ipu_keras.ipu_outfeed_queue import IPUOutfeedMode
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.system import SYSTEM
from ipu_keras.machine.target import TARGETS, Confidence
from ipu_keras.popart.operations.values import Order
from ipu_keras.popart.options.option import Effect
from ipu_keras.profiling.configured_options import configured_target
from ipu_keras.program import OutfeedMode, Pipeline
from ipu_keras.program.compilation_history import Signature, differences
from ipu_keras.report.html_pipeline import pipeline_picture
from ipu_keras.report.report import Report
from ipu_keras.report.rows import group
from ipu_keras.settings.enumerations import SyntheticDataCategory
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod as Method
from ipu_keras.settings.pipeline_choices import PipelineSchedule, RecomputationMode, SelectionOrder
from ipu_keras.store.canonical_json import from_json, to_json

PACKAGES = [Path(__file__).resolve().parent.parent / name for name in ("ipu_keras", "ipu_addons")]

# The options of `IPUConfig` that are one of a few, and what of that is no news to say of them.
OPTIONS = {
    DeviceConnectionType: "device_connection.type",
    MergeRemoteBuffersBehaviour: "optimizations.merge_remote_buffers",
    SchedulingAlgorithm: "scheduling.algorithm",
    SelectionOrder: "selection_order",
    StochasticRoundingBehaviour: "floating_point_behaviour.esr",
}
QUIET = {
    *DeviceConnectionType,  # they have an effect
    MergeRemoteBuffersBehaviour.IF_BENEFICIAL,
    SchedulingAlgorithm.CHOOSE_BEST,
    *StochasticRoundingBehaviour,
    *SelectionOrder,
}
ENUMERATIONS = [
    *OPTIONS,
    IPUOutfeedMode,  # the tests of loops and feeds go through these
    Confidence,
    ExecutionProfileType,  # nothing depends on which it is
    SyntheticDataCategory,  # that of flags is tested with them
    Method,
    OutfeedMode,
    Phase,
    PipelineSchedule,
    RecomputationMode,
    Activity,
    # The tests of `host/step_graphs.py` go through these.
    Collect,
    HostExecution,
    # Those of `popart/operations/values.py`.
    Order,
    # What docs/popart.md says of each option.
    Effect,
]


@pytest.fixture(autouse=True)
def unconfigured():
    SYSTEM.reset()
    yield
    SYSTEM.reset()


def test_none_is_left_out():
    sources = (path.read_text("utf-8") for package in PACKAGES for path in package.rglob("*.py"))
    classes = (
        node
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
    )
    found = {one.name for one in classes if "enum." in " ".join(map(ast.unparse, one.bases))}
    # The base of those of PopART, whose tests are beside the others of options, and one that no
    # user is given.
    assert found - {"Enumeration", "FloatingPointException"} == {
        kind.__name__ for kind in ENUMERATIONS
    }


@pytest.mark.parametrize("member", [one for kind in ENUMERATIONS for one in kind], ids=str)
def test_its_docstring_says_what_it_is(member):
    assert f"`{member.name}`" in type(member).__doc__


@pytest.mark.parametrize("member", [one for kind in OPTIONS for one in kind], ids=str)
def test_options_of_a_configuration(member, recwarn):
    config = IPUConfig()
    *path, name = OPTIONS[type(member)].split(".")
    node = config
    for part in path:
        node = getattr(node, part)
    setattr(node, name, member)
    config.device_connection.version = "ipu1"
    config.configure_ipu_system()
    told = [f"no effect today: {OPTIONS[type(member)]}. " in str(one.message) for one in recwarn]
    assert told == [True] * (member not in QUIET)
    # Where hardware is never attached, the version says what it is.
    never = member in (DeviceConnectionType.PRE_COMPILE, DeviceConnectionType.NEVER)
    assert configured_target() is TARGETS["gc2" if never else "gc200"]


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("order", SelectionOrder)
def test_an_order_has_each_ipu_once(order, pipelined):
    found = [order.ipu_at(position, 8, pipelined=pipelined) for position in range(8)]
    assert sorted(found) == list(range(8))


@pytest.mark.parametrize(("before", "after"), list(product(OutfeedMode, repeat=2)))
def test_other_results_are_a_reason_to_compile_again(before, after):
    old, new = (
        Signature(
            tensors=(("data", TensorSpec((2,), "float32")),),
            repeat_count=1,
            outfeed_mode=mode,
            compiled=None,
        )
        for mode in (before, after)
    )
    there, back = differences(new, old), differences(old, new)
    assert len(there) == len(back) == (before is not after)
    assert (there == back) == (before is after)


@pytest.mark.parametrize("method", Method)
def test_accumulated_gradients(method):
    """Of a weight by which 1 and then 3 are multiplied."""
    IPUConfig().configure_ipu_system()
    with IPUStrategy().scope():
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((1,)), layer])
        model.compile(keras.optimizers.SGD(1.0), lambda y, outputs: outputs, steps_per_execution=2)
        model.set_gradient_accumulation_options(2, gradient_accumulation_reduction_method=method)
        model.fit(np.float32([[1], [3]]), np.zeros((2, 1)), batch_size=1, shuffle=False, verbose=0)
    assert layer.kernel.numpy().item() == (-4 if method is Method.SUM else -2)


def pipeline_report(training=True, **choices):
    """A step of three stages with two layers each."""
    step = staged_step(6, stages=[0, 0, 1, 1, 2, 2])
    counts = {"gradient_accumulation_count": 12} if training else {}
    options = CostOptions(
        pipeline=Pipeline(device_mapping=(0, 1, 2), **choices),
        recomputation=training,
        steps_per_execution=12,
        **counts,
    )
    step = step if training else forward_only(step)
    return Report.of(model_graph("step", step, TARGETS["gc200"], options))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("schedule", PipelineSchedule)
def test_schedules(schedule, training):
    report = pipeline_report(training, schedule=schedule)
    assert report.pipeline.schedule == schedule.name
    assert report.to_dict()["options"]["pipeline"]["schedule"] == schedule.name
    assert from_json(CostOptions, to_json(report.model.options)) == report.model.options


@pytest.mark.parametrize("mode", RecomputationMode)
def test_recomputation(mode):
    """The schedule that all of them go with."""
    report = pipeline_report(schedule=PipelineSchedule.Grouped, recomputation_mode=mode)
    assert report.to_dict()["options"]["pipeline"]["recomputation_mode"] == mode.name
    assert from_json(CostOptions, to_json(report.model.options)) == report.model.options
    assert report.pipeline.stages[0].recompute_cycles > 0


def test_work_and_phases(tmp_path):
    """Whatever IPUs do in a pipeline is in its picture, in a colour that is explained."""
    report = pipeline_report(schedule=PipelineSchedule.Grouped)
    timing = report.pipeline_timing
    events = [event for event in timing.events if event.cycles]
    assert {event.instruction.part.work for event in events} == set(Activity)
    bars = pipeline_picture(timing).bars
    assert [bar.text.partition(":")[0] for bar in bars] == [str(one.instruction) for one in events]
    report.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert {bar.style for bar in bars if f'<span class="swatch {bar.style}">' not in page} == set()
    assert set(report.pipeline.cycles_by_phase) == {phase.value for phase in Phase}


@pytest.mark.parametrize(("one", "other"), list(product(Confidence, repeat=2)))
def test_a_group_is_as_sure_as_its_least_sure_row(one, other):
    rows = [row(name, confidence=each.value) for name, each in (("a", one), ("b", other))]
    surest_first = [Confidence.CALIBRATED, Confidence.DERIVED, Confidence.GUESSED]
    assert group("both", rows).confidence == max(one, other, key=surest_first.index).value
