"""Arguments that layers refuse by name."""

import pytest

from ipu_keras.keras.layers.unsupported_arguments import refuse_unsupported


def test_defaults_pass():
    refuse_unsupported("Dense", "call", {"a": None, "b": False, "c": 3}, {"a": None, "b": False})
    refuse_unsupported("Dense", "call", {}, {"a": None})


# 0 equals False, but whoever gives it asks for something.
@pytest.mark.parametrize("value", [True, 0, "no"])
def test_others_do_not(value):
    message = (
        "ipu_tensorflow_addons.keras.layers.Dense does not support call argument b. It is "
        rf"included for API consistency with keras.layers.Dense\.\n.*Received: b={value!r}"
    )
    with pytest.raises(NotImplementedError, match=message):
        refuse_unsupported("Dense", "call", {"b": value}, {"a": None, "b": False})
