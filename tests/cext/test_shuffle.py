"""The order that a buffer of rows gives, against a list."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ipu_keras._shuffle import shuffled_rows


def rows_of_a_twin(draws: list[int], num_rows: int, buffer_size: int) -> list[int]:
    """A list in place of a ring: who is drawn changes places with the first, which leaves."""
    entering = iter(range(num_rows))
    held = list(itertools.islice(entering, buffer_size))
    order = []
    for draw in draws:
        chosen = draw % len(held)
        held[0], held[chosen] = held[chosen], held[0]
        order.append(held.pop(0))
        held.extend(itertools.islice(entering, 1))
    return order


@given(st.data(), st.integers(0, 40), st.integers(1, 50))
def test_the_kernel_draws_as_its_twin(data, num_rows, buffer_size):
    words = st.integers(0, 2**32 - 1)
    draws = data.draw(st.lists(words, max_size=num_rows))
    rows = shuffled_rows(np.array(draws, np.uint32), num_rows, buffer_size)
    assert list(rows) == rows_of_a_twin(draws, num_rows, buffer_size)


@pytest.mark.parametrize(("num_draws", "buffer_size"), [(4, 2), (1, 0)])
def test_what_cannot_be_drawn(num_draws, buffer_size):
    with pytest.raises(ValueError) as error:
        shuffled_rows(np.zeros(num_draws, np.uint32), 3, buffer_size)
    assert str(error.value) == (
        "At most all rows can be drawn, from a buffer of at least one. Received: "
        f"{num_draws} draws, num_rows=3, buffer_size={buffer_size}"
    )
