"""Whichever way a program comes to a device, it has the same numbers: those of an IPU."""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from in_sessions import compiled, opened

from ipu_keras import loops, pipelining_ops, popart, scopes
from ipu_keras.config import DeviceConnectionType, IPUConfig
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.all_to_all_op import all_gather
from ipu_keras.utils import reset_ipu_seed

# Keras saves arrays of NumPy 1's kind.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

DEVICE = "/device:IPU:0"
HALF, FLOAT = tf.float16, tf.float32
LARGEST, LEAST_INTEGER = 65504.0, -(2.0**31)

# Halfway between the halves 1 and 1 + 2**-10.
ODD = np.float32(1 + 2**-11)
DRAWS = 256

# Large, zero, infinite, one, no number; then factors whose sum is 2048, which one pass of an AMP
# unit makes, and 32 times 0.05: each of the two passes for these is lost in a half of 2048.
INPUTS = np.float16([1e4, 0, np.inf, 1, np.nan, 2048, *[0] * 15, *[0.05] * 32])
FACTORS = slice(5, None)


def arithmetic(x):
    large, zero, infinite, one, nothing = (x[:, k : k + 1] for k in range(5))
    answers = [
        large * large,
        -large * large,
        large / zero,
        infinite + one,
        tf.cast(tf.cast(large, FLOAT) * 10.0, HALF),
        tf.cast(nothing, tf.int32),
    ]
    return tf.concat([tf.cast(each, FLOAT) for each in answers], axis=1)


def expected(nanoo):
    overflow = np.nan if nanoo else LARGEST
    return [overflow, -overflow, np.nan, np.nan, overflow, LEAST_INTEGER]


def roundings(x):
    """As configured, in a scope that rounds to the nearest, and in one that does at random."""
    odd = tf.cast(x[:, 3:4], FLOAT) * tf.constant(ODD, shape=[1, DRAWS])
    answers = [tf.cast(odd, HALF)]
    for at_random in (False, True):
        with scopes.stochastic_rounding(at_random):
            answers.append(tf.cast(odd, HALF))
    return tf.cast(tf.concat(answers, axis=1), FLOAT)


def partials(x):
    """As configured, and in scopes of either type."""
    factors, ones = x[:, FACTORS], tf.ones([len(INPUTS[FACTORS]), 1], HALF)
    answers = [tf.matmul(factors, ones)]
    for dtype in (np.float16, np.float32):
        with scopes.partials_type(dtype):
            answers.append(tf.matmul(factors, ones))
    return tf.cast(tf.concat(answers, axis=1), FLOAT)


ANSWERS = {
    "numbers": lambda x: tf.concat([arithmetic(x), roundings(x), partials(x)], axis=1),
    "INV": lambda x: tf.cast(tf.sqrt(-x[:, 3:4]), FLOAT),
    "DIV0": lambda x: tf.cast(x[:, 3:4] / x[:, 1:2], FLOAT),
    "OFLO": lambda x: tf.cast(x[:, :1] * x[:, :1], FLOAT),
}
KINDS = ("INV", "DIV0", "OFLO")
SIZES = {"numbers": 6 + 3 * DRAWS + 3, "INV": 1, "DIV0": 1, "OFLO": 1}


def rows(count):
    return np.tile(INPUTS, (count, 1))


# --- Doors: each takes what is asked, and returns what answers it, in rows of float32.


def op_by_op(kind):
    def run():
        with tf.device(DEVICE):
            return ANSWERS[kind](tf.constant(rows(1)))

    return run


def called(kind, **options):
    """A function that nobody but TensorFlow gives to the device."""
    function = tf.function(ANSWERS[kind], **options)

    def run():
        with tf.device(DEVICE):
            return function(tf.constant(rows(1)))

    return run


def run_by_strategy(kind, **options):
    strategy = IPUStrategy()
    function = tf.function(ANSWERS[kind], **options)
    return lambda: strategy.run(function, [tf.constant(rows(1))])


def replicas(kind, **options):
    strategy = IPUStrategy()

    @tf.function(**options)
    def function(x):
        return tf.concat(tf.unstack(all_gather(ANSWERS[kind](x), replication_factor=2)), axis=0)

    return lambda: strategy.run(function, [tf.constant(rows(1))])


@keras.saving.register_keras_serializable("test_same_numbers")
class Answering(keras.layers.Layer):
    """Returns the answers, and keeps those of the last batch that it was trained with."""

    def __init__(self, kind, **options):
        super().__init__(**{"dtype": "float16", "autocast": False, **options})
        self.kind = kind

    def build(self, shape):
        options = {"initializer": "zeros", "trainable": False, "dtype": "float32"}
        self.found = self.add_weight((1, SIZES[self.kind]), **options)

    def call(self, x, training=False):
        answers = ANSWERS[self.kind](x)
        if training:
            self.found.assign(answers)
        return answers

    def get_config(self):
        return {**super().get_config(), "kind": self.kind}


def model(kind, **options):
    with IPUStrategy().scope():
        made = keras.Sequential(
            [
                keras.Input([len(INPUTS)], dtype="float16"),
                keras.layers.Activation("linear", dtype="float16"),
                Answering(kind),
                # So that there is something to train.
                keras.layers.Rescaling(1.0, dtype="float32"),
                keras.layers.Dense(1, dtype="float32"),
            ]
        )
        made.compile(keras.optimizers.SGD(0.0), "mse", **options)
    return made


def trained(made, num_batches):
    made.fit(rows(num_batches), np.zeros([num_batches, 1]), batch_size=1, verbose=0)
    return made.layers[1].found.numpy()


def fit(kind, **options):
    made = model(kind, **options)
    return lambda: trained(made, 2)


def fit_by_replicas(kind):
    made = model(kind)
    return lambda: trained(made, 2)


def fit_by_a_pipeline(kind):
    made = model(kind, steps_per_execution=4)
    made.set_pipeline_stage_assignment([0, 1, 1, 1])
    made.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    return lambda: trained(made, 4)


def predicting(made):
    with IPUStrategy().scope():
        model = keras.Sequential([*made.layers[:3]])
        model.compile()
    return lambda: model.predict(rows(2), batch_size=1, verbose=0)


def predict(kind, **options):
    return predicting(model(kind, **options))


def saved(kind, folder):
    path = folder / "model.keras"
    model(kind).save(path)
    with IPUStrategy().scope():
        loaded = keras.saving.load_model(path)
    return lambda: trained(loaded, 2)


def loop_of_a_session(kind):
    """The second turn's answers, so that they cannot be those of what was read at first."""
    with tf.Graph().as_default():
        given = tf.compat.v1.placeholder(HALF, [1, len(INPUTS)])

        def body(x, found):
            return x, ANSWERS[kind](x)

        results = compiled(
            lambda x: loops.repeat(2, body, [x, tf.zeros([1, SIZES[kind]])]), [given]
        )
        session = opened()
    return lambda: session.run(results[1], {given: rows(1)})


def pipeline_of_a_session(kind):
    with tf.Graph().as_default():
        infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors(rows(1)).repeat())
        outfeed = IPUOutfeedQueue()

        def net():
            return pipelining_ops.pipeline(
                [tf.identity, ANSWERS[kind]], 4, infeed_queue=infeed, outfeed_queue=outfeed
            )

        run, taken = compiled(net), outfeed.dequeue()
        session = opened(infeed.initializer)

    def answers():
        session.run(run)
        return np.reshape(session.run(taken), [-1, SIZES[kind]])

    return answers


DOORS = {
    "op by op": op_by_op,
    "function": called,
    "function of XLA": functools.partial(called, jit_compile=True),
    "strategy": run_by_strategy,
    "strategy, XLA": functools.partial(run_by_strategy, jit_compile=True),
    "replicas": replicas,
    "replicas, XLA": functools.partial(replicas, jit_compile=True),
    "fit": fit,
    "fit, XLA": functools.partial(fit, jit_compile=True),
    "fit, replicas": fit_by_replicas,
    "fit, pipeline": fit_by_a_pipeline,
    "predict": predict,
    "saved": saved,
    "loop": loop_of_a_session,
    "pipeline": pipeline_of_a_session,
}
WITH_TWO_IPUS = {"replicas", "replicas, XLA", "fit, replicas", "fit, pipeline", "pipeline"}
IN_SESSIONS = {"loop", "pipeline"}

# Initial values of variables are made so, whether or not a device ever runs programs.
EAGER = {"op by op", "function", "function of XLA"}


@pytest.fixture(params=DOORS)
def door(request, tmp_path):
    """Configures a device, and returns what runs a kind of question on it."""
    SYSTEM.reset()
    ask = DOORS[request.param]
    if request.param == "saved":
        ask = functools.partial(ask, folder=tmp_path)

    def opened_door(kind, *, half_partials=False, connection=None, **options):
        SYSTEM.reset()
        config = IPUConfig()
        config.auto_select_ipus = 1 + (request.param in WITH_TWO_IPUS)
        for name, value in options.items():
            setattr(config.floating_point_behaviour, name, value)
        if half_partials:
            config.matmuls.poplar_options = {"partialsType": "half"}
        if connection:
            config.device_connection.type = connection
            config.device_connection.version = "ipu2"
        config.configure_ipu_system()
        run = ask(kind)
        return lambda: np.asarray(run())

    yield opened_door
    SYSTEM.reset()


@pytest.fixture
def eager(request):
    """Whether what runs is no program, so that it neither stops nor attaches anything."""
    return request.node.callspec.params["door"] in EAGER


def split(answers):
    return np.split(answers, np.cumsum([6, DRAWS, DRAWS, DRAWS]), axis=1)


def assert_at_random(draws):
    values, counts = np.unique(draws, return_counts=True)
    np.testing.assert_array_equal(values, [1, 1 + 2**-10])
    # Half of them, by four standard deviations.
    assert abs(counts[0] - draws.size / 2) < 2 * draws.size**0.5


def test_as_configured_by_default_but_for_partial_sums(door):
    found, nearest, off, on, sums = split(door("numbers", half_partials=True)())
    for row in found:
        np.testing.assert_array_equal(row, expected(nanoo=False))
    assert (nearest == 1).all()
    assert (off == 1).all()
    assert_at_random(on)
    np.testing.assert_array_equal(np.unique(sums, axis=0), [[2048, 2048, 2050]])


def test_rounding_at_random_and_nanoo(door, request):
    run = door("numbers", esr=True, nanoo=True)
    found = []
    for seed in (1, 2, 1):
        reset_ipu_seed(seed)
        found += [run(), run()]
    for answers in found:
        arithmetic_found, draws, off, on, _ = split(answers)
        for row in arithmetic_found:
            np.testing.assert_array_equal(row, expected(nanoo=True))
        assert_at_random(draws)
        assert_at_random(on)
        assert (off == 1).all()
        for one, other in itertools.pairwise(draws):
            assert (one != other).mean() > 0.3
    for one, other in zip(found[:2], found[4:], strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in ((0, 1), (0, 2), (1, 3)):
        assert (split(found[one])[1] != split(found[other])[1]).mean() > 0.3
    if request.node.callspec.params["door"] in IN_SESSIONS:
        return
    # What runs eagerly is in the scopes around the call, and behind them it is not.
    with scopes.stochastic_rounding(False), scopes.partials_type(np.float16):
        _, draws, off, on, sums = split(run())
    assert (draws == 1).all()
    assert (off == 1).all()
    assert_at_random(on)
    np.testing.assert_array_equal(np.unique(sums[:, 0]), [2048])
    assert_at_random(split(run())[1])


def test_exceptions(door, eager, request):
    """Each door has another kind than the one before it."""
    number = list(DOORS).index(request.node.callspec.params["door"])
    kind = KINDS[number % len(KINDS)]
    run = door(kind, **{kind.lower(): True})
    if eager:
        np.testing.assert_array_equal(run(), [[LARGEST if kind == "OFLO" else np.nan]])
        return
    with pytest.raises(tf.errors.InternalError, match="Tiles in excepted state") as error:
        run()
    assert f"({kind})" in str(error.value)


def test_only_compiled(door, eager):
    run = door("OFLO", connection=DeviceConnectionType.PRE_COMPILE)
    assert (run() == (LARGEST if eager else 0)).all()


def test_never_attached(door, eager):
    run = door("OFLO", connection=DeviceConnectionType.NEVER)
    if eager:
        assert run() == LARGEST
        return
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        run()
    notes = "\n".join([str(error.value), *getattr(error.value, "__notes__", [])])
    assert "configured for compilation only" in notes


def test_attached_on_demand(door, eager):
    run = door("OFLO", connection=DeviceConnectionType.ON_DEMAND)
    assert SYSTEM.attached == ()
    assert (run() == LARGEST).all()
    assert SYSTEM.attached == (() if eager else (0,))


class InPopart:
    """The same questions to an ONNX model, which has no scopes and no nanoo."""

    def __init__(self, kind, **options):
        builder = popart.Builder()
        ops = builder.aiOnnx
        self.given = {}

        def given(name, *values):
            values = np.float16(values)
            tensor = builder.addInputTensor(popart.TensorInfo("FLOAT16", values.shape), name)
            self.given[tensor] = values
            return tensor

        large, zero, infinite, one, nothing = (
            given(name, value)
            for name, value in zip(
                ("large", "zero", "infinite", "one", "nothing"), INPUTS, strict=False
            )
        )
        factors = given("factors", *[[value] for value in INPUTS[FACTORS]])
        constant = ops.constant

        def times(tensor, *values):
            wide = ops.mul([ops.cast([tensor], "FLOAT"), constant(np.float32(values))])
            return ops.cast([wide], "FLOAT16")

        ones = constant(np.ones([1, len(INPUTS[FACTORS])], np.float16))
        answers = {
            "INV": [ops.sqrt([ops.neg([one])])],
            "DIV0": [ops.div([one, zero])],
            "OFLO": [ops.mul([large, large])],
            "numbers": [
                ops.mul([large, large]),
                ops.mul([ops.neg([large]), large]),
                ops.div([large, zero]),
                ops.add([infinite, one]),
                times(large, 10),
                ops.cast([nothing], "INT32"),
                times(one, *[ODD] * DRAWS),
                ops.reshape([ops.matmul([ones, factors]), constant(np.array([1]))]),
            ],
        }[kind]
        self.answers = answers
        chosen = popart.SessionOptions()
        for name, value in options.items():
            setattr(chosen, name, value)
        device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
        flow = popart.DataFlow(1, answers)
        proto = builder.getModelProto()
        self.session = popart.InferenceSession(proto, flow, device, userOptions=chosen)
        self.session.prepareDevice()

    def __call__(self):
        arrays = self.session.initAnchorArrays()
        self.session.run(popart.PyStepIO(self.given, arrays))
        return np.concatenate([np.float32(arrays[each]) for each in self.answers])


@pytest.mark.parametrize("kind", ["half", "float"])
def test_popart(kind):
    run = InPopart("numbers", partialsTypeMatMuls=kind)
    found, draws, sums = np.split(run(), [6, 6 + DRAWS])
    np.testing.assert_array_equal(found, expected(nanoo=False))
    assert (draws == 1).all()
    assert sums == (2048 if kind == "half" else 2050)


def test_popart_rounds_at_random():
    run = InPopart("numbers", enableStochasticRounding=True)
    found = []
    for seed in (1, 2, 1):
        run.session.setRandomSeed(seed)
        found += [run()[6 : 6 + DRAWS] for _ in range(2)]
    for draws in found:
        assert_at_random(draws)
    np.testing.assert_array_equal(found[:2], found[4:])
    for one, other in ((0, 1), (0, 2), (1, 3)):
        assert (found[one] != found[other]).mean() > 0.3


@pytest.mark.parametrize("kind", KINDS)
def test_popart_stops(kind):
    with pytest.raises(popart.poplar_exception, match="Floating point exception in "):
        InPopart(kind, enableFloatingPointChecks=True)()
