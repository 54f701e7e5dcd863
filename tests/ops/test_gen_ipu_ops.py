"""What scripts take of IPU software's plugin."""

import doctest

import tensorflow as tf

from ipu_keras import utils
from ipu_keras.config import reset_ipu_configuration
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops import gen_ipu_ops


def test_examples():
    assert doctest.testmod(gen_ipu_ops).failed == 0


def test_events_are_the_reports_of_programs():
    reset_ipu_configuration()
    IPUStrategy().run(tf.function(lambda x: x @ x), [tf.ones((2, 2))])
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        events = session.run(gen_ipu_ops.ipu_event_trace(name="events"))
    assert utils.extract_all_types_from_event_trace(events) == ["COMPILE_END"]
    assert '"schema"' in utils.extract_all_strings_from_event_trace(events)
    reset_ipu_configuration()
