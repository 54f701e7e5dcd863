"""Three hundred computations of halves beside NumPy's, each in all ways in which a host has them.

An IPU computes in float32 and rounds what each of its operations returns. A case has a formula
that does the same with `half_arithmetic.Halves`, or exactly with float64. Results may be one half
off, as float32's own error may lie on the other side of what is halfway between two halves, and
further where a case says so.

The cases are in tables: `halves_of_operations.py`, `halves_of_layers.py`, `halves_of_sequences.py`,
`halves_of_optimizers.py` and `halves_of_losses.py`. `half_cases.py` says what a case is.
"""

import functools

import halves_of_layers  # noqa: F401 (it adds cases, as the next ones do)
import halves_of_operations  # noqa: F401
import halves_of_optimizers  # noqa: F401
import keras
import numpy as np
import pytest
import tensorflow as tf
from configured_ipus import configured
from half_arithmetic import Halves, spacing
from half_cases import CASES, Numbers, as_halves
from halves_of_losses import METRICS
from halves_of_sequences import FEATURES, TIMES, UNITS

from ipu_addons.keras.layers import PopnnGRU, PopnnLSTM
from ipu_keras.config import reset_ipu_configuration
from ipu_keras.ipu_strategy import IPUStrategy

# Keras's UnitNormalization has the inverse of 1e-12 as a half.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")

L = keras.layers
NUMBERS = Numbers()


@functools.cache
def function_of(group, way):
    """A function of all cases of a group, which XLA compiles once for all sets of arrays."""

    @tf.function(jit_compile=way == "XLA", autograph=False)
    def function(given):
        return {name: CASES[group][name].run(*given[name]) for name in given}

    return function


@functools.cache
def results(group, way):
    """What the cases of a group become, by name, of each set of arrays."""
    if way != "eager":
        # No function may make the variables of layers.
        results(group, "eager")
    function = function_of(group, way)
    function = function.python_function if way == "eager" else function
    strategy = IPUStrategy()
    found = {name: [] for name in CASES[group]}
    with strategy.scope(), tf.device("/device:IPU:0"):
        for k in range(max(len(case.given) for case in CASES[group].values())):
            given = {
                name: tuple(
                    map(tf.constant, (case.upstream, *case.given[min(k, len(case.given) - 1)]))
                )
                for name, case in CASES[group].items()
            }
            # Less than `strategy.run` does, which also counts what a program costs.
            returned = strategy.extended.call_for_each_replica(function, (given,))
            for name, tensors in returned.items():
                found[name].append([np.asarray(tensor) for tensor in tensors])
    return found


@pytest.fixture(scope="module", autouse=True)
def _ipu():
    configured()
    yield
    results.cache_clear()
    reset_ipu_configuration()


each_case = pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group, cases in CASES.items() for name in cases]
)
WAYS = ["executor", "XLA"]


def off(found, right, ulps, roundings=0):
    """By how much of what is allowed a result is off; it has to be NaN where it should."""
    is_half = isinstance(right, Halves)
    assert found.dtype == (np.float16 if is_half else np.float32)
    assert found.shape == right.shape
    np.testing.assert_array_equal(np.isnan(found), np.isnan(right))
    found, right = (np.nan_to_num(np.asarray(each, np.float64)) for each in (found, right))
    allowed = ulps * spacing(right) + roundings * spacing(abs(right).max(initial=0))
    if not is_half:
        # Some of float32's last bits, as many operations were before.
        allowed *= 2.0**-9
    return (abs(found - right) / allowed).max(initial=0)


@each_case
@pytest.mark.parametrize("way", WAYS)
def test_values(group, name, way):
    case = CASES[group][name]
    for given, (found, *_) in zip(case.given, results(group, way)[name], strict=False):
        assert off(found, case.value(*as_halves(given)), case.ulps) <= 1


@pytest.mark.parametrize(
    ("group", "name"),
    [(group, name) for group in CASES for name, case in CASES[group].items() if case.slopes],
)
@pytest.mark.parametrize("way", WAYS)
def test_gradients(group, name, way):
    case = CASES[group][name]
    _, *found = results(group, way)[name][0]
    right = case.slopes(*as_halves([case.upstream, *case.given[0]]))
    for one, other in zip(found, right, strict=True):
        assert off(one, other, case.slope_ulps, case.roundings) <= 1


@pytest.mark.parametrize(
    ("way", "group", "name"),
    [
        (way, group, name)
        for way in ("eager", "XLA")
        for group, cases in CASES.items()
        for name, case in cases.items()
        if (case.eagerly if way == "eager" else case.in_xla)
    ],
)
def test_bits(way, group, name):
    found, others = results(group, way)[name], results(group, "executor")[name]
    has_sums_that_cancel = CASES[group][name].roundings > 0
    for (value, *slopes), (right, *others_slopes) in zip(found, others, strict=True):
        np.testing.assert_array_equal(value, right)
        for one, other in zip(slopes, others_slopes, strict=True):
            if has_sums_that_cancel:
                # What is left of them has errors of float32 that are another processor's others.
                assert off(one, as_halves([other])[0], ulps=1) <= 1
            else:
                np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("xla_from_the_start")
@pytest.mark.parametrize("jit_compile", [False, True])
def test_metrics(jit_compile):
    """A model computes them in float32 whatever it predicts."""
    labels = np.eye(4, dtype=np.float16)[[0, 1, 2, 3, 3, 2, 0, 0]]
    predictions = np.float16(NUMBERS.random.uniform(0.05, 0.95, labels.shape))
    with IPUStrategy().scope():
        model = keras.Sequential([keras.Input([4], dtype="float16"), L.Identity(dtype="float16")])
        metrics = [getattr(keras.metrics, name)(name=name) for name in METRICS]
        model.compile(loss="mse", metrics=metrics, jit_compile=jit_compile)
    found = model.evaluate(predictions, labels, batch_size=4, verbose=0, return_dict=True)
    for name, expected in METRICS.items():
        np.testing.assert_allclose(found[name], expected(labels, predictions), 1e-5, err_msg=name)


def test_training(monkeypatch):
    """Recurrent layers of a model have the same bits in TensorFlow's executor and in XLA."""
    data = NUMBERS.usual(8, TIMES, FEATURES)
    weights = []
    for first_steps in ("0", "1000"):
        monkeypatch.setenv("IPU_KERAS_FIRST_STEPS", first_steps)
        keras.utils.set_random_seed(0)
        with IPUStrategy().scope():
            inputs = keras.Input(data.shape[1:], batch_size=4, dtype="float16")
            layers = [L.SimpleRNN, L.LSTM, L.GRU, PopnnLSTM, PopnnGRU]
            outputs = L.Add()([layer(UNITS, dtype="float16")(inputs) for layer in layers])
            model = keras.Model(inputs, outputs)
            model.compile(keras.optimizers.SGD(0.25), "mse")
        model.fit(data, np.zeros((8, UNITS)), batch_size=4, epochs=2, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)
