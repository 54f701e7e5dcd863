import pytest

from ipu_keras.keras.extensions.call_arguments import Arguments


def method(self, x, y=2, *, z=3, **kwargs):
    pass


def test_arguments_are_bound_by_name_with_their_defaults():
    arguments = Arguments(method)
    assert arguments.bound(None, [1], {"z": 4}) == {"x": 1, "y": 2, "z": 4}
    assert arguments.bound(None, [], {"x": 1, "_own": 5}) == {"x": 1, "y": 2, "z": 3, "_own": 5}


def test_arguments_that_the_method_does_not_take():
    with pytest.raises(TypeError, match=r"^missing a required argument: 'x'$"):
        Arguments(method).bound(None, [], {})
