"""Where a private name only makes the host faster, a changed one costs nothing but time."""

import functools
import sys
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from ipu_keras._device import address_of
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.data.ops import batch_op, iterator_ops, prefetch_op, shuffle_op
from tensorflow.python.framework import tensor_util
from tensorflow.python.ops.parallel_for import pfor

from ipu_keras.feeds.dataset_feed import DatasetFeed, element_format, tensors_of
from ipu_keras.feeds.sliced_datasets import sliced_dataset
from ipu_keras.host.replicas import joint_batches
from ipu_keras.host.rewrites import random_bits
from ipu_keras.internals.fallbacks import Fallbacks, fallbacks
from ipu_keras.internals.forms import FormError, Function, PrivateName
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.sharding import assign_shard

NUM_ROWS = 32
X = np.random.default_rng(0).normal(size=(NUM_ROWS, 6)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(NUM_ROWS, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def counted():
    """The counts of one test."""
    fallbacks.cache_clear()
    yield
    fallbacks.cache_clear()


def shuffled_rows() -> tf.data.Dataset:
    rows = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(NUM_ROWS, seed=3)
    return rows.batch(4, drop_remainder=True)


def trained() -> list[np.ndarray]:
    """The weights and predictions of a small model, fed by a shuffled dataset and by an array."""
    keras.utils.set_random_seed(1)
    with pytest.MonkeyPatch.context() as patch, IPUStrategy().scope():
        # Operations that run one by one need only one of these speeds.
        patch.setenv("IPU_KERAS_FIRST_STEPS", "0")
        model = keras.Sequential(
            [
                keras.Input([6]),
                keras.layers.Dense(8, "relu"),
                keras.layers.Dropout(0.3, seed=5),
                keras.layers.Dense(3),
            ]
        )
        model.compile("sgd", "mse", steps_per_execution=4)
        model.fit(shuffled_rows(), epochs=2, verbose=0, shuffle=False)
        return [*model.get_weights(), model.predict(X, batch_size=4, verbose=0)]


@pytest.fixture(scope="module")
def as_usual() -> list[np.ndarray]:
    fallbacks.cache_clear()
    values = trained()
    assert fallbacks().counts == {}
    return values


def test_as_usual_nothing_is_done_without(as_usual):
    assert all(np.isfinite(value).all() for value in as_usual)


def changed_class(monkeypatch):
    monkeypatch.setattr(pfor, "PFor", type("PFor", (), {"convert": lambda self, y: y}))


def changed_function(monkeypatch):
    monkeypatch.setattr(pfor, "_create_op", lambda op_type, *, inputs: None)


def missing_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow.python.ops.parallel_for.pfor", None)


def changed_operation(monkeypatch):
    monkeypatch.setattr(gen_xla_ops, "xla_call_module", lambda args, text: None)


def missing_operation(monkeypatch):
    monkeypatch.delattr(gen_xla_ops, "xla_call_module")


def changed_batch(monkeypatch):
    monkeypatch.setattr(batch_op, "_BatchDataset", functools.partial(batch_op._BatchDataset))


def changed_shuffle(monkeypatch):
    changed = functools.partial(shuffle_op._ShuffleDataset)
    monkeypatch.setattr(shuffle_op, "_ShuffleDataset", changed)


@pytest.mark.parametrize(
    ("change", "speed"),
    [
        (changed_class, "joint batches"),
        (missing_operation, "random bits"),
        (changed_batch, "batches copied from arrays"),
    ],
)
def test_training_without_a_speed(as_usual, monkeypatch, change: Callable, speed: str):
    change(monkeypatch)
    for value, expected in zip(trained(), as_usual, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    assert list(fallbacks().counts) == [speed]


def joint_batches_are_not_made() -> str:
    assert joint_batches.can_join(None, [], 2) is False
    return "joint batches"


def random_bits_are_not_ours() -> str:
    given = tf.constant([1], tf.uint64), tf.constant([1, 2], tf.uint64)
    # No operation draws normal numbers in another way.
    assert random_bits.draw("normal", [5], *given) is None
    return "random bits"


def batches_are_not_copied() -> str:
    assert sliced_dataset(shuffled_rows()) is None
    return "batches copied from arrays"


@pytest.mark.parametrize(
    ("change", "without", "named"),
    [
        (changed_class, joint_batches_are_not_made, "parallel_for.pfor.PFor`"),
        (changed_function, joint_batches_are_not_made, "parallel_for.pfor._create_op`"),
        (missing_module, joint_batches_are_not_made, "pfor._pfor_converter_registry`"),
        (changed_operation, random_bits_are_not_ours, "gen_xla_ops.xla_call_module`"),
        (missing_operation, random_bits_are_not_ours, "gen_xla_ops.xla_call_module`"),
        (changed_batch, batches_are_not_copied, "batch_op._BatchDataset`"),
        (changed_shuffle, batches_are_not_copied, "shuffle_op._ShuffleDataset`"),
    ],
)
def test_each_changed_name_is_named_once(
    monkeypatch, caplog, change: Callable, without: Callable, named: str
):
    change(monkeypatch)
    speed = without()
    assert without() == speed
    assert fallbacks().counts == {speed: 2}
    [line] = [text for text in caplog.messages if text.startswith("Going on without")]
    assert line.startswith(f"Going on without {speed}, which takes longer: ")
    assert named in line
    assert tf.__version__ in line


def changed_prefetch(monkeypatch):
    changed = functools.partial(prefetch_op._PrefetchDataset)
    monkeypatch.setattr(prefetch_op, "_PrefetchDataset", changed)


def changed_iterator(monkeypatch):
    original = iterator_ops.OwnedIterator
    # A copy of the class, as its methods look themselves up by its name.
    content = {k: v for k, v in vars(original).items() if k not in ("__dict__", "__weakref__")}
    content["_next_internal"] = lambda iterator: original._next_internal(iterator)
    changed = type(original)("OwnedIterator", original.__bases__, content)
    monkeypatch.setattr(iterator_ops, "OwnedIterator", changed)


@pytest.mark.parametrize(
    ("change", "speeds"),
    [
        (changed_prefetch, {"datasets without prefetch", "batches copied from arrays"}),
        (changed_iterator, {"flat elements"}),
    ],
)
def test_feeds_without_a_speed(monkeypatch, change: Callable, speeds: set[str]):
    change(monkeypatch)
    rows = tf.data.Dataset.from_tensor_slices((X, Y)).map(lambda x, y: (2.0 * x, y))
    for dataset in (rows.batch(8).prefetch(2), rows.batch(8)):
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(4))
        dataset = dataset.map(lambda x, y: (tf.ensure_shape(x, [8, 6]), tf.ensure_shape(y, [8, 3])))
        with DatasetFeed(dataset, element_format(dataset.element_spec), num_steps=1) as feed:
            batches = [[tensor.numpy()[0] for tensor in tensors_of(given)] for given in feed]
        np.testing.assert_array_equal(np.concatenate([x for x, _ in batches]), 2 * X)
        np.testing.assert_array_equal(np.concatenate([y for _, y in batches]), Y)
    assert set(fallbacks().counts) == speeds


def test_gradients_without_rewrites(monkeypatch):
    sequences = np.random.default_rng(2).normal(size=(32, 64, 24)).astype(np.float32)

    def weights() -> list[np.ndarray]:
        keras.utils.set_random_seed(2)
        model = keras.Sequential(
            [
                keras.Input([64, 24]),
                keras.layers.EinsumDense("btf,fhk->bthk", output_shape=(None, 3, 8)),
                keras.layers.Reshape((64, 24)),
                keras.layers.Dense(4),
                keras.layers.GlobalAveragePooling1D(),
            ]
        )
        model.compile("sgd", "mse", steps_per_execution=2)
        model.fit(sequences, np.ones([32, 4]), batch_size=16, verbose=0, shuffle=False)
        return model.get_weights()

    stock = weights()
    with IPUStrategy().scope():
        weights()
        assert fallbacks().counts == {}
        monkeypatch.delattr(gen_xla_ops, "xla_optimization_barrier")
        monkeypatch.delattr(tensor_util, "constant_value_as_shape")
        found = weights()
    # Older layers have no product that is replaced.
    has_product = tuple(map(int, keras.__version__.split(".")[:2])) >= (3, 15)
    replaced = {"replacing MatMul", "replacing Sum"} if has_product else {"replacing Sum"}
    assert set(fallbacks().counts) == replaced
    for value, expected in zip(found, stock, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


def test_random_bits_are_the_same_without_the_function(monkeypatch):
    key, counter = tf.constant([2**63 + 5], tf.uint64), tf.constant([2**64 - 1, 7], tf.uint64)
    kernel = tf.raw_ops.StatelessRandomUniformV2(shape=[5, 7], key=key, counter=counter, alg=1)
    missing_operation(monkeypatch)
    draw = tf.function(lambda: random_bits.draw("uniform", [5, 7], key, counter), jit_compile=True)
    np.testing.assert_array_equal(draw(), kernel)
    assert fallbacks().counts == {"random bits": 1}


def test_a_name_that_all_depends_on_stops_who_uses_it(monkeypatch):
    with tf.Graph().as_default():
        op = tf.constant(1.0).op
    monkeypatch.setattr(tf.Operation, "_set_attr", lambda self, name: None)
    with pytest.raises(FormError) as raised:
        assign_shard(op, 1)
    assert str(raised.value) == (
        "ipu_keras relies on the private name `tensorflow.Operation._set_attr`, which has another "
        f"form in tensorflow {tf.__version__}. Expected: a function that is called with (self, "
        "attr_name, attr_value). Received: a function of (self, name). Install a version of "
        "tensorflow that this version of ipu_keras was made for."
    )
    assert fallbacks().counts == {}


def test_each_is_counted_and_logged_once(caplog):
    found = Fallbacks()
    missing = PrivateName("textwrap", "_quick", Function("text"))
    wrap = PrivateName("textwrap", "wrap", Function("text", keywords=("width",)))
    assert found.attempt("wraps", lambda text, width: wrap.get()(text, width), "a b", width=1) == [
        "a",
        "b",
    ]
    for speed in ("quick wraps", "quick wraps", "quick fills"):
        assert found.attempt(speed, missing.get) is None
    assert found.counts == {"quick wraps": 2, "quick fills": 1}
    assert [message.partition(",")[0] for message in caplog.messages] == [
        "Going on without quick wraps",
        "Going on without quick fills",
    ]


def test_a_symbol_that_the_library_lacks(caplog):
    assert fallbacks().attempt("its own function", address_of, "TF_NoSuchFunction") is None
    assert fallbacks().counts == {"its own function": 1}
    assert "TF_NoSuchFunction" in caplog.text
    assert tf.__version__ in caplog.text


def test_other_errors_are_not_held_back():
    with pytest.raises(ZeroDivisionError):
        fallbacks().attempt("division", lambda: 1 / 0)
    assert fallbacks().counts == {}
