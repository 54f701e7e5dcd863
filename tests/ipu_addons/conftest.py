"""A strategy on one IPU."""

import pytest
from layer_battery import one_ipu


@pytest.fixture(scope="module")
def strategy():
    """A strategy on /device:IPU:0."""
    with one_ipu() as strategy:
        yield strategy
