import doctest
import operator

import pytest

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options import enumerations
from ipu_keras.popart.options.enumerations import (
    BatchSerializationTransformContext,
    Enumeration,
    PatternsLevel,
    RecomputeType,
    ReductionType,
    SyncPattern,
    VirtualGraphMode,
    syncPatternFromString,
    syncPatternToString,
)

ALL = [
    each
    for each in vars(enumerations).values()
    if isinstance(each, type) and issubclass(each, Enumeration) and each is not Enumeration
]


def test_examples():
    assert doctest.testmod(enumerations).failed == 0


def test_members_print_and_count_as_in_popart():
    mode = VirtualGraphMode.Manual
    assert (str(mode), repr(mode)) == ("VirtualGraphMode.Manual", "<VirtualGraphMode.Manual: 1>")
    assert (mode.name, mode.value, int(mode), operator.index(mode)) == ("Manual", 1, 1, 1)
    assert VirtualGraphMode(1) is mode
    assert mode == VirtualGraphMode.Manual
    assert mode != VirtualGraphMode.Auto
    assert mode != 1
    assert {mode: "manual"}[VirtualGraphMode.Manual] == "manual"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_numbers_are_those_from_0_on(kind):
    assert sorted(int(member) for member in kind) == list(range(len(kind)))
    assert kind.__doc__


def test_numbers_that_are_not_in_the_order_of_members():
    assert [member.name for member in ReductionType] == ["Mean", "NoReduction", "Sum"]
    assert (int(ReductionType.Mean), int(ReductionType.Sum)) == (1, 0)
    assert int(RecomputeType.Recompute) == 2
    assert [int(level) for level in PatternsLevel] == [3, 2, 1, 0]


def test_members_with_two_names():
    context = BatchSerializationTransformContext
    assert context.Fwd is context.Forward
    assert list(context.__members__) == ["Forward", "Backward", "Fwd", "Bwd"]


@pytest.mark.parametrize("pattern", SyncPattern)
def test_sync_patterns_have_names(pattern):
    assert syncPatternFromString(syncPatternToString(pattern)) is pattern


@pytest.mark.parametrize("name", ["Full", "", None, 0])
def test_other_names_of_sync_patterns(name):
    with pytest.raises(popart_exception) as error:
        syncPatternFromString(name)
    assert str(error.value) == (
        f"Unknown sync pattern setting. Received: {name!r}; it must be one of 'full', "
        "'singlePipeline', 'replicaAndLadder'."
    )
    with pytest.raises(TypeError, match=r"`pattern` must be a SyncPattern\. Received: pattern="):
        syncPatternToString(name)
