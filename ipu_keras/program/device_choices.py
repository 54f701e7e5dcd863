"""What a program is compiled for, where that differs from the configuration of the process."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipu_keras.machine.target import Target


@dataclass(frozen=True, kw_only=True)
class DeviceChoices:
    """What a program is compiled for.

    Args:
        config: An `IPUConfig`, in place of the active one.
        target: The hardware; `None` for the one that `config` describes.
        cache_folder: Where models are kept; `None` for what `--executable_cache_path` says.
        is_modelled: Whether the program is checked for memory; hosts have no such limits.
        on_several_ipus: A hint for errors: how to put parts of a program on several IPUs.
    """

    config: Any
    target: Target | None = None
    cache_folder: Path | None = None
    is_modelled: bool = True
    on_several_ipus: str = ""
