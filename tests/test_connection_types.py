"""What runs, and what has IPUs, with each `device_connection.type`."""

import re
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from in_sessions import compiled, opened

from ipu_keras import last_report, loops
from ipu_keras.config import DeviceConnectionType, IPUConfig, reset_ipu_configuration
from ipu_keras.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.popart import DeviceManager

ALWAYS, ON_DEMAND, PRE_COMPILE, NEVER = DeviceConnectionType
X, Y = np.ones((16, 4), np.float32), np.ones((16, 3), np.float32)
REFUSED = (
    r"^Trying to run an executable on a device that was configured for compilation only\.\n"
    r"Set `device_connection.type` to `DeviceConnectionType.ALWAYS` or .* Received: "
    r"DeviceConnectionType.NEVER, for <IpuDevice '/device:IPU:0', ipus=\(0,\)>"
)


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch):
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    SYSTEM.reset()
    yield
    SYSTEM.reset()


def configure(connection, *, num_ipus=1, select=None, folder=""):
    config = IPUConfig()
    if select is None:
        config.auto_select_ipus = num_ipus
    else:
        config.select_ipus = select
    config.device_connection.type = connection
    config.device_connection.version = "ipu2"
    config.serialization_output_folder = str(folder)
    config.configure_ipu_system()


def dense():
    with IPUStrategy().scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse", metrics=["mae"], steps_per_execution=2)
    return model


@tf.function
def doubled(x):
    return {"twice": 2.0 * x, "rows": (tf.reduce_sum(x, axis=-1),)}


def text(error):
    return "\n".join([str(error.value), *getattr(error.value, "__notes__", [])])


class TestPreCompile:
    @pytest.mark.parametrize("num_ipus", [1, 2])
    def test_models_give_zeros_and_keep_their_weights(self, tmp_path, num_ipus):
        configure(PRE_COMPILE, num_ipus=num_ipus, folder=tmp_path)
        model = dense()
        before = model.get_weights()
        history = model.fit(X, Y, batch_size=2, epochs=2, verbose=0).history
        assert history == {"loss": [0.0, 0.0], "mae": [0.0, 0.0]}
        assert model.evaluate(X, Y, batch_size=2, verbose=0) == [0.0, 0.0]
        predicted = model.predict(X, batch_size=2, verbose=0)
        np.testing.assert_array_equal(predicted, np.zeros((16, 3)))
        if num_ipus == 1:
            assert model.train_on_batch(X, Y) == [0.0, 0.0]
            assert not model.predict_on_batch(X).any()
        for weight, old in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(weight, old)
        assert model.optimizer.iterations == 0

    def test_executables_are_written_and_served(self, tmp_path, monkeypatch):
        configure(PRE_COMPILE, folder=tmp_path / "chosen")
        model = dense()
        model.fit(X, Y, batch_size=2, verbose=0)
        model.predict(X, batch_size=2, verbose=0)
        assert len(list((tmp_path / "chosen").glob("*.ipu_executable.json"))) == 2
        reset_ipu_configuration()
        cache = tmp_path / "cache"
        monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={cache}")
        configure(ALWAYS)
        dense().fit(X, Y, batch_size=2, verbose=0)
        assert not cache.exists()
        reset_ipu_configuration()
        configure(PRE_COMPILE)
        dense().fit(X, Y, batch_size=2, verbose=0)
        assert any(cache.glob("*.ipu_executable.json"))

    def test_an_execution_is_none_but_is_reported(self):
        configure(PRE_COMPILE)
        model = dense()
        engine = IPUStrategy().device.engine
        before = engine.counters()
        model.fit(X, Y, batch_size=2, verbose=0)
        after = engine.counters()
        assert after.num_executions == before.num_executions
        compilations = [each.num_compilations.get("train", 0) for each in (before, after)]
        assert compilations[1] == compilations[0] + 1
        assert "train" in last_report().name

    @pytest.mark.parametrize("num_ipus", [1, 2])
    def test_functions_give_zeros_in_the_same_structure(self, num_ipus):
        configure(PRE_COMPILE, num_ipus=num_ipus)
        variable, every = tf.Variable(1.0), IPUOutfeedQueue()
        last = IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.LAST)

        @tf.function
        def step(x):
            variable.assign_add(1.0)
            end = loops.repeat(5, lambda y: (y + 1.0, every.enqueue(y)), [x])
            last.enqueue((end, variable + 1.0))
            return end

        strategy = IPUStrategy()
        found = strategy.run(doubled, [tf.ones([2, 3])])
        np.testing.assert_array_equal(found["twice"], np.zeros((2, 3)))
        np.testing.assert_array_equal(found["rows"][0], np.zeros(2))
        assert strategy.run(step, [tf.constant(3.0)]) == 0.0
        assert variable == 1.0
        replicas = () if num_ipus == 1 else (num_ipus,)
        np.testing.assert_array_equal(every.dequeue(), np.zeros((5, *replicas)))
        np.testing.assert_array_equal(last.dequeue(), np.zeros((2, *replicas)))
        strategy.run(step, [tf.constant(3.0)])
        strategy.run(step, [tf.constant(3.0)])
        assert every.dequeue().shape == (10, *replicas)

    @pytest.mark.parametrize("num_ipus", [1, 2])
    def test_sessions_get_zeros(self, tmp_path, num_ipus):
        configure(PRE_COMPILE, num_ipus=num_ipus, folder=tmp_path)
        queue = IPUOutfeedQueue()

        def net(x):
            weight = tf.compat.v1.get_variable("w", initializer=1.0, use_resource=True)
            updated = weight.assign_add(1.0)
            end = loops.repeat(3, lambda y: (y + 1.0, queue.enqueue(y)), [x * weight])
            return end, tf.group(updated)

        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [])
            run, taken = compiled(net, [x]), queue.dequeue()
            with opened() as session:
                for _ in range(2):
                    assert session.run(run, {x: 2.0}) == [0.0]
                    assert session.run(taken).shape == ((3,) if num_ipus == 1 else (3, 2))
                assert session.run(graph.get_collection("variables")) == [1.0]
        assert len(list(tmp_path.glob("*.ipu_executable.json"))) == 1

    def test_a_graph_that_was_compiled_only_is_not_run_later(self):
        configure(PRE_COMPILE)
        with tf.Graph().as_default():
            run = compiled(lambda: tf.constant(3.0) + 1.0)
            with opened() as session:
                assert session.run(run) == [0.0]
                reset_ipu_configuration()
                configure(ALWAYS)
                with pytest.raises(
                    tf.errors.FailedPreconditionError,
                    match=r"is settled when .* or build the graph again. Received: .*ALWAYS, for ",
                ):
                    session.run(run)

    def test_devices_of_popart_run_all_the_same(self):
        configure(PRE_COMPILE)
        with DeviceManager().acquireDeviceById(0) as device:
            assert device.isAttached
        assert SYSTEM.attached == ()


class TestNever:
    def test_models_are_compiled_and_refused(self, tmp_path):
        configure(NEVER, folder=tmp_path)
        model = dense()
        before = model.get_weights()
        for call, data in ((model.fit, (X, Y)), (model.evaluate, (X, Y)), (model.predict, (X,))):
            with pytest.raises(tf.errors.InvalidArgumentError) as error:
                call(*data, batch_size=2, verbose=0)
            assert re.match(REFUSED, text(error))
        np.testing.assert_array_equal(model.get_weights()[0], before[0])
        assert len(list(tmp_path.glob("*.ipu_executable.json"))) == 3

    def test_functions_are_refused(self):
        configure(NEVER)
        strategy = IPUStrategy()
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            strategy.run(doubled, [tf.ones([2, 3])])
        assert text(error).startswith("Trying to run an executable on a device that was ")
        assert "Received: DeviceConnectionType.NEVER" in text(error)

    def test_sessions_are_refused(self):
        configure(NEVER)
        with tf.Graph().as_default():
            run = compiled(lambda: tf.constant(3.0) + 1.0)
            with opened() as session, pytest.raises(tf.errors.InvalidArgumentError) as error:
                session.run(run)
        assert "configured for compilation only" in text(error)


class TestOnDemand:
    def test_ipus_are_taken_by_the_first_program_until_the_reset(self):
        configure(ON_DEMAND)
        model = dense()
        assert SYSTEM.attached == ()
        assert 0 in SYSTEM.free(range(16))
        model.fit(X, Y, batch_size=2, verbose=0)
        assert SYSTEM.attached == (0,)
        assert 0 not in SYSTEM.free(range(16))
        reset_ipu_configuration()
        assert 0 in SYSTEM.free(range(16))

    def test_functions_and_sessions_take_them_too(self):
        configure(ON_DEMAND)
        np.testing.assert_array_equal(
            IPUStrategy().run(doubled, [tf.ones([1, 2])])["twice"], [[2.0, 2.0]]
        )
        assert SYSTEM.attached == (0,)
        reset_ipu_configuration()
        configure(ON_DEMAND)
        with tf.Graph().as_default():
            run = compiled(lambda: tf.constant(3.0) + 1.0)
            with opened() as session:
                assert SYSTEM.attached == ()
                assert session.run(run) == [4.0]
        assert SYSTEM.attached == (0,)

    def test_a_device_of_no_choice_takes_others_if_its_ipus_are_busy(self):
        configure(ON_DEMAND, num_ipus=2)
        assert SYSTEM.devices[0].ipus == (5, 7)
        with DeviceManager().acquireDeviceById(16):
            strategy = IPUStrategy()
            strategy.run(doubled, [tf.ones([1, 2])])
            assert SYSTEM.devices[0].config_id == 17
            assert strategy.device.ipus == SYSTEM.devices[0].ipus == (4, 6)

    def test_chosen_ipus_that_stay_busy_are_refused(self, monkeypatch):
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--on_demand_device_timeout=0")
        configure(ON_DEMAND, select=[3])
        with (
            DeviceManager().acquireDeviceById(3),
            pytest.raises(
                tf.errors.FailedPreconditionError,
                match=r"Could not attach /device:IPU:0 on demand: its IPUs are held by "
                r"/device:IPU:1024.* Received: --on_demand_device_timeout=0 ",
            ),
        ):
            IPUStrategy().run(doubled, [tf.ones([1, 2])])
        assert IPUStrategy().run(doubled, [tf.ones([1, 2])])["rows"][0] == 2.0

    def test_chosen_ipus_are_waited_for(self, monkeypatch):
        flags = "--on_demand_device_timeout=60000 --on_demand_device_poll_time=100"
        monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
        configure(ON_DEMAND, select=[3])
        device = DeviceManager().acquireDeviceById(3)
        releasing = threading.Timer(0.3, device.detach)
        releasing.start()
        assert IPUStrategy().run(doubled, [tf.ones([1, 2])])["rows"][0] == 2.0
        releasing.join()
        assert not device.isAttached


def test_ipus_are_taken_at_once_by_default():
    configure(ALWAYS)
    assert SYSTEM.attached == (0,)
    assert 0 not in SYSTEM.free(range(16))
