"""What a configuration says of programs that are modelled."""

import doctest
import re

import keras
import pytest
import tensorflow as tf

from ipu_keras import last_report, profile, suggest_pipeline
from ipu_keras.config import DeviceConnectionType, IPUConfig, SelectionOrder
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.machine.target import TARGETS
from ipu_keras.ops.functional_ops import outlined_function
from ipu_keras.profiling import configured_options as module
from ipu_keras.profiling.configured_options import (
    computing_target,
    configured_options,
    configured_target,
    memory_proportion,
)
from ipu_keras.settings.flags import ENVIRONMENT_VARIABLE

# The copy of the seed, which both kinds of synthetic data leave.
SEED = 160_002
SPECS = tf.TensorSpec((64, 512)), tf.TensorSpec((64,), tf.int32)


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch):
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    SYSTEM.reset()
    yield
    SYSTEM.reset()


def configured(**options):
    """Configures one IPU; names of options have `__` for a dot."""
    config = IPUConfig()
    for name, value in options.items():
        *path, last = name.split("__")
        node = config
        for part in path:
            node = getattr(node, part)
        setattr(node, last, value)
    config.configure_ipu_system()


def test_the_example():
    assert doctest.testmod(module).failed == 0


def test_without_a_configuration_nothing_is_said():
    assert configured_options() == {}


def test_defaults():
    configured()
    assert configured_options() == {
        "target": TARGETS["gc200"],
        "recomputation": False,
        "convolution_options": None,
        "matmul_options": None,
        "outlining": True,
        "selection_order": SelectionOrder.AUTO,
        "num_io_tiles": 0,
        "place_ops_on_io_tiles": False,
        "io_tile_available_memory_proportion": 0.9,
        "minimum_remote_tensor_size": 128,
        "maximum_cross_replica_sum_buffer_size": 0,
        "maximum_reduce_scatter_buffer_size": 0,
    }


@pytest.mark.parametrize(
    ("convolutions", "matmuls", "most"),
    [(None, None, 0.6), (None, 0.8, 0.8), (0.9, 0.8, 0.9), (0.2, None, 0.6), (0.2, 0.1, 0.2)],
)
def test_the_most_memory_of_products(convolutions, matmuls, most):
    given = [{} if p is None else {"availableMemoryProportion": p} for p in (convolutions, matmuls)]
    configured(convolutions__poplar_options=given[0], matmuls__poplar_options=given[1])
    assert memory_proportion() == most


@pytest.mark.parametrize(
    ("flags", "options", "name", "tiles"),
    [
        ("", {"ipu_model__version": "ipu1", "ipu_model__tiles_per_ipu": 4}, "gc200", 1472),
        ("--use_ipu_model", {}, "gc200", 1472),
        ("--use_ipu_model", {"ipu_model__version": "ipu1"}, "gc2", 1216),
        ("--use_ipu_model", {"ipu_model__tiles_per_ipu": 4}, "gc200", 4),
        ("--use_ipu_model --ipu_model_tiles=8", {}, "gc200", 8),
        ("--use_ipu_model --ipu_model_tiles=8", {"ipu_model__tiles_per_ipu": 4}, "gc200", 8),
        ("", {"device_connection__version": "ipu1"}, "gc200", 1472),
    ],
)
def test_the_hardware(monkeypatch, flags, options, name, tiles):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, flags)
    configured(**options)
    target = configured_target()
    assert (target.name, target.num_tiles) == (name, tiles)


@pytest.mark.parametrize("kind", [DeviceConnectionType.NEVER, DeviceConnectionType.PRE_COMPILE])
def test_hardware_that_is_not_attached(kind):
    configured(device_connection__type=kind, device_connection__version="ipu1")
    assert configured_target() is TARGETS["gc2"]


def classifier():
    model = keras.Sequential([keras.Input((512,)), keras.layers.Dense(512, "relu", name="first")])
    model.add(keras.layers.Dense(4, name="second"))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def product_of(report):
    """The cost of the first layer's product in the forward pass."""
    pairs = zip(report.model.program.compute_sets, report.model.costs, strict=True)
    return next(c for one, c in pairs if one.family == "dot" and not one.backward)


def test_profiles_of_models_in_a_scope_follow_the_configuration():
    plain = product_of(profile(classifier(), *SPECS))
    options = {"availableMemoryProportion": "0.005"}
    configured(matmuls__poplar_options=options, allow_recompute=True)
    with IPUStrategy().scope():
        model = classifier()
    report = profile(model, *SPECS)
    assert product_of(report).temporary_bytes < plain.temporary_bytes
    assert report.model.options.recomputation
    # What is given goes before; models of others have nothing to do with the configuration.
    other = profile(model, *SPECS, matmul_options=None, recomputation=False, target="gc2")
    assert other.model.target.name == "gc2"
    assert profile(model, *SPECS, matmul_options=None).model.costs != report.model.costs
    assert product_of(profile(classifier(), *SPECS)) == plain


def test_reports_of_what_ran_follow_it(monkeypatch):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "--use_ipu_model")
    configured(ipu_model__tiles_per_ipu=16, convolutions__poplar_options={"partialsType": "half"})
    with IPUStrategy().scope():
        model = classifier()
    model.predict(tf.zeros((64, 512)), batch_size=64, verbose=0)
    report = last_report()
    assert report.model.target.num_tiles == 16
    assert report.model.memory.always_live_by_tile.shape[-1] == 16
    assert report.model.options.convolution_options == {"partialsType": "half"}
    assert last_report(target="bow").model.target.num_tiles == 1472


def test_code_of_outlined_functions_is_counted_for_each_call():
    @outlined_function
    def block(x):
        return tf.tanh(tf.matmul(x, x))

    def function(x):
        return block(block(block(x)))

    def code(report):
        return report.model.memory.bytes_by_category["control_code"]

    shared, own = (
        profile(function, tf.TensorSpec((64, 64)), outlining=flag) for flag in (True, False)
    )
    assert shared.cycles_per_step == own.cycles_per_step
    assert code(own) > code(shared)
    configured(optimizations__enable_graph_outlining=False)
    assert configured_options()["outlining"] is False


def test_suggested_pipelines_follow_it(monkeypatch, capsys):
    def suggested(**options):
        configured(auto_select_ipus=2, **options)
        with IPUStrategy().scope():
            model = classifier()
        stages = suggest_pipeline(model, 2, *SPECS)
        SYSTEM.reset()
        return stages, capsys.readouterr().out

    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "--use_ipu_model")
    plain, table = suggested()
    assert plain == [0, 1]
    _, less_memory = suggested(matmuls__poplar_options={"availableMemoryProportion": "0.005"})
    _, fewer_tiles = suggested(ipu_model__tiles_per_ipu=64)
    assert len({table, less_memory, fewer_tiles}) == 3


def test_sums_that_wait_for_each_other():
    def sums(size):
        SYSTEM.reset()
        configured(optimizations__maximum_cross_replica_sum_buffer_size=size)
        with IPUStrategy().scope():
            model = classifier()
        rows = profile(model, *SPECS, num_replicas=2).rows
        return sum(row.family == "collective" for row in rows)

    # Two layers with two variables each, of which the largest has a megabyte and some more.
    assert [sums(size) for size in (0, 10**6, 10**7)] == [4, 2, 1]


def test_what_is_too_small_for_remote_memory():
    configured(optimizations__minimum_remote_tensor_size=1024)
    with IPUStrategy().scope():
        model = classifier()
    assert profile(model, *SPECS).model.options.minimum_remote_tensor_size == 1024
    assert profile(classifier(), *SPECS).model.options.minimum_remote_tensor_size == 128


def test_tiles_for_input_and_output():
    """They compute nothing; whether a program is small is a matter of the others."""
    configured(io_tiles__num_io_tiles=72, io_tiles__place_ops_on_io_tiles=True)
    assert (configured_target().num_tiles, computing_target().num_tiles) == (1472, 1400)
    with IPUStrategy().scope():
        model = classifier()
    model.compile("sgd", model.loss, steps_per_execution=4)
    model.fit(tf.zeros((256, 512)), tf.zeros(256, tf.int32), batch_size=64, verbose=0)
    report = last_report()
    assert report.model.target.num_tiles == report.memory_by_tile.size == 1400
    assert report.model.hidden_host_cycles > 0
    others = last_report(target="bow", num_io_tiles=1, place_ops_on_io_tiles=False)
    assert (others.model.target.num_tiles, others.model.hidden_host_cycles) == (1471, 0)
    assert last_report(num_io_tiles=0, place_ops_on_io_tiles=False).memory_by_tile.size == 1472


def test_some_tiles_have_to_compute():
    for count in (1472, 5000, 10**30):
        with pytest.raises(ValueError, match=rf"less than the 1472 tiles of gc200, .*={count}$"):
            configured(io_tiles__num_io_tiles=count)
    assert SYSTEM.devices == ()
    configured(io_tiles__num_io_tiles=1471)
    assert computing_target().num_tiles == 1
    for options in ({"target": "gc2", "num_io_tiles": 1216}, {"num_io_tiles": 1472}):
        with pytest.raises(ValueError, match=r"`num_io_tiles` must be less than the \d+ tiles of"):
            profile(classifier(), *SPECS, **options)


@pytest.mark.parametrize(
    ("flags", "options", "message"),
    [
        (
            "",
            {"ipu_model__tiles_per_ipu": 1473},
            "`ipu_model.tiles_per_ipu` must be at most 1472, the tiles that an IPU of "
            "`ipu_model.version` 'ipu2' has. Received: ipu_model.tiles_per_ipu=1473",
        ),
        (
            "--ipu_model_tiles=1300",
            {"ipu_model__version": "ipu1"},
            "`ipu_model_tiles` in TF_POPLAR_FLAGS must be at most 1216, the tiles that an IPU of "
            "`ipu_model.version` 'ipu1' has. Received: ipu_model_tiles=1300",
        ),
        (
            "--ipu_model_tiles=64",
            {"io_tiles__num_io_tiles": 64},
            "`num_io_tiles` must be less than the 64 tiles of gc200, for some to compute. "
            "Received: num_io_tiles=64",
        ),
    ],
)
def test_the_ipu_model_has_no_more_tiles_than_ipus(monkeypatch, flags, options, message):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, f"--use_ipu_model {flags}")
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        configured(**options)
    assert SYSTEM.devices == ()


def test_suggested_pipelines_have_fewer_tiles(capsys):
    model = classifier()
    tables = []
    for num_io_tiles in (0, 1400):
        suggest_pipeline(model, 2, *SPECS, num_io_tiles=num_io_tiles)
        tables.append(capsys.readouterr().out)
    assert tables[0] != tables[1]


@pytest.mark.parametrize("fast_math", [False, True])
def test_fast_math_reaches_training(fast_math):
    configured(optimizations__enable_fast_math=fast_math)
    with IPUStrategy().scope():
        layers = [keras.layers.Conv2D(2, 3, use_bias=False), keras.layers.BatchNormalization()]
        model = keras.Sequential([keras.Input((6, 6, 1)), *layers, keras.layers.Flatten()])
    model.compile("sgd", "mse")
    model.fit(tf.ones((4, 6, 6, 1)), tf.ones((4, 32)), batch_size=4, verbose=0)
    graph = model.train_function.executables[0].host._step.function.graph
    kinds = {operation.type for operation in graph.get_operations()}
    assert ("FusedBatchNormV3" in kinds) is fast_math
    assert profile(model, tf.TensorSpec((4, 6, 6, 1)), tf.TensorSpec((4, 32))).fits


def test_flags_of_poplar_without_a_model_are_named():
    flags = {"partialsType": "half", "use128BitConvUnitLoad": "true"}
    with pytest.warns(UserWarning, match="'use128BitConvUnitLoad' in matmuls.poplar_options") as w:
        configured(matmuls__poplar_options=flags, convolutions__poplar_options={})
    assert "partialsType" not in str(w[0].message)


def test_a_type_of_sums_that_poplar_lacks():
    with pytest.raises(ValueError, match="'partialsType' 'float' or 'half'"):
        configured(matmuls__poplar_options={"partialsType": "double"})


def test_synthetic_data_is_not_copied(monkeypatch):
    def host_cycles(flags):
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, flags)
        configured()
        with IPUStrategy().scope():
            model = classifier()
        report = profile(model, *SPECS)
        SYSTEM.reset()
        return report.model.host_cycles, report.model.compute_cycles

    (both, compute), infeed, outfeed, none, null = map(
        host_cycles,
        (
            "",
            "--synthetic_data_categories=outfeed",
            "--synthetic_data_categories=infeed",
            "--use_synthetic_data",
            "--null_data_feed",
        ),
    )
    assert none == (0, compute)
    assert null == (both, compute)
    assert infeed[0] > outfeed[0] > 0
    assert abs(infeed[0] + outfeed[0] - both - SEED) <= 1
    assert (infeed[1], outfeed[1]) == (compute, compute)
