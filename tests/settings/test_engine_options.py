"""The engine options of the environment: what they mean, and what is refused."""

import doctest
from pathlib import Path

import pytest

from ipu_keras.settings import engine_options
from ipu_keras.settings.engine_options import EngineOptions, current_engine_options


def test_example_in_the_docstring():
    assert doctest.testmod(engine_options).failed == 0


def test_no_options():
    assert EngineOptions.parse("") == EngineOptions.parse(" {} ") == EngineOptions()


@pytest.mark.parametrize(
    "name",
    ["autoReport.all", "autoReport.outputGraphProfile", "autoReport.outputExecutionProfile"],
)
@pytest.mark.parametrize("value", ['"true"', "true"])
def test_reports_are_asked_for(name, value):
    found = EngineOptions.parse(f'{{"{name}": {value}, "autoReport.directory": "here"}}')
    assert found == EngineOptions(writes_reports=True, report_directory=Path("here"))


def test_what_does_not_fit():
    assert EngineOptions().allows_out_of_memory is None
    refused = EngineOptions.parse('{"debug.allowOutOfMemory": "false", "autoReport.all": "false"}')
    assert refused == EngineOptions(allows_out_of_memory=False)
    allowed = EngineOptions.parse('{"debug.allowOutOfMemory": "true"}')
    assert allowed == EngineOptions(allows_out_of_memory=True)


def test_exceptions():
    stopped = EngineOptions.parse('{"debug.floatPointOpException": "true"}')
    assert stopped == EngineOptions(stops_at_exceptions=True)
    assert not EngineOptions.parse('{"debug.floatPointOpException": "false"}').stops_at_exceptions
    with pytest.raises(ValueError, match=r"'debug\.floatPointOpException' .* Received: 'on'"):
        EngineOptions.parse('{"debug.floatPointOpException": "on"}')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("autoReport.all", "must be JSON, .* Received: 'autoReport.all'"),
        ("[1]", r"must be a JSON object of names and values\. Received: '\[1\]'"),
        ('{"autoReport.all": "yes"}', """'autoReport.all' .* "true" or "false". Received: 'yes'"""),
        ('{"debug.allowOutOfMemory": 1}', "Received: 1"),
        *(
            (
                f'{{"autoReport.directory": {value}}}',
                r"^'autoReport\.directory' in POPLAR_ENGINE_OPTIONS must be the path of a "
                rf'directory as a text, such as "reports"\. Received: {received}$',
            )
            for value, received in [("null", "None"), ("3", "3"), ('["a"]', r"\['a'\]")]
        ),
    ],
)
def test_what_cannot_be_read(text, message):
    with pytest.raises(ValueError, match=message):
        EngineOptions.parse(text)


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("~/reports", "/home/somebody/reports"),
        ("~", "/home/somebody"),
        ("here/~", "here/~"),
        ("~nobody of that name/x", "~nobody of that name/x"),
    ],
)
def test_the_home_directory(monkeypatch, directory, expected):
    monkeypatch.setenv("HOME", "/home/somebody")
    found = EngineOptions.parse(f'{{"autoReport.directory": "{directory}"}}')
    assert found.report_directory == Path(expected)


def test_options_without_a_use_are_named():
    with pytest.warns(UserWarning, match="sets debug.instrument, target.workers, which"):
        EngineOptions.parse('{"target.workers": "6", "debug.instrument": "true"}')


def test_the_environment_is_read_each_time(monkeypatch):
    assert current_engine_options() == EngineOptions()
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"autoReport.all": "true"}')
    assert current_engine_options().writes_reports


def test_those_of_a_configuration_are_behind_the_environment(monkeypatch):
    configured = {"autoReport.all": True, "autoReport.directory": "here", "other": 1}
    assert current_engine_options(configured) == EngineOptions(
        writes_reports=True, report_directory=Path("here")
    )
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"autoReport.directory": "there"}')
    assert current_engine_options(configured).report_directory == Path("there")
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"autoReport.all": "false"}')
    assert not current_engine_options(configured).writes_reports
