"""How a program computes with the numbers of an IPU."""

from dataclasses import dataclass

from ipu_keras.machine.system import SYSTEM


@dataclass(frozen=True)
class Numerics:
    """How a program computes with halves.

    Args:
        nanoo: Whether a half that overflows becomes NaN; else it becomes 65504, the largest.
    """

    nanoo: bool = False

    @classmethod
    def configured(cls) -> "Numerics":
        """Returns what the active `IPUConfig` says, or what an IPU does without one."""
        if SYSTEM.config is None:
            return cls()
        return cls(nanoo=SYSTEM.config.floating_point_behaviour.nanoo)
