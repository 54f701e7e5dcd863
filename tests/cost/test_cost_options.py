"""What can be chosen about a model, and what is refused."""

import math

import numpy as np
import pytest

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.store.canonical_json import to_json


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"available_memory_proportion": 0.0}, "above 0 and at most 1. Received: .*=0.0"),
        ({"available_memory_proportion": 1.5}, "Received: available_memory_proportion=1.5"),
        ({"available_memory_proportion": math.nan}, "a number above 0 and at most 1. .*=nan"),
        ({"steps_per_execution": 0}, "positive integer. Received: steps_per_execution=0"),
        ({"gradient_accumulation_count": "2"}, "Received: gradient_accumulation_count='2'"),
        ({"dtype": ["float16"]}, r"one of float16, float32, .* Received: dtype=\['float16'\]"),
        ({"dtype": np.dtype("float16")}, r"Received: dtype=dtype\('float16'\)"),
        ({"gradient_accumulation_dtype": 16}, "Received: gradient_accumulation_dtype=16"),
        ({"outlining": "x"}, "`outlining` must be True or False. Received: outlining='x'"),
        ({"recomputation": 1}, "`recomputation` must be True or False. .*recomputation=1"),
        ({"selection_order": "SNAKE"}, "a SelectionOrder, such as .*selection_order='SNAKE'"),
        ({"num_ipus": 2048}, "must be at most 1024, those of the largest .* num_ipus=2048"),
        (
            {"num_ipus": 2, "num_replicas": 513},
            r"at most 1024 IPUs together, .* num_replicas=513, each on 2 IPU\(s\)",
        ),
        ({"pipeline": 3}, "`pipeline` must be a Pipeline, or None .* Received: pipeline=3"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        CostOptions(**options)


@pytest.mark.parametrize("value", ["2", None, [1], 2.5, True])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("available_memory_proportion", "a number above 0 and at most 1"),
        ("gradient_accumulation_count", "a positive integer"),
        ("maximum_cross_replica_sum_buffer_size", "an integer, 0 or more"),
        ("maximum_reduce_scatter_buffer_size", "an integer, 0 or more"),
        ("minimum_remote_tensor_size", "an integer, 0 or more"),
        ("num_ipus", "a power of two: 1, 2, 4 and so on"),
        ("num_replicas", "a positive integer"),
        ("steps_per_execution", "a positive integer"),
    ],
)
def test_what_is_no_such_number(name, expected, value):
    with pytest.raises(ValueError) as error:
        CostOptions(**{name: value})
    assert str(error.value) == f"`{name}` must be {expected}. Received: {name}={value!r}"


def test_numbers_of_numpy_are_as_those_of_python():
    counts = (
        "gradient_accumulation_count",
        "maximum_cross_replica_sum_buffer_size",
        "maximum_reduce_scatter_buffer_size",
        "minimum_remote_tensor_size",
        "num_ipus",
        "num_replicas",
        "steps_per_execution",
    )
    given = CostOptions(
        **dict.fromkeys(counts, np.int64(2)), available_memory_proportion=np.float32(0.5)
    )
    expected = CostOptions(**dict.fromkeys(counts, 2), available_memory_proportion=0.5)
    assert given == expected
    assert to_json(given) == to_json(expected)
    assert {type(getattr(given, name)) for name in counts} == {int}
