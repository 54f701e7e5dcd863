import doctest
import re
import warnings
from pathlib import Path

import pytest

from ipu_keras.popart import sessions
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options import session_options
from ipu_keras.popart.options.enumerations import (
    DotCheck,
    Instrumentation,
    RecomputationType,
    TensorStorage,
    VirtualGraphMode,
)
from ipu_keras.popart.options.option import Effect
from ipu_keras.popart.options.session_options import (
    SessionOptions,
    warn_of_idle,
)
from ipu_keras.popart.options.settings import (
    ExecutionPhaseSettings,
    NumIOTiles,
    TensorLocation,
    TensorLocationSettings,
)
from ipu_keras.settings.option_warnings import OPTION_WARNINGS

# The documented options without a meaning here.
MEANINGLESS = {
    "aliasZeroCopy": True,
    "customCodelets": ["vertices.cpp"],
    "customCodeletCompileFlags": "-g",
    "enableOutliningCopyCostPruning": False,
    "exportPoplarComputationGraph": True,
    "exportPoplarVertexGraph": True,
    "hostAllReduceRemoteBuffer": True,
    "kahnTieBreaker": "fifo",
    "opxAliasChecking": True,
    "opxModifyChecking": True,
    "outlineSequenceBreakCost": 1.0,
    "separateCallOpPdfs": False,
    "serializedPoprithmsAnnealGraphsDir": "graphs",
    "serializedPoprithmsShiftGraphsDir": "graphs",
    "swapLimitScheduler": 10,
    "timeLimitScheduler": 10.0,
}


def make_session(options):
    """Stands for a session, whose caller the warning is for."""

    def make_core():
        warn_of_idle(options)

    make_core()


def test_examples():
    assert doctest.testmod(session_options).failed == 0


def test_documented_defaults():
    options = SessionOptions()
    assert options.constantWeights is True
    assert options.rearrangeAnchorsOnHost is True
    assert options.globalReplicationFactor == 1
    assert options.outlineThreshold == 1.0
    assert options.outlineSequenceBreakCost == 10000.0
    assert options.partialsTypeMatMuls == ""
    assert options.executionPhaseSettings.stages == 2
    assert options.hardwareInstrumentations == {Instrumentation.Outer}


def test_every_option_can_be_set_to_what_it_is():
    options = SessionOptions()
    assert len(SessionOptions.options()) == 83
    for name, option in SessionOptions.options().items():
        value = getattr(options, name)
        assert value == option.default
        setattr(options, name, value)
    assert options == SessionOptions()


@pytest.mark.parametrize("effect", Effect)
def test_every_option_says_what_it_changes(effect):
    assert all(option.effect is not None for option in SessionOptions.options().values())
    named = [name for name, option in SessionOptions.options().items() if option.effect is effect]
    assert named
    for name in named:
        assert effect.value in getattr(SessionOptions, name).__doc__


def test_options_say_so_of_what_sessions_read():
    sources = "".join(
        path.read_text("utf-8")
        for path in Path(sessions.__file__).parent.glob("*.py")
        # It refuses what contradicts each other, whatever else that changes.
        if path.name != "contradictions.py"
    )
    read = {name for name in SessionOptions.options() if re.search(rf"\.{name}\b", sources)}
    assert read == {
        name
        for name, option in SessionOptions.options().items()
        if option.effect in (Effect.RESULTS, Effect.MODEL, Effect.FILES, Effect.TRAINING)
    }


def test_settings_are_changed_in_place_or_as_a_whole():
    options = SessionOptions()
    options.executionPhaseSettings.phases = 3
    assert options.executionPhaseSettings == ExecutionPhaseSettings(phases=3)
    options.weightTensorLocationSettings = TensorLocationSettings(TensorStorage.OffChip)
    options.weightTensorLocationSettings.location.storage = TensorStorage.OnChip
    assert options.weightTensorLocationSettings == TensorLocationSettings()
    options.tensorLocationSettingsOverride["w"] = TensorLocation(TensorStorage.OffChip)
    assert options.copy().tensorLocationSettingsOverride["w"].storage is TensorStorage.OffChip


def test_dicts_take_items():
    options = SessionOptions()
    options.engineOptions["autoReport.all"] = "true"
    options.convolutionOptions = {"availableMemoryProportion": "0.4"}
    options.prefetchBufferingDepthMap["x"] = 2
    assert options.engineOptions == {"autoReport.all": "true"}
    message = r"^`debug\.instrument` must be a str\. Received: debug\.instrument=True of type bool"
    with pytest.raises(TypeError, match=message):
        options.engineOptions["debug.instrument"] = True


def test_values_that_are_taken_in_more_than_one_form():
    options = SessionOptions()
    options.numIOTiles = NumIOTiles(32)
    assert options.numIOTiles == 32
    options.dotChecks = {"Final", DotCheck.Fwd0}
    assert options.dotChecks == {DotCheck.Final, DotCheck.Fwd0}
    with pytest.raises(TypeError, match=r"^`dotChecks` must be a set, each item a DotCheck or its"):
        options.dotChecks = {"FINAL"}


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("accumulationFactor", 0, popart_exception, "`accumulationFactor` must be at least 1, and"),
        (
            "accumulationFactor",
            4.0,
            TypeError,
            "`accumulationFactor` must be an int. Received: acc",
        ),
        ("virtualGraphMode", 1, TypeError, "`virtualGraphMode` must be a VirtualGraphMode. Rece"),
        ("partialsTypeMatMuls", "double", popart_exception, "`partialsTypeMatMuls` must be one of"),
        ("autoRecomputation", VirtualGraphMode.Auto, TypeError, "`autoRecomputation` must be a Re"),
        (
            "enablePipeline",
            True,
            AttributeError,
            "'SessionOptions' has no option 'enablePipeline'.",
        ),
        (
            "engine_options",
            {},
            AttributeError,
            "'SessionOptions' has no option 'engine_options'. D",
        ),
    ],
)
def test_what_is_refused(name, value, error, message):
    options = SessionOptions()
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        setattr(options, name, value)
    assert options == SessionOptions()


def test_a_name_that_is_nearly_right():
    with pytest.raises(AttributeError, match="Did you mean 'enablePipelining'"):
        SessionOptions().enablePipeline = True


def test_sessions_warn_of_what_has_no_meaning_by_name():
    options = SessionOptions()
    options.autoRecomputation = RecomputationType.Standard
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_session(options)
    assert caught == []
    for name, value in MEANINGLESS.items():
        options = SessionOptions()
        setattr(options, name, value)
        message = f"^These options are set but have no meaning here: {name}. They change neither"
        with pytest.warns(UserWarning, match=message):
            make_session(options)
    # Of each a process is told once; another process is told of all together.
    make_session(options)
    OPTION_WARNINGS.forget()
    for name, value in MEANINGLESS.items():
        setattr(options, name, value)
    with pytest.warns(UserWarning, match="no meaning here: ") as warned:
        make_session(options)
    assert len(warned) == 1
    named = str(warned[0].message).partition("here: ")[2].partition(". They")[0].split(", ")
    assert sorted(named) == sorted(MEANINGLESS)
    assert warned[0].filename == __file__


@pytest.mark.parametrize("options", [None, {"enablePipelining": True}])
def test_what_is_no_session_options(options):
    with pytest.raises(
        TypeError, match=r"^`userOptions` must be popart\.SessionOptions\. Received: "
    ):
        make_session(options)
