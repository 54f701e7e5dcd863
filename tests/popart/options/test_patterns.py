import doctest

import pytest

from ipu_keras import popart
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options import patterns as module
from ipu_keras.popart.options.enumerations import PatternsLevel, PreAliasPatternType
from ipu_keras.popart.options.patterns import Patterns, warn_of_patterns

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
    with pytest.raises(popart_exception, match=r"^Unknown pattern 'NoSuch'\. There are: AdamDec"):
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


def make_session(patterns, **options):
    """Stands for a session, whose caller the warning is for."""

    def make_core():
        warn_of_patterns(patterns, **options)

    make_core()


def test_sessions_warn_of_what_was_chosen_by_name():
    patterns = Patterns().enablePattern("TiedGather", True)
    patterns.InPlace = False
    patterns.enableRuntimeAsserts(False)
    message = (
        r"^These `patterns` were chosen, which have no meaning here: InPlace \(off\), TiedGather "
        r"\(on\), enableRuntimeAsserts \(off\)\. The emulator rewrites graphs by rules of its own"
    )
    with pytest.warns(UserWarning, match=message) as warned:
        make_session(patterns)
    assert [each.filename for each in warned] == [__file__]
    # None of the default ones.
    make_session(Patterns(PatternsLevel.Default))


def test_sessions_that_train_act_on_one():
    """And there is no loss to compute along without it."""
    patterns = Patterns().enablePattern("SoftMaxGradDirect", False)
    make_session(patterns, trains=True)
    with pytest.warns(UserWarning, match=r"no meaning here: SoftMaxGradDirect \(off\)\. The"):
        make_session(patterns)
    patterns.NlllWithSoftMaxGradDirect = False
    make_session(patterns, trains=True)
    patterns.SoftMaxGradDirect = True
    with pytest.warns(UserWarning, match=r"here: NlllWithSoftMaxGradDirect \(off\)\. The"):
        make_session(patterns, trains=True)
    with pytest.warns(UserWarning, match="AllReduceToIdentityPattern") as warned:
        make_session(Patterns(PatternsLevel.NoPatterns), trains=True)
    assert "SoftMaxGrad" not in str(warned[0].message)


@pytest.mark.parametrize("patterns", [None, "InPlace", PatternsLevel.All])
def test_what_is_no_patterns(patterns):
    with pytest.raises(
        TypeError, match=r"^`patterns` must be popart\.Patterns, such as .* Received"
    ):
        make_session(patterns)


def test_patterns_that_nodes_exclude_are_named_once():
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    for names in (["MatMulPattern"], ["PreUniRepl", "MatMulPattern"], ["SoftMaxGradDirect"]):
        x = builder.aiOnnx.relu([x])
        builder.excludePatterns(x, names)
    flow, device = popart.DataFlow(1, [x]), popart.DeviceManager().createCpuDevice()
    message = "no meaning here: MatMulPattern, PreUniRepl, SoftMaxGradDirect. The emulator"
    with pytest.warns(UserWarning, match=message) as warned:
        popart.InferenceSession(builder.getModelProto(), flow, device)
    assert len(warned) == 1


@pytest.mark.parametrize("name", ["SGD0Decompose", "LogSoftmaxOp", "SplitConvBias"])
def test_patterns_of_the_release_that_scripts_name(name):
    assert Patterns([name]) == Patterns(PatternsLevel.NoPatterns).enablePattern(name, True)
