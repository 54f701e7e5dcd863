import math

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.settings.counts import positive_integer, positive_or_none


@pytest.mark.parametrize(
    "value", [3, np.int32(3), np.uint8(3), np.array(3), tf.constant(3), tf.constant(3, tf.int64)]
)
def test_integers(value):
    found = positive_integer("steps", value)
    assert found == 3
    assert type(found) is int


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        1.5,
        2.0,
        math.nan,
        math.inf,
        "2",
        True,
        np.True_,
        np.array([3]),
        np.float32(2),
        tf.constant(2.0),
        tf.constant([1, 2]),
        tf.constant(0),
        [],
    ],
)
def test_what_is_no_count(value):
    for check in (positive_integer, positive_or_none):
        with pytest.raises(ValueError) as error:
            check("steps", value)
        assert str(error.value) == (
            f"`steps` must be a positive integer. Received: steps={value!r}"
        )


def test_a_count_that_is_not_given():
    assert positive_or_none("steps", None) is None
    with pytest.raises(ValueError, match=r"Received: steps=None$"):
        positive_integer("steps", None)
