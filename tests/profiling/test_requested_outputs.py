"""What environment and configuration ask for when programs are compiled."""

from pathlib import Path

import pytest

from ipu_keras.config import IPUConfig
from ipu_keras.machine.system import SYSTEM
from ipu_keras.profiling.requested_outputs import RequestedOutputs, current_outputs
from ipu_keras.settings.engine_options import EngineOptions
from ipu_keras.settings.flags import PoplarFlags, parse_flags


@pytest.fixture
def unconfigured(monkeypatch):
    for name in ("TF_POPLAR_FLAGS", "POPLAR_ENGINE_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    SYSTEM.reset()
    yield
    SYSTEM.reset()


@pytest.mark.parametrize(
    ("asked", "has_files"),
    [
        ({"engine": EngineOptions(writes_reports=True)}, True),
        ({"engine": EngineOptions(allows_out_of_memory=False)}, False),
        ({"flags": PoplarFlags(log_cycle_count=0)}, False),
        ({"flags": PoplarFlags(tensor_map_file_path="maps")}, True),
        ({"flags": PoplarFlags(dump_schedule_as_dot=True)}, True),
        ({"executable_folder": Path("executables")}, True),
    ],
)
def test_what_needs_a_model(asked, has_files):
    outputs = RequestedOutputs(**asked)
    assert outputs.needs_model
    assert outputs.has_files == has_files


def test_what_needs_none():
    assert not RequestedOutputs().needs_model
    flags = parse_flags("--executable_cache_path=here --use_ipu_model --log_cycle_count=-1")
    assert not RequestedOutputs(flags=flags).needs_model
    assert not RequestedOutputs(only_compiles=True).needs_model
    assert RequestedOutputs(flags=flags, only_compiles=True).needs_model


@pytest.mark.usefixtures("unconfigured")
def test_it_is_read_as_it_is_now(monkeypatch):
    assert current_outputs(SYSTEM.config) == RequestedOutputs()
    config = IPUConfig()
    config.serialization_output_folder = "~/executables"
    config.configure_ipu_system()
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--log_cycle_count=3")
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"autoReport.all": "true"}')
    assert current_outputs(SYSTEM.config) == RequestedOutputs(
        engine=EngineOptions(writes_reports=True),
        flags=PoplarFlags(log_cycle_count=3),
        executable_folder=Path("/home/somebody/executables"),
    )


@pytest.mark.usefixtures("unconfigured")
def test_a_configuration_asks_for_reports_as_the_environment_does(monkeypatch):
    config = IPUConfig()
    config.compilation_poplar_options = {"autoReport.all": "true", "target.workers": 3}
    with pytest.warns(UserWarning, match="no effect today: 'target.workers' in compilation_pop"):
        config.configure_ipu_system()
    assert current_outputs(SYSTEM.config).engine == EngineOptions(writes_reports=True)
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"autoReport.all": "false"}')
    assert not current_outputs(SYSTEM.config).has_files
