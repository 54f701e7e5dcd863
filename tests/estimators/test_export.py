"""Receivers of exported models."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.estimators import export

V1 = tf.compat.v1


def test_single_tensors_get_names():
    with tf.Graph().as_default():
        fed = V1.placeholder(tf.float32, [None])
        found = export.ServingInputReceiver(2.0 * fed, fed)
        assert (list(found.features), list(found.receiver_tensors)) == (["feature"], ["input"])
        assert found.receiver_tensors_alternatives is None
        assert export.TensorServingInputReceiver(fed, fed).features is fed
        with pytest.raises(ValueError, match="`features` must be a tensor; for a dict there is"):
            export.TensorServingInputReceiver({"x": fed}, fed)


def test_functions_that_make_receivers():
    with tf.Graph().as_default():
        features = {"x": tf.zeros([4, 3]), "n": tf.zeros([4], tf.int32)}
        found = export.build_raw_serving_input_receiver_fn(features)()
        assert found.features == found.receiver_tensors
        assert found.features["x"].shape.as_list() == [None, 3]
        assert found.features["n"].dtype == tf.int32
        fixed = export.build_raw_serving_input_receiver_fn(features, 2)()
        assert fixed.features["x"].shape.as_list() == [2, 3]

        spec = {"x": tf.io.FixedLenFeature([2], tf.float32)}
        parsed = export.build_parsing_serving_input_receiver_fn(spec)()
        assert list(parsed.receiver_tensors) == ["examples"]
        values = tf.train.Feature(float_list=tf.train.FloatList(value=[1.0, 2.0]))
        example = tf.train.Example(features=tf.train.Features(feature={"x": values}))
        with V1.Session() as session:
            given = {parsed.receiver_tensors["examples"]: [example.SerializeToString()]}
            assert np.array_equal(session.run(parsed.features["x"], given), [[1.0, 2.0]])
