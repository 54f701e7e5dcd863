"""How gradients are accumulated over several steps before the weights are updated."""

import enum
from typing import Any


class GradientAccumulationReductionMethod(enum.Enum):
    """How the gradients of accumulated steps become one.

    - `SUM`: they are added.
    - `MEAN`: each is divided by the number of steps, then they are added.
    - `RUNNING_MEAN`: after step n (from 0), `accumulated * n / (n + 1) + gradient / (n + 1)`,
      which never exceeds the gradients themselves.
    """

    SUM = "sum"
    MEAN = "mean"
    RUNNING_MEAN = "running_mean"

    @classmethod
    def parse(cls, value: Any) -> "GradientAccumulationReductionMethod":
        """The method that a member or its name, in any case, stands for.

        Raises:
            ValueError: It stands for none.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str) and value.upper() in cls.__members__:
            return cls[value.upper()]
        raise ValueError(
            f"Cannot parse {value} as one of GradientAccumulationReductionMethod. Valid values "
            f"are: {', '.join(cls.__members__)}. Pass a member or its name."
        )
