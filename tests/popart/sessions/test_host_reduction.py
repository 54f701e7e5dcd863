"""`hostAllReduce`: gradients that callbacks of the host reduce, and weights that they update."""

import contextlib
import ctypes
import gc
import weakref

import numpy as np
import popart_goldens as goldens
import pytest

from ipu_keras import popart
from ipu_keras.popart import AnchorReturnType as Returns

RATE, BATCHES = 0.1, 4
CLOSE = {"rtol": 1e-5, "atol": 1e-6}

address_of = ctypes.pythonapi.PyCapsule_GetPointer
address_of.argtypes = ctypes.py_object, ctypes.c_char_p
address_of.restype = ctypes.c_void_p


def array_of(capsule, weight):
    """The memory of a stream of a weight, as an array like it."""
    memory = (ctypes.c_byte * weight.nbytes).from_address(address_of(capsule, None))
    return np.frombuffer(memory, weight.dtype).reshape(weight.shape)


class Host:
    """Reduces gradients as callbacks; with `rule`, it updates weights of its own by them.

    Args:
        session: Whose streams it connects.
        model: It trains, a golden.
        replicas: How many there are.
        rule: Gives a weight, of its name, itself and its gradient; `None` to give gradients.
    """

    def __init__(self, session, model, replicas, rule=None):
        self.weights = {model.names[n]: np.float64(w) for n, w in model.weights.items()}
        self.arrays = {model.names[n]: w for n, w in model.weights.items()}
        self.stored = {}
        self.calls = []
        self.replicas = replicas
        self.rule = rule
        for stream in session.getHostReduceStreamIds():
            kind, _, name = stream.partition("__")
            name = name.removeprefix("Gradient___")
            take = self.store if kind == "gradientStoreStream" else self.load
            for replica in range(replicas):
                session.connectStreamToCallback(stream, self.callback(take, name, replica), replica)

    def callback(self, take, name, replica):
        def call(capsule):
            self.calls.append((take.__name__, name, replica))
            take(name, replica, array_of(capsule, self.arrays[name]))

        return call

    def store(self, name, replica, memory):
        self.stored.setdefault(name, [[] for _ in range(self.replicas)])[replica].append(
            memory.copy()
        )

    def load(self, name, replica, memory):
        gradient = sum(of_replica[-1] for of_replica in self.stored[name])
        if self.rule is None:
            memory[...] = gradient
            return
        if replica == 0:
            self.weights[name] = self.rule(name, self.weights[name], gradient)
        memory[...] = self.weights[name]


def options_of(replicas, accumulation, **more):
    return {
        "num_ipus": replicas,
        "enableReplicatedGraphs": replicas > 1,
        "replicatedGraphCount": replicas,
        "enableGradientAccumulation": accumulation > 1,
        "accumulationFactor": accumulation,
        "hostAllReduce": True,
        **more,
    }


def plain(scaling=1.0):
    rate = {"defaultLearningRate": (RATE, True), "lossScaling": (scaling, True)}
    return popart.SGD(rate)


def trained(model, inputs, rule):
    """The weights after all batches, and by weight the gradients of each replica and batch."""
    after = {n: np.float64(w) for n, w in model.weights.items()}
    gradients = {n: [] for n in after}
    for batch in range(BATCHES):
        found = {n: [] for n in after}
        for replica in range(next(iter(inputs.values())).shape[2]):
            steps = zip(*(each[batch, :, replica] for each in inputs.values()), strict=True)
            parts = [dict(zip(inputs, step, strict=True)) for step in steps]
            each = [model.gradients(after, part) for part in parts]
            for n, of_replicas in found.items():
                of_replicas.append(sum(one[n] for one in each))
        for n, of_replicas in found.items():
            gradients[n].append(of_replicas)
            after[n] = rule(n, after[n], sum(of_replicas))
    return after, {n: np.moveaxis(each, 0, 1) for n, each in gradients.items()}


def descent(name, weight, gradient):
    return weight - RATE * gradient


def with_momentum():
    values = {"lr": RATE, "mm": 0.9, "dm": 0.0, "wd": 0.0, "vs": 1.0}
    return goldens.Sgd(values, is_combined=False)


@pytest.mark.parametrize("make", [goldens.mlp, goldens.cnn])
@pytest.mark.parametrize(("replicas", "accumulation"), [(1, 1), (1, 3), (2, 1), (2, 3)])
def test_the_host_reduces_gradients(training_of, weights_of, make, replicas, accumulation):
    model = make()
    options = options_of(replicas, accumulation)
    anchors = {f"Accum___{model.names['c']}": Returns("Final")}
    session, found = training_of(
        model.proto, model.loss, plain(scaling=4.0), anchors, BATCHES, **options
    )
    host = Host(session, model, replicas)
    inputs = model.inputs(BATCHES, accumulation, replicas)
    session.run(popart.PyStepIO(inputs, found))
    expected, gradients = trained(model, inputs, descent)
    after = weights_of(session, host.arrays)
    for name, weight in expected.items():
        np.testing.assert_allclose(after[model.names[name]], weight, **CLOSE)
        stored = np.array(host.stored[model.names[name]])
        assert stored.dtype == np.float32
        # Of the scaled loss, of each replica by itself, with axes as in the model.
        np.testing.assert_allclose(stored / 4, gradients[name], **CLOSE)
    accumulated = found[f"Accum___{model.names['c']}"]
    total = gradients["c"][:, -1].sum(axis=0)
    same = np.broadcast_to(total, accumulated.shape)
    np.testing.assert_allclose(accumulated / 4, same, **CLOSE)


@pytest.mark.parametrize(("replicas", "accumulation"), [(1, 1), (2, 3)])
def test_the_host_updates_weights(training_of, weights_of, replicas, accumulation):
    model = goldens.cnn()
    options = options_of(replicas, accumulation, hostWeightUpdate=True)
    k = model.names["k"]
    session, found = training_of(
        model.proto, model.loss, plain(), {k: Returns("Final")}, BATCHES, **options
    )
    rule = with_momentum()
    host = Host(session, model, replicas, rule)
    inputs = model.inputs(BATCHES, accumulation, replicas)
    session.run(popart.PyStepIO(inputs, found))
    expected, _ = trained(model, inputs, with_momentum_of(model))
    after = weights_of(session, host.arrays)
    for name, weight in expected.items():
        np.testing.assert_allclose(after[model.names[name]], weight, **CLOSE)
        assert np.abs(weight - model.weights[name]).max() > 1e-2
    np.testing.assert_array_equal(found[k], np.broadcast_to(after[k], found[k].shape))


def with_momentum_of(model):
    rule = with_momentum()
    return lambda name, weight, gradient: rule(model.names[name], weight, gradient)


def test_a_pipeline_whose_gradients_the_host_reduces(training_of, weights_of):
    def placed(builder, part):
        opened = contextlib.ExitStack()
        opened.enter_context(builder.virtualGraph(part))
        opened.enter_context(builder.pipelineStage(part))
        return opened

    model = goldens.mlp(placed)
    options = options_of(1, 3, enablePipelining=True)
    options |= {"virtualGraphMode": popart.VirtualGraphMode.Manual, "num_ipus": 2}
    session, _ = training_of(model.proto, model.loss, plain(), (), BATCHES, **options)
    host = Host(session, model, 1)
    inputs = model.inputs(BATCHES, 3, 1)
    session.run(popart.PyStepIO(inputs, {}))
    expected, _ = trained(model, inputs, descent)
    after = weights_of(session, host.arrays)
    for name, weight in expected.items():
        np.testing.assert_allclose(after[model.names[name]], weight, **CLOSE)
    assert len(host.calls) == BATCHES * len(session.getHostReduceStreamIds())


def test_streams_and_the_order_of_calls(training_of):
    model = goldens.mlp()
    session, _ = training_of(model.proto, model.loss, plain(), (), 2, **options_of(2, 1))
    assert session.getHostReduceStreamIds() == [
        f"{kind}__Gradient___{model.names[name]}"
        for name in "abc"
        for kind in ("gradientStoreStream", "gradientLoadStream")
    ]
    host = Host(session, model, 2)
    session.run(popart.PyStepIO(model.inputs(2, 2), {}))
    batch = [
        (kind, model.names[name], replica)
        for kind in ("store", "load")
        for name in "abc"
        for replica in (0, 1)
    ]
    assert host.calls == 2 * batch
    updating, _ = training_of(
        model.proto, model.loss, plain(), **options_of(1, 1, hostWeightUpdate=True)
    )
    assert updating.getHostReduceStreamIds()[:2] == [
        f"gradientStoreStream__Gradient___{model.names['a']}",
        f"weightLoadStream__{model.names['a']}",
    ]


def test_a_model_of_it_copies_gradients(training_of):
    model = goldens.mlp()
    reports = {}
    for reduces in (False, True):
        options = options_of(1, 1, hostAllReduce=reduces)
        session, _ = training_of(model.proto, model.loss, plain(), **options)
        reports[reduces] = session.getReport()
    families = [row.family for row in reports[False].rows]
    assert "OutsideCompilation" not in families
    (copies,) = (row for row in reports[True].rows if row.family == "OutsideCompilation")
    # 20 + 5 + 15 numbers of 4 bytes.
    assert copies.detail == "160 bytes to the host, 160 from it"
    assert reports[True].cycles_per_step > reports[False].cycles_per_step


def test_what_is_refused(training_of, weights_of):
    model = goldens.mlp()
    w = model.names["b"]
    session, _ = training_of(model.proto, model.loss, plain(), **options_of(2, 1))
    inputs = popart.PyStepIO(model.inputs(1, 2), {})
    with pytest.raises(
        popart.popart_exception,
        match=f"'gradientStoreStream__Gradient___{model.names['a']}' of replica 0 is not connected",
    ):
        session.run(inputs)
    host = Host(session, model, 2)
    load = f"gradientLoadStream__Gradient___{w}"
    for stream in (w, f"weightLoadStream__{w}", ""):
        with pytest.raises(popart.popart_exception, match=rf"no stream '{stream}'.* are: .*{load}"):
            session.connectStreamToCallback(stream, print, 0)
    for replica in (-1, 2):
        with pytest.raises(
            popart.popart_exception, match=f"for replica {replica}, and there are 2"
        ):
            session.connectStreamToCallback(load, print, replica)
    with pytest.raises(TypeError, match="Received: 'print' of type str"):
        session.connectStreamToCallback(load, "print", 0)

    def fail(capsule):
        raise OSError("no network")

    session.connectStreamToCallback(load, fail, 1)
    with pytest.raises(
        popart.poplar_exception,
        match=rf"The callback of the stream '{load}' for replica 1 failed: OSError: no network",
    ):
        session.run(inputs)

    def other(capsule):
        array_of(capsule, host.arrays[w])[...] = 7

    session.connectStreamToCallback(load, other, 1)
    with pytest.raises(popart.poplar_exception, match=f"'{load}' have given replica 1 other"):
        session.run(inputs)
    for name, array in weights_of(session, host.arrays).items():
        np.testing.assert_array_equal(array, host.arrays[name])


def test_callbacks_keep_no_session(training_of):
    model = goldens.mlp()
    session, _ = training_of(model.proto, model.loss, plain(), **options_of(1, 1))
    session.of_test = Host(session, model, 1)
    session.of_test.session = session
    session.run(popart.PyStepIO(model.inputs(1), {}))
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None
