"""A configured IPU system for a test, which leaves everything as it was."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ipu_keras.config import IPUConfig
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import LISTING, SYSTEM
from ipu_keras.machine.target import VERSIONS
from ipu_keras.settings.flags import ENVIRONMENT_VARIABLE

_SIZES = frozenset(map(len, LISTING))


@dataclass(frozen=True)
class ConfiguredIpus:
    """One device with some IPUs, as the fixture `ipu` gives it.

    Args:
        num_ipus: The number of IPUs that `/device:IPU:0` has.
        target: `"gc2"`, `"gc200"`, `"bow"` or `"c600"`: the hardware that reports are for. Whether
            a program that runs fits is asked of a GC200 for a Bow or a C600, which have the same
            memory.
        config: The active configuration of the system.
        strategy: An `IPUStrategy` for the device.
    """

    num_ipus: int
    target: str
    config: IPUConfig
    strategy: IPUStrategy

    def scope(self) -> AbstractContextManager[Any]:
        """Returns the strategy's scope, to make a model in."""
        return self.strategy.scope()


@contextlib.contextmanager
def configured_ipus(num_ipus: int, target: str) -> Iterator[ConfiguredIpus]:
    """Configures a system with one device; afterwards, restores the devices of before."""
    previous, flags = SYSTEM.config, os.environ.get(ENVIRONMENT_VARIABLE)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = num_ipus
    try:
        # The machine has devices of 1, 2, 4, 8 and 16 IPUs, none of them a GC2: others are the
        # IPU Model's.
        if num_ipus not in _SIZES or target == "gc2":
            os.environ[ENVIRONMENT_VARIABLE] = f"{flags or ''} --use_ipu_model".strip()
            versions = {name: version for version, name in VERSIONS.items()}
            config.ipu_model.version = versions[target] if target == "gc2" else "ipu2"
        config.configure_ipu_system()
        yield ConfiguredIpus(num_ipus, target, config, IPUStrategy())
    finally:
        SYSTEM.reset()
        if flags is None:
            os.environ.pop(ENVIRONMENT_VARIABLE, None)
        else:
            os.environ[ENVIRONMENT_VARIABLE] = flags
        if previous is not None:
            SYSTEM.configure(previous)
