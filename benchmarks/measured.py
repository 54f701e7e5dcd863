"""A measured figure beside what the model says of the same program."""

from dataclasses import dataclass

# Units of which more is faster; of the others, less is.
_RATES = ("GB/s", "Gsamples/s", "TFLOPS")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A measured figure and the model's.

    Args:
        id: Of the point, as in the data file.
        kind: What kind of program was measured, as reports call it.
        target: The IPU that it was measured on, and is modelled for.
        description: What was measured, with its sizes.
        measured: On hardware, in `unit`.
        modelled: By the cost model, in `unit`.
        unit: Of both.
        cycles_off: Cycles that the model counts more than were measured; `None` of bandwidths and
            the like, where nobody knows how much was moved.
        input_of: The constant or choice of the model that was made by this point; empty if
            there is none, so that the point says how good the model is.
    """

    id: str
    kind: str
    target: str
    description: str
    measured: float
    modelled: float
    unit: str
    cycles_off: float | None = None
    input_of: str = ""

    @property
    def error(self) -> float:
        """How much longer the model takes, as a share of the measured time; less than 0 if not."""
        is_rate = self.unit in _RATES
        slower, faster = (
            (self.measured, self.modelled) if is_rate else (self.modelled, self.measured)
        )
        return slower / faster - 1
