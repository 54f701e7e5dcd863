"""The table of rates: what is published, what is guessed, and what it answers to others."""

import pytest

from ipu_keras.cost.tile.vertex_rates import (
    ELEMENTS,
    ELEMENTWISE,
    element_named,
    rate_of,
)
from ipu_keras.ir.families import ELEMENTWISE as ELEMENTWISE_KINDS
from ipu_keras.machine.target import Confidence, target_named

# As in the estimators: cycles and elements of a vector, of float32, float16 and integers.
PUBLISHED = {
    "add": ((1, 2), (1, 4), (7, 1)),
    "subtract": ((1, 2), (1, 4), (7, 1)),
    "multiply": ((1, 2), (1, 4), (7, 1)),
    "divide": ((10, 2), (21, 4), (277, 1)),
    "exponential": ((6, 2), (4, 4), None),
    "log": ((12, 2), (4, 4), None),
    "tanh": ((12, 2), (4, 4), None),
    "logistic": ((12, 2), (6, 4), None),
    "sqrt": ((10, 2), (23, 4), None),
    "rsqrt": ((8, 2), (19, 4), None),
    "maximum": ((3, 2), (4, 4), None),
    "erf": ((41, 1), (13, 1), None),
    "sine": ((2300, 1), (25, 1), None),
    "power": ((312, 1), (325, 1), None),
    "compare": ((14, 4), (9, 4), None),
    "select": ((5, 1), (5, 1), (5, 1)),
    # With loads, so of two vectors.
    "gelu": ((20, 4), (10, 8), None),
    "gelu-gradient": ((20, 4), (10, 8), None),
    "swish": ((22, 4), (10, 8), None),
    "swish-gradient": ((30, 4), (18, 8), None),
}


def test_what_is_not_published_is_marked_as_a_guess():
    known = {
        (operation, kind): (rate.cycles, rate.vector)
        for operation, rates in ELEMENTWISE.items()
        for kind, rate in rates.items()
        if rate.confidence is not Confidence.GUESSED
    }
    expected = {
        (operation, kind): rate
        for operation, rates in PUBLISHED.items()
        for kind, rate in zip(("float32", "float16", "int"), rates, strict=True)
        if rate is not None
    }
    assert known == expected


def test_every_elementwise_kind_of_a_graph_has_a_rate():
    # Conversions and maps are families of their own, which chains may contain.
    assert set(ELEMENTWISE) == ELEMENTWISE_KINDS | {"convert", "map"}


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_a_load_brings_whole_words(dtype):
    element, gc200 = ELEMENTS[dtype], target_named("gc200")
    # 64 bits are as many words of an element as they are elements, if it is wider.
    words = element.natural_vector(gc200) * min(element.num_bytes, 4)
    assert words == gc200.vector_bytes
    assert element.num_words * 4 >= element.num_bytes


def test_what_is_not_known_for_a_dtype_has_the_rate_of_another():
    for operation, rates in ELEMENTWISE.items():
        for dtype, element in ELEMENTS.items():
            seen, rate = rate_of(operation, dtype)
            relative = rates.get(element.kind, next(iter(rates.values())))
            assert seen == element
            assert (rate.cycles, rate.vector) == (relative.cycles, relative.vector)
            is_guessed = element.kind not in rates
            expected = Confidence.GUESSED if is_guessed else relative.confidence
            assert rate.confidence is expected


def test_errors_name_what_was_meant():
    with pytest.raises(ValueError, match=r"did you mean 'multiply'\?\)\. Received: .*'multipy'"):
        rate_of("multipy", "float32")
    with pytest.raises(ValueError, match=r"did you mean 'float32'\?\)\. Received: dtype='flot32'"):
        element_named("flot32")
    with pytest.raises(ValueError, match=r"`dtype` must be one of .*complex128\. Received"):
        element_named("string")
