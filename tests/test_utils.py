import contextlib
import doctest

import pytest
import tensorflow as tf

from ipu_keras import config, ipu_compiler, utils
from ipu_keras.config import IPUConfig
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops import all_to_all_op, rand_ops
from ipu_keras.utils import reset_ipu_seed


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch):
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    previous = SYSTEM.config
    SYSTEM.reset()
    yield
    SYSTEM.reset()
    if previous is not None:
        SYSTEM.configure(previous)


def test_examples():
    assert doctest.testmod(utils).failed == 0


@pytest.mark.parametrize("name", sorted(set(utils.__all__) & set(config.__all__)))
def test_what_scripts_take_of_the_configuration_from_here(name):
    assert getattr(utils, name) is getattr(config, name)


def test_all_that_scripts_take_of_the_configuration_from_here():
    assert set(utils.__all__) & set(config.__all__) == {
        "DeviceConnectionType",
        "ExecutionProfileType",
        "IPUConfig",
        "KeyId",
        "MergeRemoteBuffersBehaviour",
        "SchedulingAlgorithm",
        "SelectionOrder",
        "VerificationOptions",
        "configure_ipu_system",
        "get_ipu_config",
        "reset_ipu_configuration",
    }


def test_get_num_of_ipus_in_device():
    ipu_config = IPUConfig()
    ipu_config.select_ipus = [4, 25]
    ipu_config.configure_ipu_system()
    assert utils.get_num_of_ipus_in_device("/device:IPU:0") == 1
    assert utils.get_num_of_ipus_in_device("/device:IPU:1", device="/device:CPU:0") == 4
    with pytest.raises(ValueError, match=r"no IPU device '/device:IPU:7'\. Configured devices: /"):
        utils.get_num_of_ipus_in_device("/device:IPU:7")
    with pytest.raises(ValueError, match=r"Received: device='/device:IPU:0'"):
        utils.get_num_of_ipus_in_device("/device:IPU:1", device="/device:IPU:0")


def test_before_a_configuration_there_is_the_device_of_the_default_one(monkeypatch):
    assert utils.get_num_of_ipus_in_device("/device:IPU:0") == 1
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    assert utils.get_num_of_ipus_in_device("IPU:0") == 1
    with pytest.raises(
        ValueError, match=r"no IPU device '/device:IPU:1'\. Devices as long as none is .*: /"
    ):
        utils.get_num_of_ipus_in_device("/device:IPU:1")
    assert SYSTEM.devices == ()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("", False), ("--use_ipu_model", True), ("--use_ipu_model=false", False)],
)
def test_running_on_ipu_model_follows_the_flag(monkeypatch, flags, expected):
    monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
    assert utils.running_on_ipu_model() is expected


def test_a_seed_holds_for_what_is_traced_next():
    IPUConfig().configure_ipu_system()

    def drawn(seed):
        reset_ipu_seed(seed)
        return float(tf.function(lambda: tf.random.uniform(()))())

    assert drawn(3) == drawn(3) != drawn(4)


def test_one_seed_for_all_graphs_and_without_one():
    """Wherever it is set, it holds for programs of other graphs, and for functions."""

    def in_a_session():
        with tf.Graph().as_default():
            with tf.device("/device:IPU:0"):
                drawn = ipu_compiler.compile(lambda: tf.random.uniform(()))
            with tf.compat.v1.Session() as session:
                return session.run(drawn)

    def drawn(seed, graph):
        with graph.as_default() if graph else contextlib.nullcontext():
            reset_ipu_seed(seed)
        return in_a_session(), float(tf.function(lambda: tf.random.uniform(()))())

    once = drawn(3, None)
    assert drawn(3, None) == drawn(3, tf.Graph()) == once
    assert all(one != other for one, other in zip(drawn(4, tf.Graph()), once, strict=True))


def test_a_seed_from_before_a_configuration_holds_in_it():
    ipu_config = IPUConfig()
    ipu_config.auto_select_ipus = 2

    def drawn(seed, identical):
        SYSTEM.reset()
        reset_ipu_seed(seed, experimental_identical_replicas=identical)
        assert SYSTEM.devices == ()
        ipu_config.configure_ipu_system()
        strategy = IPUStrategy()

        @tf.function
        def draw():
            noise = rand_ops.dropout(tf.ones(64), rate=0.5)
            return all_to_all_op.all_gather(noise, replication_factor=2)

        return strategy.run(draw).numpy()

    alike, again, apart = drawn(3, True), drawn(3, True), drawn(4, False)
    assert (alike == again).all()
    assert (alike[0] == alike[1]).all()
    assert (apart[0] != apart[1]).any()


@pytest.mark.parametrize("use_resource", [True, False])
def test_initial_values_are_moved_to_the_cpu(use_resource):
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        with tf.device("/device:CPU:0"):
            v1.get_variable("first", shape=[3, 4], use_resource=use_resource)
        with tf.device("/device:IPU:0"):
            far = v1.get_variable("far", shape=[3, 4], use_resource=use_resource)
            beside = v1.Variable(tf.ones(2) + 1, name="beside", use_resource=use_resource)
            elsewhere = tf.zeros(3)
    where = {op.name: op.device for op in graph.get_operations()}
    utils.move_variable_initialization_to_cpu(graph)
    moved = {op.type for op in graph.get_operations() if op.device != where[op.name]}
    assert moved == {"Const", "Fill", "AddV2", "RandomUniform", "Sub", "Mul"}
    assert far.device == beside.device == elsewhere.device == "/device:IPU:0"
    for variable in (far, beside):
        value = variable.initializer.inputs[1].op
        assert value.device == "/device:CPU:0"
        assert value.colocation_groups() == [f"loc:@{value.name}".encode()]
    with v1.Session(graph=graph) as session:
        assert session.run(beside.initializer.inputs[1]).tolist() == [2, 2]


def test_only_graphs_have_initial_values_to_move():
    utils.move_variable_initialization_to_cpu()
    with pytest.raises(TypeError, match=r"`graph` must be a tf\.Graph.* Received: graph='graph'"):
        utils.move_variable_initialization_to_cpu("graph")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"seed": 1.0}, TypeError, r"`seed` must be an integer. Received: seed=1.0"),
        ({"seed": 1, "device": "/device:IPU:7"}, ValueError, "There is no IPU device"),
        (
            {"seed": 1, "cpu_device": "/device:IPU:0"},
            ValueError,
            "`cpu_device` must be the CPU device",
        ),
    ],
)
def test_seeds_and_devices_that_cannot_be(arguments, error, message):
    IPUConfig().configure_ipu_system()
    with pytest.raises(error, match=message):
        reset_ipu_seed(**arguments)


def test_synthetic_data_is_what_the_flags_ask_for(monkeypatch):
    kinds = utils.SyntheticDataCategory
    assert not any(map(utils.use_synthetic_data_for, kinds))
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data")
    assert all(map(utils.use_synthetic_data_for, kinds))
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--synthetic_data_categories=hostembedding,seed")
    asked = [kind.name for kind in kinds if utils.use_synthetic_data_for(kind)]
    assert asked == ["Seed", "HostEmbedding"]
    with pytest.raises(TypeError, match=r"must be a SyntheticDataCategory. Received: .*='Seed'"):
        utils.use_synthetic_data_for("Seed")


def test_each_argument_of_a_created_configuration_sets_its_option():
    created = utils.create_ipu_config(
        scheduler_selection=utils.SchedulingAlgorithm.POST_ORDER,
        always_rearrange_copies_on_the_host=True,
        merge_infeed_io_copies=True,
        disable_graph_outlining=True,
        max_cross_replica_sum_buffer_size=1,
        max_inter_ipu_copies_buffer_size=2,
        max_scheduler_lookahead_depth=3,
        max_scheduler_search_space_size=4,
        prefetch_data_streams=False,
        selection_order=utils.SelectionOrder.HOOF,
        enable_experimental_remote_buffer_embedding=True,
    )
    expected = IPUConfig()
    expected.scheduling.algorithm = utils.SchedulingAlgorithm.POST_ORDER
    expected.experimental.always_rearrange_copies_on_the_host = True
    expected.optimizations.merge_infeed_io_copies = True
    expected.optimizations.enable_graph_outlining = False
    expected.optimizations.maximum_cross_replica_sum_buffer_size = 1
    expected.optimizations.maximum_inter_ipu_copies_buffer_size = 2
    expected.scheduling.maximum_scheduler_lookahead_depth = 3
    expected.scheduling.maximum_scheduler_search_space_size = 4
    expected.optimizations.prefetch_data_streams = False
    expected.selection_order = utils.SelectionOrder.HOOF
    expected.experimental.enable_remote_buffer_embedding = True
    assert repr(created) == repr(expected)
