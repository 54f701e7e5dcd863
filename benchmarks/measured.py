"""A measured figure beside the cost model's."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """A measured figure and the model's.

    Args:
        id: Of the point, as in the data file.
        category: What kind of thing was measured.
        description: What was measured, with its sizes.
        measured: On hardware, in `unit`.
        modelled: By the cost model, in `unit`.
        unit: Of both.
        source: Who measured.
    """

    id: str
    category: str
    description: str
    measured: float
    modelled: float
    unit: str
    source: str

    @property
    def error(self) -> float:
        """How far the model is off, as a share of what was measured."""
        return self.modelled / self.measured - 1
