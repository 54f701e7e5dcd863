import doctest

import pytest

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options import patterns as module
from ipu_keras.popart.options.enumerations import PatternsLevel, PreAliasPatternType
from ipu_keras.popart.options.patterns import Patterns

ATTRIBUTES = [
    "PreUniRepl",
    "PostNRepl",
    "SoftMaxGradDirect",
    "NlllWithSoftMaxGradDirect",
    "OpToIdentity",
    "SubtractArg1GradOp",
    "MulArgGradOp",
    "MatMulOp",
    "MatMulLhsGradOp",
    "MatMulRhsGradOp",
    "InPlace",
]


def test_examples():
    assert doctest.testmod(module).failed == 0


def test_levels_have_more_and_more():
    sizes = [
        sum(Patterns(level).isPatternEnabled(name) for name in module._NAMES)
        for level in sorted(PatternsLevel, key=int)
    ]
    assert sizes[0] == 0
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == len(module._NAMES)
    assert Patterns() == Patterns(PatternsLevel.Default)
    assert not Patterns().TiedGather
    assert Patterns(PatternsLevel.Minimal).MatMulOp
    assert not Patterns(PatternsLevel.Minimal).InPlace


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_by_attribute_and_by_name(name):
    patterns = Patterns(PatternsLevel.NoPatterns)
    setattr(patterns, name, True)
    assert patterns.isPatternEnabled(name)
    assert patterns == Patterns([name])
    assert patterns.enablePattern(name, False) is patterns
    assert getattr(patterns, name) is False


@pytest.mark.parametrize("number", PreAliasPatternType)
def test_by_number(number):
    patterns = Patterns([number])
    assert patterns.isPatternEnabled(number)
    assert patterns.isPatternEnabled(number.name)


def test_as_text():
    assert repr(Patterns(["PreUniRepl", "Inplace"])) == "Patterns(['InPlace', 'PreUniRepl'])"


@pytest.mark.parametrize(
    "use",
    [
        lambda: Patterns(["NoSuch"]),
        lambda: Patterns().isPatternEnabled("NoSuch"),
        lambda: Patterns().enablePattern("NoSuch", True),
    ],
)
def test_unknown_patterns(use):
    with pytest.raises(popart_exception, match=r"^Unknown pattern 'NoSuch'\. There are: AllReduce"):
        use()


def test_wrong_arguments():
    patterns = Patterns()
    with pytest.raises(AttributeError, match=r"^'Patterns' has no pattern 'Inplaced'"):
        patterns.Inplaced = False
    with pytest.raises(AttributeError, match=r"^'Patterns' has no pattern 'Inplaced'"):
        patterns.Inplaced  # noqa: B018
    with pytest.raises(TypeError, match=r"^`enabled` must be a bool\. Received: enabled='no'"):
        patterns.InPlace = "no"
    with pytest.raises(TypeError, match=r"^The name of a pattern must be a str"):
        patterns.isPatternEnabled(3)
    with pytest.raises(TypeError, match=r"^`patterns` must be a PatternsLevel or a list of names"):
        Patterns("InPlace")
    assert patterns == Patterns()
    assert patterns.enableRuntimeAsserts(False) is patterns
