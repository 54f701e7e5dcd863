"""First lines that everybody writes: they run, or the error says the lines that then run."""

import re

import keras
import numpy as np
import pandas
import pytest
import scipy.sparse
import tensorflow as tf

from ipu_keras.config import IPUConfig
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras.extensions.data_advice import data_advice
from ipu_keras.machine.system import SYSTEM

# The first lines, the lines that their error advises, what else it names, and what runs then.
PAIRS = "dataset = tf.data.Dataset.from_tensor_slices((x, y))"
CAST = "dataset = dataset.map(lambda x, y: (x, tf.cast(y, tf.int32)))"
COUNT = "dataset = dataset.apply(tf.data.experimental.assert_cardinality(sum(1 for _ in dataset)))"
FIT = "model.fit(dataset)"
SIGNATURE = "output_signature=(tf.TensorSpec((32, 4), tf.float32), tf.TensorSpec((32,), tf.int32))"
CASES = {
    "a last smaller batch": (
        "model.fit(x, y32)",
        [],
        ["batch_size=40"],
        "model.fit(x, y32, batch_size=40)",
    ),
    "few samples": (
        "model.predict(x[:8])",
        [],
        ["batch_size=8"],
        "model.predict(x[:8], batch_size=8)",
    ),
    "a thousand samples": (
        "model.evaluate(x, y32)",
        [],
        ["batch_size=40"],
        "model.evaluate(x, y32, batch_size=40)",
    ),
    "steps that share an execution": (
        "model.steps_per_execution = 8; model.fit(x, y32)",
        [],
        ["batch_size=25"],
        "model.fit(x, y32, batch_size=25)",
    ),
    "a prime number to train with": (
        "x, y32 = x[:997], y32[:997]; model.fit(x, y32)",
        [],
        ["x[:992], y[:992]"],
        "model.fit(x[:992], y32[:992])",
    ),
    "a prime number to predict": (
        "x = x[:997]; model.predict(x)",
        [],
        ["np.resize(x, (1024, *x.shape[1:]))", "[:997]"],
        "model.predict(np.resize(x, (1024, *x.shape[1:])))[:997]",
    ),
    "labels of int64": (
        "x, y = x[:64], y[:64]; model.fit(x, y)",
        ['y = y.astype("int32")'],
        [],
        "model.fit(x, y)",
    ),
    "labels of int64 in a tensor": (
        "y = tf.constant(y); model.fit(x, y, batch_size=40)",
        ["y = tf.cast(y, tf.int32)"],
        [],
        "model.fit(x, y, batch_size=40)",
    ),
    "lists": (
        "x, y = x[:64].tolist(), y[:64].tolist(); model.fit(x, y)",
        ['x = np.array(x, "float32")', 'y = np.array(y, "int32")'],
        [],
        "model.fit(x, y)",
    ),
    "a part for validation": (
        "model.fit(x, y32, validation_split=0.1)",
        [],
        ["batch_size=25"],
        "model.fit(x, y32, validation_split=0.1, batch_size=25)",
    ),
    "validation data of another size": (
        "model.fit(x[:64], y32[:64], validation_data=(x[:50], y32[:50]))",
        [],
        ["validation_batch_size=25"],
        "model.fit(x[:64], y32[:64], validation_data=(x[:50], y32[:50]), validation_batch_size=25)",
    ),
    "a dataset that keeps its last batch": (
        f"{PAIRS}.batch(16); {FIT}",
        [
            "dataset = dataset.rebatch(16, drop_remainder=True)"
            ".apply(tf.data.experimental.assert_cardinality(62))",
            CAST,
        ],
        [],
        FIT,
    ),
    "a dataset without batches": (
        f"{PAIRS}; {FIT}",
        ["dataset = dataset.batch(32, drop_remainder=True)", CAST],
        [],
        FIT,
    ),
    "a layer that forgets the size of the batch": (
        f"{PAIRS}.batch(16, True).map(lambda x, y: (forgotten(x), y)); {FIT}",
        ["dataset = dataset.map(lambda x, y: (tf.ensure_shape(x, (16, 4)), tf.cast(y, tf.int32)))"],
        [],
        FIT,
    ),
    "a dictionary": (
        "dataset = tf.data.Dataset.from_tensor_slices(({'a': x, 'i': y}, y32)).batch(40, True); "
        + FIT,
        ["dataset = dataset.map(lambda x, y: ({**x, 'i': tf.cast(x['i'], tf.int32)}, y))"],
        [],
        "model.fit(dataset.map(lambda x, y: (x['a'], y)))",
    ),
    "a generator": (
        "model.fit(batches(), steps_per_epoch=3)",
        [f"dataset = tf.data.Dataset.from_generator(batches, {SIGNATURE})"],
        ["model.fit(dataset, steps_per_epoch=...)"],
        "model.fit(dataset, steps_per_epoch=3)",
    ),
    "a dataset of a generator without shapes": (
        "model.fit(tf.data.Dataset.from_generator(batches, output_types=(tf.float32, tf.int32)))",
        [],
        ["output_signature=(tf.TensorSpec(shape, dtype), ...)"],
        f"model.fit(tf.data.Dataset.from_generator(batches, {SIGNATURE}), steps_per_epoch=3)",
    ),
    "a `PyDataset` with a smaller last batch": (
        "model.fit(Batches(x, y32, 32))",
        [],
        ["return len(samples) // 32"],
        "model.fit(Batches(x[:992], y32[:992], 32))",
    ),
    "a `PyDataset` of int64": (
        "model.fit(Batches(x, y, 40))",
        [],
        ['y = y.astype("int32")'],
        "model.fit(Batches(x, y.astype('int32'), 40))",
    ),
    "texts": (
        "x, y = texts, y32[:64]; model.fit(x, y)",
        ["x = layer(x).numpy().astype('int32')"],
        [],
        "model.fit(x, y)",
    ),
    "a dataset of texts": (
        f"x, y = texts, y32[:64]; {PAIRS}.batch(16, True); {FIT}",
        [
            "dataset = dataset.map(lambda x, y: "
            "(tf.ensure_shape(tf.cast(layer(x), tf.int32), (16, length)), y))"
        ],
        [],
        FIT,
    ),
    "images of any size": (
        f"x, y = x, y32; {PAIRS}.batch(16, True).map(lambda x, y: (x[:, : y[0] + 1], y)); {FIT}",
        [],
        ["padded_batch(..., padded_shapes=...)", "tf.image.resize"],
        f"{PAIRS.replace('y))', 'y32))')}.batch(16, True); {FIT}",
    ),
    "a list of rows": (
        "x, y = list(x[:64]), y32[:64]; model.fit(x, y)",
        ["x = np.stack(x)"],
        [],
        "model.fit(x, y)",
    ),
    "lists of different lengths": (
        "x, y = [[0.5], [0.1, 0.2, 0.3, 0.4]] * 32, y32[:64]; model.fit(x, y)",
        ['x = keras.utils.pad_sequences(x, dtype="float32", padding="post")'],
        [],
        "assert x[0].tolist() == [0.5, 0, 0, 0]; model.fit(x, y)",
    ),
    "labels that are names": (
        "x, y = x[:64], ['b', 'a'] * 32; model.fit(x, y)",
        ['y = np.unique(y, return_inverse=True)[1].astype("int32")'],
        [],
        "assert y[:3].tolist() == [1, 0, 1]; model.fit(x, y)",
    ),
    "a dataset of labels that are names": (
        "layer = keras.layers.StringLookup(vocabulary=['a', 'b'], num_oov_indices=0); "
        f"x, y = x[:64], ['b', 'a'] * 32; {PAIRS}.batch(16, True); {FIT}",
        ["dataset = dataset.map(lambda x, y: (x, tf.cast(layer(y), tf.int32)))"],
        ["keras.layers.StringLookup(vocabulary=..., num_oov_indices=0)"],
        FIT,
    ),
    "numbers as objects": (
        "x, y = x[:64].astype(object), y32[:64]; model.fit(x, y)",
        ['x = x.astype("float32")'],
        [],
        "model.fit(x, y)",
    ),
    "columns of dates and names": (
        "x = pd.DataFrame({'a': x[:64, 0], 'b': x[:64, 1], 'day': pd.date_range('2020', periods=64)"
        ", 'kind': ['p', 'q'] * 32}); y = y32[:64]; model.fit(x, y)",
        [
            "x['day'] = (x['day'] - x['day'].min()).dt.total_seconds().astype(\"float32\")",
            "x['kind'] = x['kind'].astype(\"category\").cat.codes.astype(\"float32\")",
        ],
        [],
        "assert x.iloc[1, 2:].tolist() == [86400, 1]; model.fit(x, y)",
    ),
    "weights of int64": (
        "sample_weight = np.ones(1000, int); "
        "model.fit(x, y32, batch_size=40, sample_weight=sample_weight)",
        ['sample_weight = sample_weight.astype("int32")'],
        [],
        "model.fit(x, y32, batch_size=40, sample_weight=sample_weight)",
    ),
    "one sample": (
        "x = x[0]; model.predict(x)",
        ["x = x[None]"],
        ["batch_size=1"],
        "assert model.predict(x, batch_size=1).shape == (1, 3)",
    ),
    "inputs and labels as one": (
        "x = x[:64], y32[:64]; model.fit(x)",
        ["x, y = x"],
        [],
        "model.fit(x, y)",
    ),
    "a sparse tensor": (
        "x, y = tf.sparse.from_dense(x[:64]), y32[:64]; model.fit(x, y)",
        ["x = tf.sparse.to_dense(x)"],
        [],
        "model.fit(x, y)",
    ),
    "a sparse array of SciPy": (
        "x, y = scipy.sparse.csr_array(x[:64]), y32[:64]; model.fit(x, y)",
        ["x = x.toarray()"],
        [],
        "model.fit(x, y)",
    ),
    "a ragged tensor": (
        "x, y = tf.ragged.constant([[0.5], [0.1, 0.2, 0.3, 0.4]] * 32), y32[:64]; model.fit(x, y)",
        ["x = x.to_tensor()"],
        [],
        "model.fit(x, y)",
    ),
    "a dataset of sparse tensors": (
        f"x, y = tf.sparse.from_dense(x[:64]), y32[:64]; {PAIRS}.batch(16, True); {FIT}",
        [
            "dataset = dataset.map(lambda x, y: "
            "(tf.ensure_shape(tf.sparse.to_dense(x), (16, 4)), y))"
        ],
        [],
        FIT,
    ),
    "a dataset of ragged tensors": (
        f"x, y = tf.ragged.constant([[0.5], [0.1, 0.2]] * 32), y32[:64]; {PAIRS}.batch(16, True); "
        + FIT,
        ["dataset = dataset.map(lambda x, y: (x.to_tensor(shape=(16, 4)), y))"],
        [],
        FIT,
    ),
    "a dataset of records": (
        "dataset = tf.data.Dataset.from_tensor_slices({'id': y, 'image': x, 'label': y}); " + FIT,
        [
            "dataset = dataset.batch(32, drop_remainder=True)",
            "dataset = dataset.map(lambda x: (x['image'], tf.cast(x['label'], tf.int32)))",
        ],
        [],
        FIT,
    ),
    "windows of a series": (
        "dataset = keras.utils.timeseries_dataset_from_array(x[:, 0], y32, 4, batch_size=16); "
        + FIT,
        [
            "dataset = dataset.rebatch(16, drop_remainder=True)"
            ".apply(tf.data.experimental.assert_cardinality(62))",
            "dataset = dataset.map(lambda x, y: (tf.ensure_shape(x, (16, 4)), y))",
        ],
        [],
        FIT,
    ),
    "a dataset to predict": (
        "dataset = tf.data.Dataset.from_tensor_slices(x).batch(32); model.predict(dataset)",
        [
            "dataset = dataset.rebatch(40, drop_remainder=True)"
            ".apply(tf.data.experimental.assert_cardinality(25))"
        ],
        [],
        "assert model.predict(dataset).shape == (1000, 3)",
    ),
    "validation data of int64": (
        "validation_data = x[:64], y[:64]; "
        "model.fit(x[:64], y32[:64], validation_data=validation_data)",
        ['validation_data = (validation_data[0], validation_data[1].astype("int32"))'],
        [],
        "model.fit(x[:64], y32[:64], validation_data=validation_data)",
    ),
    "a dataset for validation": (
        f"{PAIRS.replace('y))', 'y32))')}.batch(40, True); validation_data = dataset.unbatch()"
        ".batch(50); model.fit(dataset, validation_data=validation_data)",
        [
            "validation_data = validation_data.rebatch(50, drop_remainder=True)"
            ".apply(tf.data.experimental.assert_cardinality(20))"
        ],
        [],
        "model.fit(dataset, validation_data=validation_data)",
    ),
    "a function that generates": (
        "model.fit(batches, steps_per_epoch=3)",
        [f"dataset = tf.data.Dataset.from_generator(batches, {SIGNATURE})"],
        [],
        "model.fit(dataset, steps_per_epoch=3)",
    ),
    "a dataset of which some is left out": (
        f"{PAIRS.replace('y))', 'y32))')}.filter(lambda x, y: y < 2).batch(16, True); {FIT}",
        [COUNT],
        ["steps_per_epoch=..."],
        "assert dataset.cardinality() == 41; model.fit(dataset)",
    ),
    "lines of a file": (
        "rows = tf.data.Dataset.from_tensor_slices([','.join(map(str, row)) for row in x[:70]])"
        ".map(lambda row: tf.strings.to_number(tf.strings.split(row, ',')))"
        ".filter(lambda row: True); dataset = tf.data.Dataset.zip((rows, "
        f"tf.data.Dataset.from_tensor_slices(y[:70]))).batch(16, True); {FIT}",
        [
            "dataset = dataset.map(lambda x, y: "
            "(tf.ensure_shape(x, (16, 4)), tf.cast(y, tf.int32)))",
            COUNT,
        ],
        [],
        FIT,
    ),
    "a dataset that was batched anew": (
        f"{PAIRS.replace('y))', 'y32))')}.batch(16).rebatch(20, True); model.evaluate(dataset)",
        [COUNT],
        ["steps=..."],
        "model.evaluate(dataset)",
    ),
    "validation data of which some is left out": (
        "validation_data = tf.data.Dataset.from_tensor_slices((x, y32)).filter(lambda x, y: y < 2)"
        ".batch(16, True); model.fit(x[:64], y32[:64], validation_data=validation_data)",
        [COUNT.replace("dataset", "validation_data")],
        ["validation_steps=..."],
        "model.fit(x[:64], y32[:64], validation_data=validation_data)",
    ),
    "a function of NumPy in a dataset": (
        f"{PAIRS.replace('y))', 'y32))')}.map(lambda x, y: "
        f"(tf.numpy_function(np.abs, [x], tf.float32), y)).batch(16, True); {FIT}",
        ["dataset = dataset.map(lambda x, y: (tf.ensure_shape(x, (16, 4)), y))"],
        [],
        FIT,
    ),
    "weights in a list": (
        "sample_weight = list(np.ones(64)); x, y = x[:64], y32[:64]; "
        "model.fit(x, y, sample_weight=sample_weight)",
        ['sample_weight = np.array(sample_weight, "float32")'],
        [],
        "model.fit(x, y, sample_weight=sample_weight)",
    ),
    "labels in a list": (
        "x, y = x[:64], list(y32[:64]); model.fit(x, y)",
        ['y = np.array(y, "int32")'],
        [],
        "model.fit(x, y)",
    ),
    "an array of arrays": (
        "rows = np.empty(64, object); rows[:] = list(x[:64]); x, y = rows, y32[:64]; "
        "model.fit(x, y)",
        ["x = np.stack(x)"],
        [],
        "model.fit(x, y)",
    ),
    "an array of records": (
        "x, y = np.rec.fromarrays(x[:64].T, names='a,b,c,d'), y32[:64]; model.fit(x, y)",
        ['x = np.stack([x[name] for name in x.dtype.names], axis=-1).astype("float32")'],
        [],
        "model.fit(x, y)",
    ),
    "columns of numbers and truths": (
        "x = pd.DataFrame({'a': x[:64, 0] > 0, 'b': range(64), 'c': x[:64, 0], 'd': x[:64, 1]}); "
        "y = y32[:64]; model.fit(x, y)",
        ['x = x.astype("float32")'],
        [],
        "model.fit(x, y)",
    ),
    "columns that may lack values": (
        "x = pd.DataFrame(x[:64]).convert_dtypes(); y = pd.Series(y[:64]).convert_dtypes(); "
        "model.fit(x, y)",
        ['x = x.astype("float32")', 'y = y.astype("int32")'],
        [],
        "model.fit(x, y)",
    ),
    "a column of numbers as objects": (
        "x = pd.DataFrame(x[:64]); first = x[0]; x[0] = x[0].astype(object); y = y32[:64]; "
        "model.fit(x, y)",
        ['x = x.astype("float32")'],
        [],
        "assert x[0].equals(first); model.fit(x, y)",
    ),
    "a loader of batches": (
        "x = Loader(x, y32); model.fit(x)",
        [
            f"dataset = tf.data.Dataset.from_generator(lambda: map(tuple, x), {SIGNATURE})",
            "model.fit(dataset, steps_per_epoch=2)",
        ],
        [],
        "",
    ),
    "a `PyDataset` of lists": (
        "model.fit(Lists(x, y32, 40))",
        [],
        ['x = np.array(x, "float32")', 'y = np.array(y, "int32")'],
        "model.fit(Batches(x, y32, 40))",
    ),
}
# First lines that run as they are.
RUN = {
    "a data frame": "model.fit(pd.DataFrame(x[:64]), pd.Series(y32[:64]))",
    "a data frame of float64": "model.fit(pd.DataFrame(x[:64].astype('float64')), y32[:64])",
    "a tensor of float64": "model.fit(tf.constant(x[:64], tf.float64), y32[:64])",
    "bytes": "model.fit(np.arange(256, dtype='uint8').reshape(64, 4), y32[:64].astype('uint8'))",
    "weights of classes": "model.fit(x[:64], y32[:64], class_weight={0: 1.0, 1: 2.0, 2: 1.0})",
    "weights of float64": "model.fit(x[:64], y32[:64], sample_weight=np.ones(64))",
    "a `PyDataset`": "model.fit(Batches(x[:64], y32[:64], 32))",
    "a part for validation": "model.fit(x[:96], y32[:96], validation_split=1 / 3)",
}


class Batches(keras.utils.PyDataset):
    """Batches of arrays, the last of which may be smaller."""

    def __init__(self, x, y, size):
        super().__init__()
        self.x, self.y, self.size = x, y, size

    def __len__(self):
        return -(-len(self.x) // self.size)

    def __getitem__(self, index):
        rows = slice(index * self.size, (index + 1) * self.size)
        return self.x[rows], self.y[rows]


class Lists(Batches):
    """The same in lists."""

    def __getitem__(self, index):
        return tuple(part.tolist() for part in super().__getitem__(index))


class Loader:
    """Two batches as loaders of other frameworks give them, lists of two."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return 2

    def __iter__(self):
        for rows in (slice(0, 32), slice(32, 64)):
            yield [self.x[rows], self.y[rows]]


@pytest.fixture(scope="module")
def names():
    """What the lines of a case are about."""
    x = np.linspace(-1, 1, 4000, dtype="float32").reshape(1000, 4)
    y = np.arange(1000) % 3
    y32 = y.astype("int32")

    def batches():
        while True:
            yield x[:32], y[:32]

    texts = np.array(["a b c d", "b c d a"] * 32)
    layer = keras.layers.TextVectorization(output_sequence_length=4)
    layer.adapt(texts)
    modules = {"keras": keras, "np": np, "pd": pandas, "scipy": scipy, "tf": tf}
    return locals() | modules | OWN | {"length": 4}


def forgotten(x):
    """Returns a tensor with an open first axis, as `TextVectorization` does."""
    return tf.boolean_mask(x, tf.ones(tf.shape(x)[0], tf.bool))


OWN = {one.__name__: one for one in (Batches, Lists, Loader, forgotten)}


@pytest.fixture
def model(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@pytest.mark.parametrize("case", RUN)
def test_lines_that_run(model, names, case):
    exec(RUN[case], dict(names, model=model))


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.parametrize("case", CASES)
def test_advised_lines_run(model, names, case):
    first, lines, parts, mended = CASES[case]
    names = dict(names, model=model)
    with pytest.raises(Exception) as raised:
        exec(first, names)
    *_, note = raised.value.__notes__
    assert note.startswith("What to write: ")
    assert set(lines + parts) <= set(re.findall("`([^`]*)`", note))
    for line in lines:
        exec(line, names)
    exec(mended, names)


def test_models_of_keras_hub_are_told_to_preprocess_before():
    """Their `fit` batches arrays and keeps a last smaller batch, which no argument changes."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.preprocessor = lambda x, y: (x, y)
    dataset = tf.data.Dataset.from_tensor_slices(np.zeros((40, 4), "float32")).batch(32)
    note = data_advice(model, "fit", {"x": dataset})
    assert (
        "`dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(32, drop_remainder=True)"
        ".map(model.preprocessor)`, `model.preprocessor = None` and `model.fit(dataset)`"
    ) in note


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
def test_inputs_beside_labels_are_put_together(strategy, names):
    """Elements of three are features, labels and weights, whatever inputs a model has."""
    with strategy.scope():
        inputs = [keras.Input((4,)), keras.Input((4,))]
        model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.add(inputs)))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = names["x"][:64], names["y32"][:64]
    names = {"dataset": tf.data.Dataset.from_tensor_slices((x, x, y)).batch(16, True)}
    with pytest.raises(ValueError) as raised:
        model.fit(names["dataset"])
    line = "dataset = dataset.map(lambda *parts: (parts[:-1], parts[-1]))"
    assert f"`{line}`" in raised.value.__notes__[-1]
    exec(line, names)
    model.fit(names["dataset"])


def test_good_data_needs_no_advice(names):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    good = {"x": names["x"][:64], "y": names["y32"][:64]}
    assert not data_advice(model, "fit", good)


def test_what_advice_raises_does_not_hide_the_error(strategy):
    class Broken(keras.utils.PyDataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            raise LookupError("no such file")

    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    with pytest.raises(LookupError, match="no such file"):
        model.fit(Broken())


@pytest.fixture
def two_replicas():
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    yield IPUStrategy()
    SYSTEM.reset()


def test_replicas_and_executions_divide_the_batches(names, two_replicas):
    """Of 1,000 samples, whole executions of 2 replicas x 4 steps take 25 samples in a batch."""
    with two_replicas.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", "mse", steps_per_execution=4)
    x = names["x"]
    with pytest.raises(ValueError) as raised:
        model.predict(x, batch_size=20)
    assert "`batch_size=25`" in raised.value.__notes__[-1]
    assert model.predict(x, batch_size=25, verbose=0).shape == (1000, 3)
