"""Tensors written to files, as `ipu.utils` does it."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.utils import export_dataset_to_file, export_inputs_to_file


def loaded(path):
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


@pytest.mark.parametrize("apply_options", [True, False])
def test_one_file_for_each_tensor(tmp_path, apply_options):
    dataset = tf.data.Dataset.range(9).map(lambda k: {"b": (k, tf.ones([2])), "a": k % 2 == 0})
    export_dataset_to_file(
        dataset, str(tmp_path / "my.data.bin"), np.int64(3), "train", apply_options
    )
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [f"my.data.{index}.bin" for index in range(3)]
    a, b0, b1 = [loaded(file)["train"] for file in files]
    assert (a.dtype, a.tolist()) == (np.bool_, [True, False, True])
    assert (b0.dtype, b0.tolist()) == (np.int64, [0, 1, 2])
    assert (b1.dtype, b1.tolist()) == (np.float32, [[1, 1]] * 3)


def test_one_tensor_replaces_the_file(tmp_path):
    (tmp_path / "x").write_text("before")
    export_dataset_to_file(tf.data.Dataset.range(4), tmp_path / "x", 4)
    assert [file.name for file in tmp_path.iterdir()] == ["x"]
    assert {name: found.tolist() for name, found in loaded(tmp_path / "x").items()} == {
        "feed": [0, 1, 2, 3]
    }


@pytest.mark.parametrize("name", ["file", "allow_pickle", r"a/b\c > 0.5.npy", "é"])
def test_any_name(tmp_path, name):
    export_dataset_to_file(tf.data.Dataset.range(2), tmp_path / "x", 2, name)
    assert {found: array.tolist() for found, array in loaded(tmp_path / "x").items()} == {
        name: [0, 1]
    }


@pytest.mark.filterwarnings("ignore:`feed_name` of feeds is deprecated:DeprecationWarning")
def test_a_queue_in_a_graph_with_tables(tmp_path):
    with tf.Graph().as_default():
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer([0, 1], [5, 7], tf.int64, tf.int64), -1
        )
        dataset = tf.data.Dataset.range(4).map(table.lookup)
        queue = IPUInfeedQueue(dataset, feed_name="training")
        export_dataset_to_file(queue, tmp_path / "a", 3)
        export_dataset_to_file(dataset, tmp_path / "b", 2)
    assert loaded(tmp_path / "a")["training"].tolist() == [5, 7, -1]
    assert loaded(tmp_path / "b")["feed"].tolist() == [5, 7]


@pytest.mark.parametrize(
    ("dataset", "error", "message"),
    [
        ([1], TypeError, "`dataset_or_infeed` must be a tf.data.Dataset or an IPUInfeedQueue"),
        (
            tf.data.Dataset.range(3),
            ValueError,
            "^`num_elements` must not be more than the dataset has, which is 3. Received: .*=4",
        ),
        (tf.data.Dataset.range(9).batch(2), ValueError, "not fully defined. .*drop_remainder=True"),
        (tf.data.Dataset.from_tensors("a").repeat(), TypeError, "Only numbers .* type string$"),
        (
            tf.data.Dataset.from_tensors(tf.constant(1, tf.bfloat16)).repeat(),
            TypeError,
            "Only numbers of NumPy's own types are exported: cast others. .* bfloat16$",
        ),
        (
            tf.data.Dataset.from_tensors(tf.sparse.from_dense([1])).repeat(),
            TypeError,
            "Only dense tensors are exported",
        ),
    ],
)
def test_what_is_refused_leaves_no_file(tmp_path, dataset, error, message):
    with pytest.raises(error, match=message):
        export_dataset_to_file(dataset, tmp_path / "x", 4)
    assert list(tmp_path.iterdir()) == []


def test_places_and_numbers_that_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^`num_elements` must be a positive integer"):
        export_dataset_to_file(tf.data.Dataset.range(3), tmp_path / "x", 0)
    with pytest.raises(FileNotFoundError, match="into a folder that exists"):
        export_dataset_to_file(tf.data.Dataset.range(3), tmp_path / "none" / "x", 1)
    with pytest.raises(TypeError, match=r"^`apply_options` must be True or False"):
        export_dataset_to_file(tf.data.Dataset.range(3), tmp_path / "x", 1, apply_options="x")


@pytest.mark.parametrize("use_resource", [True, False])
def test_inputs_of_a_graph(tmp_path, use_resource):
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.int32, [2], name="scope/x")
        v = tf.compat.v1.get_variable("v", initializer=[1.0, 2.0], use_resource=use_resource)
        export_inputs_to_file([x, v, x + 1], tmp_path / "x", {x: [3, 4]})
        found = {name: value.tolist() for name, value in loaded(tmp_path / "x").items()}
        assert found == {"scope/x:0": [3, 4], "v:0": [1.0, 2.0], "add:0": [4, 5]}
        with tf.compat.v1.Session() as session:
            session.run(v.initializer)
            session.run(v.assign([7.0, 8.0]))
            export_inputs_to_file((v,), tmp_path / "x", {})
    assert loaded(tmp_path / "x")["v:0"].tolist() == [7.0, 8.0]


def test_inputs_that_are_refused(tmp_path):
    for inputs in ([], [tf.constant(1)], [tf.Variable(1)], "x", 3):
        with pytest.raises(TypeError, match=r"^`inputs` must be a list of placeholders, variables"):
            export_inputs_to_file(inputs, tmp_path / "x", {})
    with tf.Graph().as_default():
        text = tf.constant("a", name="text")
        with pytest.raises(TypeError, match=r"^Only numbers .* Received: text:0 of type string$"):
            export_inputs_to_file([text], tmp_path / "x", {})
    assert list(tmp_path.iterdir()) == []
