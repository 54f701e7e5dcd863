"""A call that works, and what those of tests are made of."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tensorflow.python import ipu

from ipu_keras.machine.system import SYSTEM


@dataclass
class Call:
    """A call that works.

    Attributes:
        name: What people call it.
        function: Called with `arguments` by name.
        arguments: Those that are changed.
        cheap: Whether it can be repeated after each wrong call.
        called: What errors call arguments that have another name there.
    """

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    cheap: bool = True
    called: dict[str, str] = field(default_factory=dict)


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(1).uniform(0.1, 1, shape).astype(dtype)


def integers(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def configure() -> None:
    """One IPU, unless another call configured some."""
    if SYSTEM.config is None:
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
