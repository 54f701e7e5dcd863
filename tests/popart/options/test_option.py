import copy
import inspect

import pytest

from ipu_keras.popart.options.enumerations import ExecutionPhaseSchedule, TensorStorage
from ipu_keras.popart.options.kinds import TEXT, dict_of, integer, one_of, set_of
from ipu_keras.popart.options.option import Effect, Setting, Settings


class Inner(Settings):
    """Settings of this test."""

    size = Setting(4, "How large it is.", kind=integer(1))
    storage = Setting(TensorStorage.OnChip, "Where it is.")


class Outer(Settings):
    """Options of this test."""

    isLarge = Setting(False, "Whether it is large.", Effect.RESULTS)
    inner = Setting(Inner(), "What it has.")
    texts = Setting({"a": "b"}, "What it is called.", Effect.NONE, kind=dict_of(TEXT))


def test_options_are_documented():
    assert Outer.isLarge.__doc__ == (
        "Whether it is large. It changes what sessions compute, return or refuse. "
        "A bool; False at first."
    )
    assert Inner.storage.__doc__ == "Where it is. A TensorStorage; TensorStorage.OnChip at first."
    assert inspect.isdatadescriptor(Outer.isLarge)
    assert list(Outer.options()) == ["isLarge", "inner", "texts"]
    assert str(inspect.signature(Inner)) == "(size=4, storage=<TensorStorage.OnChip: 0>)"


def test_a_set_is_documented_as_scripts_write_it():
    option = Setting({*TensorStorage}, "Where it may be.", kind=set_of(one_of(TensorStorage)))
    assert option.__doc__ == (
        "Where it may be. A set, each item a TensorStorage; "
        "{TensorStorage.OffChip, TensorStorage.OnChip} at first."
    )


def test_values_are_given_in_order_or_by_name():
    assert Inner() == Inner(4, TensorStorage.OnChip) == Inner(size=4)
    assert Inner(5).size == 5
    assert Inner(5) != Inner()
    assert Inner() != Outer()
    assert repr(Inner(5, storage=TensorStorage.OffChip)) == (
        "Inner(size=5, storage=TensorStorage.OffChip)"
    )
    with pytest.raises(TypeError, match=r"^Inner takes size, storage\. Received: 3 values$"):
        Inner(1, TensorStorage.OnChip, 3)
    with pytest.raises(TypeError, match=r"^Inner has got size more than once$"):
        Inner(1, size=2)
    with pytest.raises(TypeError, match=r"^`storage` must be a TensorStorage\. Received: storage="):
        Inner(1, 2)


def test_other_attributes_are_refused():
    outer = Outer()
    message = r"^'Outer' has no option 'islarge'\. Did you mean 'isLarge'[?]$"
    with pytest.raises(AttributeError, match=message):
        outer.islarge = True
    with pytest.raises(AttributeError, match=message):
        outer.islarge  # noqa: B018
    with pytest.raises(AttributeError, match=r"^'Outer' has no option 'xyz'\.$"):
        outer.xyz = 1
    with pytest.raises(AttributeError, match=r"^'Inner' has no option 'sise'. Did you mean 'size'"):
        Inner(sise=1)


def test_a_refused_value_changes_nothing():
    outer = Outer()
    with pytest.raises(TypeError, match=r"^`inner` must be an Inner\. Received: inner=None"):
        outer.inner = None
    with pytest.raises(TypeError, match=r"^`isLarge` must be a bool"):
        outer.isLarge = ExecutionPhaseSchedule.Batch
    assert outer == Outer()


def test_objects_share_nothing():
    first, second = Outer(), Outer()
    first.inner.size = 7
    first.texts["c"] = "d"
    assert second == Outer()
    mine = Inner(9)
    first.inner = mine
    mine.size = 10
    assert first.inner.size == 9
    Outer.inner.default.size = 3
    assert Outer().inner.size == 4


@pytest.mark.parametrize("copied", [copy.deepcopy, Outer.copy])
def test_copies_are_apart(copied):
    outer = Outer(True)
    outer.texts["c"] = "d"
    twin = copied(outer)
    assert twin == outer
    outer.inner.size = 8
    outer.texts["e"] = "f"
    assert twin.inner.size == 4
    assert twin.texts == {"a": "b", "c": "d"}
    with pytest.raises(TypeError, match=r"^`size` must be an int"):
        twin.inner.size = "8"
