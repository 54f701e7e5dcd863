"""Who may look a table on the host up, and when."""

import numpy as np
import pytest
import tensorflow as tf
from host_tables import NOT_REGISTERED, TABLE, words


@pytest.mark.parametrize("jit_compile", [None, False, True], ids=["eager", "function", "xla"])
def test_lookup_needs_registration(jit_compile):
    embedding = words(spec=None)
    run = embedding.lookup
    if jit_compile is not None:
        run = tf.function(embedding.lookup, jit_compile=jit_compile)
    ids = tf.constant([[4, 4], [0, 9]])
    for _ in range(2):
        with pytest.raises(tf.errors.FailedPreconditionError, match=NOT_REGISTERED):
            run(ids)
        with embedding.register():
            np.testing.assert_array_equal(run(ids), TABLE[ids])


def test_each_session_is_registered_by_itself():
    with tf.Graph().as_default(), tf.compat.v1.Session() as first:
        embedding = words(spec=None)
        rows = embedding.lookup([1])
        with tf.compat.v1.Session() as second:
            for session in (first, second):
                session.run(tf.compat.v1.global_variables_initializer())
            with embedding.register():  # the default session, which is the second
                np.testing.assert_array_equal(second.run(rows), TABLE[[1]])
                with pytest.raises(tf.errors.FailedPreconditionError, match=NOT_REGISTERED):
                    first.run(rows)
        with pytest.raises(tf.errors.FailedPreconditionError, match=NOT_REGISTERED):
            first.run(rows)


def test_registered_once_at_a_time():
    embedding = words(spec=None)
    with embedding.register():
        with (
            pytest.raises(ValueError, match=r"once at a time.*name='words'"),
            embedding.register(),
        ):
            pass
        np.testing.assert_array_equal(embedding.lookup([2]), TABLE[[2]])
    with pytest.raises(KeyError), embedding.register():
        raise KeyError
    with pytest.raises(tf.errors.FailedPreconditionError, match=NOT_REGISTERED):
        embedding.lookup([2])


def test_a_graph_needs_a_session():
    with tf.Graph().as_default():
        embedding = words(spec=None)
        with (
            pytest.raises(ValueError, match=r"`session` must be.*session=None"),
            embedding.register(),
        ):
            pass
