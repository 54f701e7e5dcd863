"""Arguments that count, and rates, of all public calls: what is taken for one, and what is not."""

import math

import numpy as np
import pytest
import tensorflow as tf
from correct_calls import correct_calls
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_keras.machine.system import SYSTEM

# The least that is taken where that is not 1; `None` for any integer within the other arguments'
# bounds, which the operations' own tests are about.
LEAST = {
    "axis": None,
    "blank_index": None,
    "channels_axis": None,
    "concat_dimension": None,
    "device": 0,
    "device_ordinal": 0,
    "split_dimension": None,
    "seed": None,
    "epochs": 0,
    "initial_epoch": 0,
    "maximum_iterations": 0,
    "n": 0,
    "output_dim": 0,
    "stage": 0,
    "total_elements": 0,
}
# What need not be given.
OPTIONAL = {
    "attention_head_size",
    "batch_size",
    "gradient_accumulation_steps_per_replica",
    "maximum_iterations",
    "prefetch_depth",
    "replica_group_size",
    "replication_factor",
    "seed",
    "sequences_per_iter",
    "steps",
    "steps_per_epoch",
}
RATES = {"attention_dropout_prob", "dropout", "output_dropout_prob", "rate"}
# Those of configurations have exactly the type that is documented: `tests/test_config.py`.
CONFIGURATIONS = ("IPUConfig.", "create_ipu_config", "utils.")
# It takes lists of counts, too: `tests/test_scopes.py`.
OTHERS = ("ipu_shard",)
# Of several axes, too.
TAKE_LISTS = {("LayerNormalization", "axis")}
CALLS = [call for call in correct_calls() if not call.name.startswith((*CONFIGURATIONS, *OTHERS))]


def is_count(value):
    return isinstance(value, int) and not isinstance(value, bool)


COUNTS = [
    pytest.param(call, name, id=f"{call.name}-{name}")
    for call in CALLS
    for name, value in call.arguments.items()
    if is_count(value) and name != "verbose" and (call.name, name) not in TAKE_LISTS
]
SHARES = [
    pytest.param(call, name, id=f"{call.name}-{name}")
    for call in CALLS
    for name in sorted(RATES & call.arguments.keys())
]
NO_NUMBERS = [True, False, "2", "", b"2", math.nan, math.inf, 1j, [], [2], (), {}, ...]


@pytest.fixture(autouse=True, scope="module")
def default_system():
    SYSTEM.reset()
    yield
    SYSTEM.reset()


def check_refused(call, name, value):
    """The error names the argument, and shows what was given."""
    with pytest.raises((TypeError, ValueError)) as raised:
        call.function(**(call.arguments | {name: value}))
    text = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    assert name in text
    assert repr(value) in text or str(value) in text


@pytest.mark.parametrize(("call", "name"), COUNTS)
@pytest.mark.filterwarnings("ignore:.* of feeds is deprecated")
@given(data=st.data())
@settings(deadline=None, derandomize=True, max_examples=12)
def test_what_is_no_count(call, name, data):
    least = LEAST.get(name, 1)
    wrong = st.sampled_from([value for value in NO_NUMBERS if value != {}])
    wrong |= st.floats(-100, 100) | st.text(max_size=3) | st.just(np.float32(2.0))
    wrong |= st.none() if name not in OPTIONAL else st.nothing()
    if least is not None:
        wrong |= st.integers(-(2**70), least - 1)
    # More than an IPU counts to; seeds have no end.
    wrong |= st.nothing() if name == "seed" else st.just(2**63)
    check_refused(call, name, data.draw(wrong))


@pytest.mark.parametrize(("call", "name"), COUNTS)
@pytest.mark.filterwarnings("ignore:.* of feeds is deprecated")
@pytest.mark.filterwarnings("ignore:buffer_depth of the outfeed queue has no effect")
@pytest.mark.filterwarnings("ignore:name of `set_gradient_accumulation_options` has no effect")
def test_what_is_a_count(call, name):
    given = call.arguments[name]
    for value in (np.int64(given), np.int8(given), np.array(given), tf.constant(given)):
        call.function(**(call.arguments | {name: value}))


@pytest.mark.parametrize(("call", "name"), SHARES)
@given(data=st.data())
@settings(deadline=None, derandomize=True, max_examples=12)
def test_what_is_no_rate(call, name, data):
    wrong = st.sampled_from([*NO_NUMBERS, None, np.array([0.5, 0.5])])
    wrong |= st.floats(max_value=0, exclude_max=True, allow_nan=False)
    wrong |= st.floats(min_value=1, exclude_min=True, allow_nan=False)
    check_refused(call, name, data.draw(wrong))


@pytest.mark.parametrize(("call", "name"), SHARES)
def test_what_is_a_rate(call, name):
    for value in (np.float32(0.25), np.float64(0), np.array(0.5), tf.constant(0.5), 0):
        call.function(**(call.arguments | {name: value}))
