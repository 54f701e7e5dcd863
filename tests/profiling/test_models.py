"""Models that are made once, whoever asks and whatever they are called."""

import json

import pytest
import tensorflow as tf
from hlo_graphs import graph, loop, op, variable
from models_made import models_made

from ipu_keras import profile
from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.machine.target import TARGETS
from ipu_keras.profiling.models import cached_graph, cached_model, export_model
from ipu_keras.report.report import Report
from ipu_keras.tracing.hlo import hlo_graph

GC200 = TARGETS["gc200"]
OPTIONS = CostOptions()


@pytest.fixture
def built():
    """A function: how many models were made since the test began."""
    with models_made() as made:
        yield lambda: made.count


def step(scale):
    """A step that no other test has, so that no other test has modelled it."""
    return graph(variable("cached", 7, scale), op("y", "tanh", (7, scale), "cached"))


def report_json(name, graph, options=OPTIONS):
    return Report.of(cached_model(name, graph, GC200, options)).to_json()


def test_the_model_is_that_of_the_passes(built):
    first, second = (report_json("loop", loop(19)) for _ in range(2))
    assert first == second == Report.of(model_graph("loop", loop(19), GC200, OPTIONS)).to_json()
    assert built() == 1


def test_names_are_those_asked_for(built):
    for name in ("first", "second"):
        model = cached_model(name, step(3), GC200, OPTIONS)
        assert (model.name, model.graph) == (name, step(3))
    assert built() == 1


def test_other_content_is_another_model(built):
    cached_model("a", step(5), GC200, OPTIONS)
    cached_model("a", step(6), GC200, OPTIONS)
    cached_model("a", step(5), TARGETS["bow"], OPTIONS)
    cached_model("a", step(5), GC200.with_numbers(num_tiles=4), OPTIONS)
    cached_model("a", step(5), GC200, CostOptions(steps_per_execution=2))
    assert built() == 5


def test_profile_models_once(built):
    def halve(x):
        return x * 0.5

    reports = [profile(halve, tf.TensorSpec((11, 13))) for _ in range(2)]
    assert reports[0].to_json() == reports[1].to_json()
    assert built() == 2  # the graph and its model
    profile(halve, tf.TensorSpec((11, 13)), target="bow")
    assert built() == 3


def test_graphs_are_those_of_xla(built):
    @tf.function
    def draw(x):
        for _ in tf.range(21):
            x += tf.random.uniform(tf.shape(x))
        return x

    concrete = draw.get_concrete_function(tf.TensorSpec((5, 13)))
    assert cached_graph(concrete) == cached_graph(concrete) == hlo_graph(concrete)
    assert built() == 1


def test_the_directory_of_the_flags(built, monkeypatch, tmp_path):
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path}")
    cached_model("a", step(17), GC200, OPTIONS)
    (path,) = tmp_path.glob("*.ipu_executable.json")
    model = json.loads(path.read_text())["content"]
    assert [row["name"] for row in model["program"]["compute_sets"]] == ["y"]
    assert model["target"]["name"] == "gc200"


def test_an_exported_model_is_a_file_of_a_cache(built, monkeypatch, tmp_path):
    export_model(model_graph("a", step(23), GC200, OPTIONS), tmp_path)
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path}")
    found = cached_model("b", step(23), GC200, OPTIONS)
    assert built() == 0
    assert Report.of(found).to_json() == report_json("b", step(23))
