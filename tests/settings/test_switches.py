import doctest

import numpy as np
import pytest

from ipu_keras.settings import switches
from ipu_keras.settings.switches import checked_switch


def test_truth_values():
    assert doctest.testmod(switches).failed == 0
    assert checked_switch("on", True) is True
    assert checked_switch("on", np.bool_(False)) is False


@pytest.mark.parametrize("value", [None, 0, 1, "True", [], np.ones(2, bool)])
def test_what_is_none(value):
    with pytest.raises(TypeError) as error:
        checked_switch("on", value)
    assert str(error.value) == f"`on` must be True or False. Received: on={value!r}"
