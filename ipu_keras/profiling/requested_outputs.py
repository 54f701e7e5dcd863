"""What the environment and the configuration ask for whenever a program is compiled."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ipu_keras.settings.engine_options import EngineOptions, current_engine_options
from ipu_keras.settings.enumerations import DeviceConnectionType
from ipu_keras.settings.flags import PoplarFlags, current_flags

_COMPILE_ONLY = (DeviceConnectionType.PRE_COMPILE, DeviceConnectionType.NEVER)


@dataclass(frozen=True, kw_only=True)
class RequestedOutputs:
    """Files, checks and logs that need the model of a program.

    Args:
        engine: Options of `POPLAR_ENGINE_OPTIONS`, then of
            `IPUConfig.compilation_poplar_options`.
        flags: The flags in `TF_POPLAR_FLAGS`.
        executable_folder: The folder for executables, `IPUConfig.serialization_output_folder`;
            `None` if they are not written.
        only_compiles: Whether programs are compiled only, as `device_connection.type` says.
    """

    engine: EngineOptions = field(default_factory=EngineOptions)
    flags: PoplarFlags = field(default_factory=PoplarFlags)
    executable_folder: Path | None = None
    only_compiles: bool = False

    @property
    def needs_model(self) -> bool:
        """Whether programs have to be modelled when they are compiled.

        A directory of cached executables alone is no reason: looking there takes a trace of the
        program, which nobody has asked for. Where programs are compiled only, it is to be filled.
        """
        return (
            self.has_files
            or (self.only_compiles and self.flags.executable_cache_path != "")
            or self.flags.log_cycle_count >= 0
            or self.engine.allows_out_of_memory is False
        )

    @property
    def has_files(self) -> bool:
        """Whether files are written about each program."""
        return (
            self.engine.writes_reports
            or self.flags.tensor_map_file_path != ""
            or self.flags.dump_schedule_as_dot
            or self.executable_folder is not None
        )


def current_outputs(config: Any) -> RequestedOutputs:
    """Returns what is asked for as the environment is now.

    Args:
        config: The `IPUConfig` of the program; `None` if there is none.
    """
    folder = "" if config is None else config.serialization_output_folder
    return RequestedOutputs(
        engine=current_engine_options({} if config is None else config.compilation_poplar_options),
        flags=current_flags(),
        executable_folder=Path(os.path.expanduser(folder)) if folder else None,
        only_compiles=config is not None and config.device_connection.type in _COMPILE_ONLY,
    )
