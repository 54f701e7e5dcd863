import re
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import assert_same, fit_same
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from ipu_keras.keras.extensions import data_checks
from ipu_keras.keras.extensions.batch_formats import batch_format


def raises(message, error=ValueError):
    return pytest.raises(error, match=f"^{re.escape(message)}")


def batched(data, size=8):
    return tf.data.Dataset.from_tensor_slices(data).batch(size, drop_remainder=True)


def each_call(model, x, y=None, **options):
    """`fit`, `evaluate` and `predict` with the data."""
    return [
        lambda: model.fit(x, y, shuffle=False, verbose=0, **options),
        lambda: model.evaluate(x, y, verbose=0, **options),
        lambda: model.predict(x, verbose=0, **options),
    ]


# Through the model: nothing has changed when the data is refused


def test_a_partial_batch_of_arrays(model, data):
    x, y = (array[:60] for array in data)
    message = (
        "The provided set of data has a partial batch, which could result in data being dropped. "
        "Either adjust the `batch_size` so that it divides the number of samples, or pass a "
        "`tf.data.Dataset` batched with `drop_remainder=True`.\nReceived: batch_size=8 with 4 "
        "samples in the last batch"
    )
    for call in each_call(model, x, y, batch_size=8):
        with raises(message):
            call()
    with raises("The provided set of data has a partial batch"):
        model.fit(tf.constant(x), tf.constant(y), batch_size=8, verbose=0)
    with raises("The provided set of data has a partial batch"):
        model.fit(x[:4], y[:4], verbose=0)


def test_a_dataset_without_drop_remainder(model, data):
    message = (
        "The provided set of data contains a shape (None, 6) which is not fully defined. Executing "
        "on IPU requires all shapes to be known when the program is compiled: batch with "
        "`drop_remainder=True`"
    )
    for call in each_call(model, tf.data.Dataset.from_tensor_slices(data).batch(8)):
        with raises(message):
            call()


def test_a_number_of_batches_that_executions_do_not_divide(model, data):
    x, y = (array[:56] for array in data)
    message = (
        "`steps_per_execution` (2) must be a divisor of the number of batches (7) in the dataset "
        "provided.\nChange either, so that every execution is full, "
        "for instance with `dataset.take(6)`"
    )
    for call in each_call(model, x, y, batch_size=8):
        with raises(message):
            call()
    dataset = batched(data)
    with raises("`steps_per_execution` (2) must be a divisor of the number of batches (5) in the "):
        model.fit(dataset, steps_per_epoch=5, shuffle=False, verbose=0)
    with raises("`steps_per_execution` (2) must be a divisor of the number of batches (3) in the "):
        model.evaluate(dataset, steps=3, verbose=0)


# NumPy 2 has a keyword that TensorFlow's __array__ does not know yet; Keras 3.12 makes it warn.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_fewer_batches_than_steps_per_execution_are_one_execution(model, data, executed):
    x, y = (array[:8] for array in data)
    message = (
        "`steps_per_execution` has been set to 2 but the dataset provided only contains 1 batches. "
        "Using 1 as `steps_per_execution` instead."
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}"):
        model.evaluate(x, y, batch_size=8, verbose=0)
    assert executed("test") == (1, 1)
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}"):
        assert model.predict(x, batch_size=8, verbose=0).shape == (8, 3)


def test_an_infinite_dataset(model, data):
    message = (
        "When providing an infinite dataset, you must specify the number of steps to run (if you "
        "did not intend to create an infinite dataset, make sure to not call `repeat()` on the "
        "dataset).\nPass `steps_per_epoch` to `fit`, `steps` to `evaluate` or `predict`"
    )
    for call in each_call(model, batched(data).repeat()):
        with raises(message):
            call()


def test_a_dataset_of_unknown_size(model, data):
    dataset = batched(data).filter(lambda x, y: True)
    message = (
        "Could not infer the size of the data. You must specify the number of steps to run.\n"
        "Pass `steps_per_epoch` to `fit`"
    )
    for call in each_call(model, dataset):
        with raises(message):
            call()
    assert len(model.predict(dataset, steps=8, verbose=0)) == 64
    counted = dataset.apply(tf.data.experimental.assert_cardinality(8))
    assert len(model.predict(counted, verbose=0)) == 64


def test_a_dataset_that_ends_too_early(model, data):
    message = (
        "Your input does not have enough data. Make sure that your dataset or generator can "
        "generate at least 18 batches.\nThat is steps_per_epoch=6 for 3 epochs; `repeat()` begins "
        "a dataset again. Received: 8 batches"
    )
    with raises(message):
        model.fit(batched(data), steps_per_epoch=6, epochs=5, initial_epoch=2, shuffle=False)
    for call in (model.evaluate, model.predict):
        with raises("Your input does not have enough data. Make sure that your dataset or"):
            call(batched(data), steps=10)


@pytest.mark.parametrize("steps", [4, 8])
@pytest.mark.parametrize("as_dataset", [True, False])
def test_epochs_that_use_up_the_data_begin_it_again(pair, data, steps, as_dataset):
    """As in stock Keras, which makes the iterator again."""
    given = (batched(data),) if as_dataset else data
    options = {} if as_dataset else {"batch_size": 8}
    fit_same(*pair, *given, steps_per_epoch=steps, epochs=5, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation_data": 20}, "The provided set of data has a partial batch"),
        ({"validation_split": 0.2}, "The provided set of data has a partial batch"),
        (
            {"validation_data": 16, "validation_steps": 3},
            "Your input does not have enough data. Make sure that your dataset or generator can "
            "generate at least 3 batches",
        ),
        ({"validation_data": 32}, "Exception encountered when calling Sequential.call()."),
        (
            {"validation_data": 24},
            "`steps_per_execution` (2) must be a divisor of the number of batches (3)",
        ),
    ],
)
def test_validation_data_that_does_not_fit(model, data, options, message):
    """It is refused before the first epoch, which would change the weights."""
    x, y = data
    rows = options.get("validation_data")
    if rows is not None:
        columns = 5 if rows == 32 else 6
        options = {**options, "validation_data": (x[:rows, :columns], y[:rows])}
    before = model.get_weights()
    for _ in range(2):
        with raises(message):
            model.fit(x, y, batch_size=8, verbose=0, **options)
    assert_same(model.get_weights(), before)
    # Nothing of it is left for the next call.
    history = model.fit(x, y, batch_size=8, verbose=0, epochs=0, validation_data=data)
    assert history.history == {}
    model.set_weights(before)


@pytest.mark.parametrize("options", [{"validation_split": 0.25}, {"validation_data": None}])
def test_validation_as_in_stock(pair, data, options):
    if "validation_data" in options:
        options = {"validation_data": tuple(array[:32] for array in data)}
    fit_same(*pair, *data, batch_size=8, epochs=3, validation_freq=2, **options)


def test_a_dataset_that_ends_early_unexpectedly_warns_as_in_stock(pair, data):
    dataset = batched(data).filter(lambda x, y: True)
    histories = []
    for model in pair:
        with pytest.warns(UserWarning, match="Your input ran out of data; interrupting training"):
            fit = model.fit(dataset, steps_per_epoch=12, shuffle=False, verbose=0)
        histories.append(fit.history)
    assert_same(histories[1], histories[0])


@pytest.mark.parametrize(
    "empty",
    [
        lambda x, y: batched((x, y)).take(0),
        lambda x, y: batched((x[:4], y[:4])),
        lambda x, y: batched((x, y)).filter(lambda x, y: False).apply(
            tf.data.experimental.assert_cardinality(0)
        ),
    ],
    ids=["no_batch", "too_small", "filtered"],
)  # fmt: skip
def test_an_empty_dataset(model, data, empty):
    message = (
        "The provided dataset contains 0 items, but all 1 replicas are requested to run 1 steps "
        "each. Make sure the dataset contains at least one full batch"
    )
    for call in each_call(model, empty(*data)):
        with raises(message):
            call()


def test_empty_arrays(model, data):
    for call in each_call(model, data[0][:0], data[1][:0], batch_size=8):
        with raises("The provided dataset contains 0 items, but all 1 replicas are requested to"):
            call()


@pytest.mark.parametrize(
    ("iterator", "name"),
    [
        (lambda data: (batch for batch in [data]), "generator"),
        (lambda data: iter([data]), "list_iterator"),
        (lambda data: iter(batched(data)), "OwnedIterator"),
    ],
)
def test_generators_and_iterators(model, data, iterator, name):
    message = (
        f"The provided set of data is of type `{name}` which is not compatible with the IPU's "
        "requirement to know the data shapes and the number of batches before it runs. Use arrays"
    )
    for call in each_call(model, iterator(data)):
        with raises(message):
            call()
    with raises(message):
        model.fit(*data, batch_size=8, validation_data=iterator(data), verbose=0)


def test_validation_data_is_checked_when_it_is_first_read(pair, data):
    _, model = pair
    x, y = (array[:60] for array in data)
    with raises("The provided set of data has a partial batch"):
        model.fit(*data, batch_size=8, epochs=2, validation_data=(x, y), verbose=0)
    with raises("When providing an infinite dataset"):
        model.fit(*data, batch_size=8, validation_data=batched(data).repeat(), verbose=0)


@pytest.mark.parametrize("dtype", ["int64", "uint16", "str"])
def test_dtypes_that_no_feed_carries(model, data, dtype):
    x, y = data[0], data[1].astype(dtype)
    name = "string" if dtype == "str" else dtype
    message = (
        f"Unsupported datatype {name} on index 1 of feed operation. An IPU feed carries int32, "
        "float32, float16, bool, int8, uint8. You should use a tf.data.Dataset.map() operation to "
        "cast the element, "
    )
    message += (
        "which for texts is what the layer or function does that makes numbers of them."
        if dtype == "str"
        else "or cast the array before passing it, for instance to int32."
    )
    calls = [
        lambda: model.fit(batched((x, y)), shuffle=False, verbose=0),
        lambda: model.fit(x, y, batch_size=8, verbose=0),
    ]
    for call in calls[: 1 if dtype == "str" else 2]:
        with raises(message, tf.errors.FailedPreconditionError):
            call()


@pytest.mark.parametrize("dtype", ["int64", "uint64", "uint32", "int16", "uint16"])
@pytest.mark.parametrize("kind", [np.asarray, tf.constant])
def test_single_batches_need_no_feed(pair, data, dtype, kind):
    x, y = data[0][:8], data[1][:8]
    inputs = (x * 4 + 16).astype(dtype)
    for call in (
        lambda m: m.train_on_batch(x, kind(y.astype(dtype))),
        lambda m: m.train_on_batch(x, kind(y.astype(dtype)), class_weight={1: 3.0}),
        lambda m: m.test_on_batch(x, y=kind(y.astype(dtype)), return_dict=True),
        lambda m: m.test_on_batch(x, kind(y), sample_weight=kind(np.arange(8).astype(dtype))),
        lambda m: m.predict_on_batch(kind(inputs)),
    ):
        stock, model = (call(one) for one in pair)
        assert_same(model, stock)
    assert_same(*(one.get_weights() for one in pair))


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**63 - 1])
def test_single_batches_with_numbers_that_no_ipu_has(model, data, number):
    x, y = data[0][:8], data[1][:8].astype("int64")
    y[3] = number
    message = (
        "IPUs compute with integers of up to 32 bits, and batches take int32. Received: "
        f"{number} in int64 data of shape (8,); make it a number from -2147483648 to 2147483647."
    )
    for call in (
        lambda: model.train_on_batch(x, y),
        lambda: model.test_on_batch(x, {"any": tf.constant(y)}),
        lambda: model.predict_on_batch([x, y]),
    ):
        with raises(message):
            call()


@given(
    arrays(
        st.sampled_from(["bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float32"]),
        array_shapes(min_dims=0, min_side=0, max_side=3),
    )
)
def test_integers_become_int32_if_they_can(array):
    batch = {"x": [array, tf.constant(array)], "y": None}
    if array.dtype.kind in "iu" and not all(-(2**31) <= int(n) < 2**31 for n in array.flat):
        with raises("IPUs compute with integers of up to 32 bits"):
            data_checks.with_ipu_integers(batch)
    else:
        changed = {"int16", "int64", "uint64"}
        expected = "int32" if array.dtype.name in changed else array.dtype.name
        found = data_checks.with_ipu_integers(batch)
        assert found["y"] is None
        for one in found["x"]:
            assert np.asarray(one).dtype == expected
            np.testing.assert_array_equal(one, array)


@pytest.mark.parametrize(
    ("convert", "kind"),
    [(tf.sparse.from_dense, "SparseTensorSpec"), (tf.RaggedTensor.from_tensor, "RaggedTensorSpec")],
)
def test_tensors_that_are_not_dense(model, data, convert, kind):
    dataset = batched(data).map(lambda x, y: (convert(x), y))
    with raises(f"An IPU feed carries dense tensors. Received: {kind} at index 0;", TypeError):
        model.fit(dataset, shuffle=False, verbose=0)


def test_a_dimension_without_elements(model, data):
    dataset = batched((data[0][:, :0], data[1]))
    message = (
        "Detected an input tensor to an infeed queue with a dimension of size 0. Please remove it "
        "from the inputs.\nReceived: shape (8, 0) at index 0 of the element"
    )
    x, y = data[0][:, :0], data[1]
    for call in (
        lambda: model.fit(dataset, shuffle=False, verbose=0),
        *each_call(model, x, y, batch_size=8),
        lambda: model.train_on_batch(x[:8], y[:8]),
        lambda: model.predict_on_batch(x[:8]),
    ):
        with raises(message, tf.errors.InvalidArgumentError):
            call()


def test_shapes_that_do_not_fit_the_model(model, data):
    x, y = data
    for call in (
        *each_call(model, x[:, :5], y, batch_size=8),
        lambda: model.train_on_batch(x[:8, :5], y[:8]),
        lambda: model.predict_on_batch(x[:8, :5]),
    ):
        with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 6"):
            call()
    with pytest.raises(ValueError, match=r"`target\.ndim - 1`"):
        model.fit(x, x, batch_size=8, verbose=0)
    with pytest.raises(ValueError, match="Data cardinality is ambiguous"):
        model.fit(x, y[:32], batch_size=8, verbose=0)


# NaN labels


@pytest.fixture(scope="module")
def regression(strategy, data):
    with strategy.scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=2, jit_compile=False)
    model.fit(data[0], data[0][:, :1], batch_size=8, shuffle=False, verbose=0)
    return model


def test_nan_labels_stop_training_before_the_execution_that_has_them(regression, data, executed):
    labels = data[0][:, :1].copy()
    before = regression.get_weights()
    regression.fit(data[0][:32], labels[:32], batch_size=8, shuffle=False, verbose=0)
    expected = regression.get_weights()
    labels[36] = np.nan
    for sample_weight in (None, np.ones(64)):
        regression.set_weights(before)
        with raises("The labels contain NaN, which would make the loss and the weights NaN"):
            regression.fit(
                data[0], labels, sample_weight=sample_weight,
                batch_size=8, shuffle=False, verbose=0,
            )  # fmt: skip
        for weight, other in zip(regression.get_weights(), expected, strict=True):
            np.testing.assert_allclose(weight, other, rtol=1e-6)
    assert executed("train") == (6, 12)
    for call in (regression.train_on_batch, regression.test_on_batch):
        with raises("The labels contain NaN"):
            call(data[0][32:40], labels[32:40])
    with raises("The labels contain NaN"):
        regression.evaluate(data[0], labels, batch_size=8, verbose=0)


def test_nan_labels_of_a_dataset(regression, data):
    labels = np.full([64, 1], np.nan, "float32")
    with raises("The labels contain NaN"):
        regression.fit(batched((data[0], labels)), shuffle=False, verbose=0)


def test_nan_labels_may_mean_something_to_a_loss_of_the_users_own(strategy, data):
    def masked(y_true, y_pred):
        known = ~tf.math.is_nan(y_true)
        return tf.where(known, (tf.where(known, y_true, 0.0) - y_pred) ** 2, 0.0)

    with strategy.scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
        model.compile("sgd", masked, jit_compile=False)
    labels = np.full([64, 1], np.nan, "float32")
    history = model.fit(data[0], labels, batch_size=8, verbose=0)
    assert history.history["loss"] == [0.0]


@pytest.mark.parametrize(
    ("batch", "loss"),
    [
        ((np.ones(2, "float32"), np.ones(2, "int32")), "mse"),
        ((np.ones(2, "float32"),), "mse"),
        ((np.ones(2, "float32"), np.ones(2, "float32")), lambda y_true, y_pred: 0.0),
        ((np.ones(2, "float32"), np.ones(2, "float32")), None),
        ((np.ones(2, "float32"), [np.ones(2, "float32")] * 2), ["mse", None]),
    ],
    ids=["integers", "no_labels", "own_loss", "no_loss", "no_loss_for_one"],
)
def test_labels_that_need_no_check(batch, loss):
    assert data_checks.nan_label_check(batch_format(batch), loss) is None


@pytest.mark.parametrize(
    "loss", ["mse", keras.losses.mean_squared_error, keras.losses.MeanSquaredError()]
)
def test_the_check_of_labels(loss):
    x, y = np.full(2, np.nan, "float32"), {"a": np.ones(2, "float32"), "b": np.ones(2, "int32")}
    check = data_checks.nan_label_check(batch_format((x, y)), {"a": loss, "b": loss})
    check([x, y["a"], y["b"]])
    with raises("The labels contain NaN"):
        check([x, np.array([1.0, np.nan], "float32"), y["b"]])


# The functions


@pytest.mark.parametrize(
    ("steps_per_execution", "batches", "expected"), [(1, 7, 1), (7, 7, 7), (3, 9, 3)]
)
def test_executions_that_fit(steps_per_execution, batches, expected):
    assert data_checks.executed_steps(steps_per_execution, batches, per_epoch=False) == expected


def test_steps_of_an_epoch_that_executions_do_not_divide():
    with raises(
        "`steps_per_execution` (4) must be a divisor of the number of batches (6) in the dataset "
        "provided to `steps_per_epoch`."
    ):
        data_checks.executed_steps(4, 6, per_epoch=True)
    with raises(
        "`steps_per_execution` (4) must be a divisor of the number of batches (6) in the dataset "
        "provided for each of the 2 replicas.\nChange either, so that every execution is full, "
        "for instance with `dataset.take(8)`, "
        "or with the samples of 8 batches of an array."
    ):
        data_checks.executed_steps(4, 6, per_epoch=False, num_replicas=2)


def test_the_number_of_steps():
    assert data_checks.num_steps(8, None, is_endless=never_asked) == 8
    assert data_checks.num_steps(8, None, 4, is_endless=never_asked) == 2
    assert data_checks.num_steps(8, 4, 4, is_endless=never_asked) == 1
    assert data_checks.num_steps(None, 5, is_endless=never_asked) == 5
    for endless, message in (
        (True, "When providing an infinite dataset, you must specify the number of steps to run"),
        (False, "Could not infer the size of the data. You must specify the number of steps"),
    ):
        with raises(message):
            data_checks.num_steps(None, None, is_endless=endless.__bool__)


@given(st.integers(1, 40) | st.none(), st.integers(1, 40) | st.none(), st.integers(1, 5))
def test_what_replicas_cannot_share_is_dropped_with_a_warning(num_batches, steps, replicas):
    of_epoch = steps or num_batches
    assume(of_epoch is not None)
    if min(of_epoch, num_batches or of_epoch) < replicas:
        with pytest.raises(ValueError, match=f"(all|the) {replicas} replicas"):
            data_checks.num_steps(num_batches, steps, replicas, is_endless=never_asked)
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = data_checks.num_steps(num_batches, steps, replicas, is_endless=never_asked)
    assert found == of_epoch // replicas
    told = [str(warning.message)[:65] for warning in caught]
    rest = f"The number of batches ({of_epoch}) is no multiple of the {replicas} replicas, each of"
    assert told == [rest[:65]] * bool(of_epoch % replicas)


def test_the_rest_of_each_pass_is_dropped_with_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data_checks.num_steps(5, 4, 2, epochs=1, is_endless=never_asked)
    with pytest.warns(UserWarning, match=r"^The number of batches \(5\) is no multiple of the 2 "):
        data_checks.num_steps(5, 4, 2, epochs=2, is_endless=never_asked)


def never_asked():
    raise AssertionError


def test_enough_batches_for_all_epochs():
    data_checks.refuse_shortage(8, 4, epochs=2)
    data_checks.refuse_shortage(8, 4, epochs=2, num_replicas=2)
    data_checks.refuse_shortage(8, None, epochs=2)
    data_checks.refuse_shortage(None, 4, epochs=9)
    # Each pass over the data is used up by whole epochs.
    data_checks.refuse_shortage(8, 8, epochs=3)
    data_checks.refuse_shortage(8, 4, epochs=3)
    data_checks.refuse_shortage(8, 4, epochs=5, num_replicas=2)
    # What replicas cannot share is dropped.
    data_checks.refuse_shortage(5, 5, epochs=3, num_replicas=2)
    data_checks.refuse_shortage(9, 5, epochs=3, num_replicas=2)
    with raises("Your input does not have enough data."):
        data_checks.refuse_shortage(8, 3, epochs=3)
    with raises(
        "Your input does not have enough data. Make sure that your dataset or generator can "
        "generate at least 12 batches.\nThat is steps_per_epoch=7 for 2 epochs; `repeat()` "
    ):
        data_checks.refuse_shortage(9, 7, epochs=2, num_replicas=3)


def test_data_that_is_no_iterator():
    for x in (np.zeros(2), [np.zeros(2)], tf.data.Dataset.range(2), None):
        data_checks.refuse_generators(x)
