"""Datasets as sources of feeds: which elements can travel, and how they come out."""

import collections
import copy
import gc
import threading
import weakref

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from said import said

from ipu_keras.feeds.dataset_feed import (
    DatasetFeed,
    ElementFormat,
    element_format,
    mapped,
    tensors_of,
    without_prefetch,
)
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.system import SYSTEM
from ipu_keras.program import FEED_DTYPES
from ipu_keras.runtime import SuperBatch

X = tf.TensorSpec((8, 3), tf.float32)
Y = tf.TensorSpec((8,), tf.int32)
Pair = collections.namedtuple("Pair", "first second")


# -- formats -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("element_spec", "structure", "num_tensors"),
    [
        (X, 0, 1),
        ((X, Y), (0, 1), 2),
        ((X, (Y, X)), (0, (1, 2)), 3),
        # tf.nest sorts the keys of dicts.
        ({"b": X, "a": Y}, {"b": 1, "a": 0}, 2),
        (({"x": X}, Y, Y), ({"x": 0}, 1, 2), 3),
        (Pair(X, Y), Pair(0, 1), 2),
        ((X, None, Y), (0, None, 1), 2),
        ((X, tf.data.Dataset.from_tensors((0, None)).element_spec[1]), (0, None), 1),
        ((X, tf.OptionalSpec(Y)), (0, None), 1),
        ((), (), 0),
        (None, None, 0),
    ],
)
def test_structures(element_spec, structure, num_tensors):
    element = element_format(element_spec)
    assert element.structure == structure
    assert type(element.structure) is type(structure)
    assert len(element.specs) == num_tensors


@pytest.mark.parametrize(
    "structure",
    [
        1,
        {"b": (1, [2, None]), "a": {"d": 3, "c": 4}},
        collections.OrderedDict(b=1, a=(2, 3)),
        Pair(1, {"b": 2, "a": 3}),
        ([], {}, (np.int32(1),)),
    ],
)
def test_structures_are_mapped_as_by_tensorflow(structure):
    order, expected = [], []
    found = mapped(lambda leaf: (order.append(leaf), str(leaf))[1], structure)
    assert found == tf.nest.map_structure(
        lambda leaf: (expected.append(leaf), str(leaf))[1], structure
    )
    assert order == expected
    assert not tf.nest.is_nested(structure) or type(found) is type(structure)


def test_specs_are_in_the_order_of_the_positions():
    element = element_format({"b": X, "a": Y})
    assert element.specs == (TensorSpec((8,), "int32"), TensorSpec((8, 3), "float32"))


@pytest.mark.parametrize("dtype", FEED_DTYPES)
def test_dtypes_that_a_feed_carries(dtype):
    (spec,) = element_format(tf.TensorSpec((2,), dtype)).specs
    assert spec == TensorSpec((2,), dtype)


def test_float64_becomes_float32():
    (spec,) = element_format(tf.TensorSpec((2,), tf.float64)).specs
    assert spec.dtype == "float32"


_TO_INT32 = "or cast the array before passing it, for instance to int32."
_TO_FLOAT32 = "or cast the array before passing it, for instance to float32."
_FROM_TEXT = "which for texts is what the layer or function does that makes numbers of them."


@pytest.mark.parametrize(
    ("dtype", "cast"),
    [
        *((name, _TO_INT32) for name in ("int64", "int16", "uint16", "uint32", "uint64", "qint8")),
        ("complex64", _TO_FLOAT32),
        ("bfloat16", _TO_FLOAT32),
        ("string", _FROM_TEXT),
    ],
)
def test_dtypes_that_a_feed_does_not_carry(dtype, cast):
    with pytest.raises(tf.errors.FailedPreconditionError) as error:
        element_format((X, tf.TensorSpec((2,), dtype)))
    assert str(error.value) == (
        f"Unsupported datatype {dtype} on index 1 of feed operation. An IPU feed carries int32, "
        "float32, float16, bool, int8, uint8. You should use a tf.data.Dataset.map() operation to "
        f"cast the element, {cast}"
    )


@pytest.mark.parametrize("shape", [None, (None,), (None, 3), (8, None)])
def test_shapes_that_are_not_known(shape):
    spec = tf.TensorSpec(shape, tf.float32)
    with pytest.raises(ValueError) as error:
        element_format((X, spec))
    assert said(error.value) == (
        f"The provided set of data contains a shape {spec.shape} which is not fully defined. "
        "Executing on IPU requires all shapes to be known when the program is compiled: batch with "
        "`drop_remainder=True` or give the shape.\nReceived: index 1 of the element"
    )


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (tf.SparseTensorSpec((2, 3), tf.float32), "SparseTensorSpec"),
        (tf.RaggedTensorSpec((2, None), tf.float32), "RaggedTensorSpec"),
        (tf.data.DatasetSpec(X), "DatasetSpec"),
    ],
)
def test_leaves_that_are_not_dense(spec, name):
    with pytest.raises(TypeError) as error:
        element_format((X, spec))
    assert str(error.value) == (
        f"An IPU feed carries dense tensors. Received: {name} at index 1; convert it, for instance "
        "with `to_tensor()` or `tf.sparse.to_dense`."
    )


# -- elements to arrays and back -----------------------------------------------

arrays = st.builds(
    lambda shape, dtype: np.random.default_rng(0).integers(0, 2, shape).astype(dtype),
    st.lists(st.integers(1, 4), max_size=3),
    st.sampled_from([*FEED_DTYPES, "float64"]),
)
elements = st.recursive(
    st.none() | arrays | arrays.map(tf.constant),
    lambda children: (
        st.lists(children, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abcd"), children, max_size=3)
        | st.builds(Pair, children, children)
    ),
    max_leaves=8,
)


def spec_of(leaf):
    return None if leaf is None else tf.TensorSpec(leaf.shape, leaf.dtype)


@settings(deadline=None)
@given(element=elements)
def test_round_trip(element):
    form = element_format(tf.nest.map_structure(spec_of, element))
    rows = form.flatten(element)
    assert [row.shape for row in rows] == [spec.shape for spec in form.specs]
    assert all(isinstance(row, np.ndarray | np.generic) for row in rows)

    again = form.unflatten(rows)
    tf.nest.assert_same_structure(again, element)
    for leaf, original in zip(tf.nest.flatten(again), tf.nest.flatten(element), strict=True):
        assert (leaf is None) == (original is None)
        if original is not None:
            np.testing.assert_array_equal(leaf, original)


@settings(deadline=None)
@given(element=elements)
def test_round_trip_through_a_super_batch(element):
    form = element_format(tf.nest.map_structure(spec_of, element))
    tensors = tensors_of(SuperBatch.of([form.flatten(element)] * 2, form.specs))
    again = form.unflatten(tensors)
    for leaf, original in zip(tf.nest.flatten(again), tf.nest.flatten(element), strict=True):
        if original is not None:
            np.testing.assert_array_equal(leaf, [original, original])
            assert leaf.dtype != tf.float64


def test_an_element_of_another_structure():
    form = element_format((X, Y))
    with pytest.raises(ValueError, match="zip"):
        form.flatten((tf.zeros((8, 3)),))
    with pytest.raises(ValueError, match="zip"):
        form.flatten((np.zeros((8, 3)),))
    assert [array.size for array in form.flatten((np.zeros(2), np.zeros(3)))] == [2, 3]


def test_formats_are_values():
    assert element_format((X, Y)) == element_format((X, Y))
    assert element_format((X, Y)) != element_format((Y, X))
    assert isinstance(element_format(X), ElementFormat)


# -- datasets ------------------------------------------------------------------


def numbered(num_batches):
    """A dataset of pairs `(x, y)` whose batches are told apart by their number."""

    def batch(k):
        return tf.fill((8, 3), tf.cast(k, tf.float32)), tf.fill((8,), tf.cast(k, tf.int32))

    return tf.data.Dataset.range(num_batches).map(batch)


def read(dataset, num_steps, **options):
    """The tensors of all super-batches of a dataset."""
    form = element_format(dataset.element_spec)
    with DatasetFeed(dataset, form, num_steps=num_steps, **options) as feed:
        return [tensors_of(super_batch) for super_batch in feed]


@pytest.mark.parametrize(
    ("num_batches", "num_steps", "expected"),
    [(4, 2, [[0, 1], [2, 3]]), (5, 2, [[0, 1], [2, 3]]), (3, 1, [[0], [1], [2]]), (1, 2, [])],
)
def test_super_batches(num_batches, num_steps, expected):
    super_batches = read(numbered(num_batches), num_steps)
    assert [y[:, 0].numpy().tolist() for _, y in super_batches] == expected
    for x, y in super_batches:
        assert (x.shape, x.dtype) == ((num_steps, 8, 3), tf.float32)
        assert (y.shape, y.dtype) == ((num_steps, 8), tf.int32)
        np.testing.assert_array_equal(x[:, :, 0], y)


def test_float64_is_cast():
    dataset = tf.data.Dataset.from_tensors(np.array([0.1, 1e300, np.nan])[:1])
    ((x,),) = read(dataset, 1)
    np.testing.assert_array_equal(x.numpy(), np.array([[0.1]], np.float32))


@pytest.mark.parametrize(
    ("length", "num_steps", "seed", "has_thread"),
    [(4, 2, None, False), (4, 2, 1, True), (1 << 14, 1, None, False), (1 << 14, 16, None, True)],
    ids=[
        "small",
        "with a seed, which TensorFlow reads",
        "a step of 256 KB",
        "a super-batch of 4 MB",
    ],
)
def test_small_batches_at_hand_need_no_thread(length, num_steps, seed, has_thread):
    slices = tf.data.Dataset.from_tensor_slices(np.zeros((64, length), np.float32))
    dataset = slices.shuffle(9, seed=seed).batch(4, drop_remainder=True)
    others = set(threading.enumerate())  # feeds of earlier tests may still be going
    with DatasetFeed(dataset, element_format(dataset.element_spec), num_steps=num_steps) as feed:
        feed.open()
        names = [thread.name for thread in set(threading.enumerate()) - others]
        assert ("ipu-infeed" in names) is has_thread
        assert len(list(feed)) == 16 // num_steps


def test_scalars():
    ((x,), (y,)) = read(tf.data.Dataset.range(4).map(lambda k: tf.cast(k, tf.int32)), 2)
    assert x.numpy().tolist() == [0, 1]
    assert y.numpy().tolist() == [2, 3]


@pytest.mark.parametrize(
    "nothing",
    [None, tf.experimental.Optional.empty(tf.TensorSpec((), tf.float32))],
    ids=["none", "optional"],
)
def test_a_dataset_with_leaves_that_are_nothing(nothing):
    dataset = tf.data.Dataset.from_tensors((tf.ones((2,)), nothing)).repeat(4)
    super_batches = read(dataset, 2)
    assert [[tensor.shape for tensor in tensors] for tensors in super_batches] == [[(2, 2)]] * 2


def test_a_dataset_that_is_read_twice():
    dataset = numbered(4)
    form = element_format(dataset.element_spec)
    for _ in range(2):
        with DatasetFeed(dataset, form, num_steps=2) as feed:
            assert len(list(feed)) == 2


# -- prefetching -----------------------------------------------------------------


def shuffled():
    """32 numbers in batches of 4, in a new order in each pass."""
    return (
        tf.data.Dataset.range(32)
        .map(lambda k: tf.cast(k, tf.int32))
        .shuffle(8, seed=3)
        .batch(4, drop_remainder=True)
    )


def kinds(dataset):
    """The operations of a dataset, from its end."""
    found = []
    while dataset is not None:
        found.append(type(dataset).__name__)
        dataset = getattr(dataset, "_input_dataset", None)
    return found


def private_threads():
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    return options


@pytest.mark.parametrize(
    "end",
    [
        lambda dataset: dataset,
        lambda dataset: dataset.prefetch(2),
        lambda dataset: dataset.prefetch(tf.data.AUTOTUNE).prefetch(1),
        lambda dataset: dataset.prefetch(2).with_options(private_threads()),
        lambda dataset: dataset.with_options(private_threads()).prefetch(2),
        lambda dataset: copy.copy(dataset.prefetch(2)),
    ],
    ids=["none", "one", "two", "before options", "after options", "a copy"],
)
def test_only_the_feed_reads_ahead(end):
    """Two passes have the orders that two passes of the same dataset have without a feed."""
    dataset = end(shuffled())
    direct = without_prefetch(dataset)
    assert kinds(direct) == ["_OptionsDataset", *kinds(shuffled())]
    assert without_prefetch(dataset) is direct
    options = direct.options()
    assert options.experimental_optimization.inject_prefetch is False
    given = dataset.options().threading.private_threadpool_size
    assert options.threading.private_threadpool_size == given
    other = end(shuffled())
    expected = [[batch.numpy().tolist() for batch in other] for _ in range(2)]
    assert expected[0] != expected[1]
    found = [[x[0].numpy().tolist() for (x,) in read(dataset, 1)] for _ in range(2)]
    assert found == expected


def test_copies_of_a_strategy_share_what_is_read():
    SYSTEM.reset()
    strategy = IPUStrategy()
    dataset = shuffled().prefetch(1)
    distributed = [strategy.experimental_distribute_dataset(dataset) for _ in range(2)]
    assert without_prefetch(distributed[0]) is without_prefetch(distributed[1])
    assert without_prefetch(dataset) is without_prefetch(distributed[0])
    SYSTEM.reset()


@pytest.mark.parametrize("end", [lambda dataset: dataset, lambda dataset: dataset.prefetch(1)])
def test_a_dataset_goes_when_nobody_has_it(end):
    """Its tensors may be large: no cycle keeps them until garbage is collected."""
    dataset = end(shuffled())
    assert read(dataset, 1)
    gone = [weakref.ref(dataset), weakref.ref(without_prefetch(dataset))]
    gc.disable()
    try:
        del dataset
        assert [reference() for reference in gone] == [None, None]
    finally:
        gc.enable()


def test_what_is_no_dataset_is_read_as_it_is():
    source = object()
    assert without_prefetch(source) is source


def test_a_feed_tells_its_format():
    dataset = numbered(1)
    form = element_format(dataset.element_spec)
    with DatasetFeed(dataset, form, num_steps=1) as feed:
        assert feed.element is form
        assert feed.specs == form.specs


def with_unknown_batch_size(*sizes):
    """A dataset of batches of these sizes, which its spec does not tell."""

    def batches():
        for size in sizes:
            yield np.zeros((size, 3), np.float32)

    spec = tf.TensorSpec((None, 3), tf.float32)
    return tf.data.Dataset.from_generator(batches, output_signature=spec)


def test_a_batch_of_another_shape():
    form = element_format(tf.TensorSpec((4, 3), tf.float32))
    with DatasetFeed(with_unknown_batch_size(4, 4, 4, 2), form, num_steps=1) as feed:
        for _ in range(3):
            next(feed)
        with pytest.raises(ValueError) as error:
            next(feed)
    assert str(error.value) == (
        "Every batch of a feed must have the same shape: (4, 3) at index 0. Received: (2, 3). "
        "Batch with `drop_remainder=True`."
    )


def test_batches_whose_size_the_dataset_does_not_tell():
    form = element_format(tf.TensorSpec((4, 3), tf.float32))
    with DatasetFeed(with_unknown_batch_size(4, 4, 4), form, num_steps=3) as feed:
        (x,) = tensors_of(next(feed))
    assert x.shape == (3, 4, 3)


@pytest.mark.parametrize("num_steps", [1, 2])
def test_an_error_in_the_dataset(num_steps):
    def read_the_disk():
        for k in range(5):
            yield np.full(3, k, np.float32)
        raise OSError("the disk is full")

    spec = tf.TensorSpec((3,), tf.float32)
    dataset = tf.data.Dataset.from_generator(read_the_disk, output_signature=spec)
    with DatasetFeed(dataset, element_format(spec), num_steps=num_steps) as feed:
        for _ in range(4 // num_steps):
            next(feed)
        if num_steps == 1:
            next(feed)
        with pytest.raises(tf.errors.OpError, match="OSError: the disk is full") as error:
            next(feed)
    # TensorFlow has the traceback of Python code inside a dataset in its text.
    assert "Traceback (most recent call last)" in str(error.value)
    assert "in read_the_disk" in str(error.value)


@pytest.mark.parametrize("dataset", [numbered(4), with_unknown_batch_size(4, 4, 4, 4)])
def test_batches_are_checked_before_they_come_out(dataset):
    def check(arrays):
        checked.append(arrays[0].shape)
        if len(checked) > 2:
            raise ValueError("not this one")

    checked = []
    spec = dataset.element_spec
    form = element_format(spec if isinstance(spec, tuple) else tf.TensorSpec((4, 3), tf.float32))
    with DatasetFeed(dataset, form, num_steps=2, check=check) as feed:
        next(feed)
        with pytest.raises(ValueError, match="not this one"):
            next(feed)
    assert checked == [form.specs[0].shape] * 3


def test_the_end_of_a_feed_does_not_wait_for_its_iterator():
    """TensorFlow deletes an iterator when it likes; a slow deletion is no one's wait."""
    entered, leave = threading.Event(), threading.Event()

    class SlowToDelete:
        _flat_output_types = (tf.float32,)
        _flat_output_shapes = (tf.TensorShape([3]),)

        def __init__(self):
            self._iterator = iter(tf.data.Dataset.from_tensors(tf.zeros(3)))
            self._iterator_resource = self._iterator._iterator_resource

        def __next__(self):
            raise AssertionError("tensors are read with the op")

        def __del__(self):
            entered.set()
            leave.wait(10)

    class Slow:
        element_spec = tf.TensorSpec((3,), tf.float32)

        def cardinality(self):
            return 1

        def __iter__(self):
            return SlowToDelete()

    others = set(threading.enumerate())  # iterators of earlier tests may still be going
    with DatasetFeed(Slow(), element_format(Slow.element_spec), num_steps=1) as feed:
        assert len(list(feed)) == 1
    assert entered.wait(10)
    assert not leave.is_set()
    new = set(threading.enumerate()) - others
    (deleting,) = (thread for thread in new if thread.name.endswith("(_delete)"))
    leave.set()
    deleting.join(10)
    assert not deleting.is_alive()
