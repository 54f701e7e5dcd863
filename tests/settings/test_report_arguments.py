"""Arguments of `create_ipu_config` about reports."""

import pytest

from ipu_keras.settings.enumerations import ExecutionProfileType
from ipu_keras.utils import create_ipu_config


def flags(**arguments):
    return create_ipu_config(**arguments).compilation_poplar_options


def test_reports_are_asked_for_as_engine_options_ask():
    assert flags() == flags(profile_execution=False) == {}
    assert flags(profile_execution=ExecutionProfileType.NO_PROFILE) == {}
    assert flags(profiling=True, use_poplar_text_report=True) == {"autoReport.all": "true"}
    for kind in (True, ExecutionProfileType.TILE_PROFILE):
        assert flags(profiling=True, profile_execution=kind, report_directory="here") == {
            "autoReport.all": "true",
            "autoReport.outputExecutionProfile": "true",
            "autoReport.directory": "here",
        }


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"profiling": True, "enable_ipu_events": True},
            ValueError,
            "^`profiling` and `enable_ipu_events` are mutually exclusive",
        ),
        (
            {"profile_execution": True},
            ValueError,
            "^`profiling` is required when `profile_execution` is set",
        ),
        (
            {"profile_execution": "all"},
            TypeError,
            "^`profile_execution` must be True, False, or an ExecutionProfileType inst.*\n.*'all'",
        ),
        ({"profiling": 1}, TypeError, "^`profiling` must be True or False. Received: profiling=1"),
        ({"report_directory": None}, TypeError, "^`report_directory` must be the path"),
        ({"max_report_size": -1}, ValueError, "^`max_report_size` must be an integer of 0 or more"),
        ({"scheduler_selection": "x"}, TypeError, "^`scheduler_selection` sets"),
        ({"disable_graph_outlining": 0}, TypeError, "^`disable_graph_outlining` must be"),
    ],
)
def test_what_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        create_ipu_config(**arguments)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("enable_ipu_events", True),
        ("use_poplar_text_report", True),
        ("use_poplar_cbor_report", True),
        ("enable_poplar_serialized_graph", True),
        ("report_every_nth_execution", 2),
        ("max_report_size", 1),
        ("report_directory", "here"),
        ("retain_control_dependencies", True),
    ],
)
def test_what_has_no_effect_is_named(argument, value):
    with pytest.warns(UserWarning, match=rf"^These have no effect here: `{argument}` \(") as told:
        assert repr(create_ipu_config(**{argument: value})) == "IPUConfig()"
    assert [one.filename for one in told] == [__file__]
