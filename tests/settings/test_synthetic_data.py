import doctest

import numpy as np
import pytest

from ipu_keras.settings import synthetic_data
from ipu_keras.settings.flags import parse_flags
from ipu_keras.settings.synthetic_data import infeed_array, replaces_infeeds, synthetic_array


def array(initializer, dtype, shape=(2,)):
    flags = parse_flags(f"--synthetic_data_initializer={initializer}" if initializer else "")
    return synthetic_array(flags, shape, dtype)


def test_the_example():
    assert doctest.testmod(synthetic_data).failed == 0


@pytest.mark.parametrize(
    ("initializer", "dtype", "value"),
    [
        ("", "float32", 0.0),
        ("", "bool", False),
        ("1.5", "float16", 1.5),
        ("1e6", "float16", 65504.0),
        ("-1e39", "float32", np.finfo("float32").min),
        ("-1.5", "int32", -1),
        ("300", "int8", 127),
        ("-3", "uint8", 0),
        ("1e30", "int32", 2**31 - 1),
        ("-2", "bool", True),
    ],
)
def test_a_number_in_each_type(initializer, dtype, value):
    found = array(initializer, dtype)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, [value, value])


def test_random_numbers():
    drawn = array("random", "float32", (100, 100))
    assert drawn.dtype == np.float32
    # Four standard errors of 10000 draws.
    assert abs(drawn.mean()) < 0.04
    assert abs(drawn.std() - 1) < 0.03
    np.testing.assert_array_equal(array("random", "float32", (100, 100)), drawn)
    for dtype in ("int32", "uint8", "bool"):
        found = array("random", dtype, (100,))
        assert found.dtype == dtype
        assert set(found.tolist()) == {0, 1}


def test_tensors_of_one_element_differ():
    flags = parse_flags("--synthetic_data_initializer=random")
    first, second = (synthetic_array(flags, (4,), "float32", number) for number in range(2))
    assert (first != second).all()


@pytest.mark.parametrize(
    ("flags", "replaced", "value"),
    [
        ("", False, 0.0),
        ("--synthetic_data_initializer=2", False, 0.0),
        ("--use_synthetic_data --synthetic_data_initializer=2", True, 2.0),
        ("--synthetic_data_categories=infeed --synthetic_data_initializer=2", True, 2.0),
        ("--synthetic_data_categories=outfeed --synthetic_data_initializer=2", False, 0.0),
        ("--null_data_feed --synthetic_data_initializer=2", True, 0.0),
        ("--null_data_feed --use_synthetic_data --synthetic_data_initializer=2", True, 2.0),
    ],
)
def test_what_infeeds_hold(flags, replaced, value):
    parsed = parse_flags(flags)
    assert replaces_infeeds(parsed) is replaced
    np.testing.assert_array_equal(infeed_array(parsed, (2,), "float32"), [value, value])
