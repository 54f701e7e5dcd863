"""A model in stages, of each kind that a test's `model` has."""

import pytest
from staged_models import assign


@pytest.fixture
def staged(model):
    """A model with the stages 0, 1, 1 on one IPU."""
    assign(model, [0, 1, 1])
    model.set_pipelining_options(4, device_mapping=[0, 0])
    return model
