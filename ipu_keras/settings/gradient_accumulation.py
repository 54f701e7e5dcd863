"""How gradients are accumulated over several steps before the weights are updated."""

import enum
from typing import Any

from ipu_keras.settings.arguments import noted


class GradientAccumulationReductionMethod(enum.Enum):
    """How the gradients of accumulated steps are reduced to one.

    - `SUM`: they are added.
    - `MEAN`: each is divided by the number of steps, then they are added.
    - `RUNNING_MEAN`: after step n (from 0), `accumulated * n / (n + 1) + gradient / (n + 1)`,
      which never exceeds the gradients themselves.
    """

    SUM = "sum"
    MEAN = "mean"
    RUNNING_MEAN = "running_mean"

    def kept(self, accumulated: Any, num_before: Any) -> Any:
        """Returns what is left of the accumulated gradients, before the next one's share is added.

        Args:
            num_before: Steps that were accumulated, in a floating point type.
        """
        if self is GradientAccumulationReductionMethod.RUNNING_MEAN:
            return accumulated * (num_before / (num_before + 1))
        return accumulated

    def share(self, gradient: Any, num_before: Any, num_steps: int) -> Any:
        """Returns what one more gradient adds to the accumulated ones.

        Args:
            num_before: Steps before this one, in a floating point type.
            num_steps: How many steps are accumulated in all.

        Example:

        >>> mean = GradientAccumulationReductionMethod.RUNNING_MEAN
        >>> mean.kept(2.0, 1.0) + mean.share(6.0, 1.0, num_steps=2)
        4.0
        """
        if self is GradientAccumulationReductionMethod.SUM:
            return gradient
        if self is GradientAccumulationReductionMethod.MEAN:
            # Before the sum, which in half precision would overflow sooner.
            return gradient / num_steps
        return gradient / (num_before + 1)

    @classmethod
    def parse(cls, argument: str, value: Any) -> "GradientAccumulationReductionMethod":
        """Returns the method of a member or its name, in any case; others are a `ValueError`."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str) and value.upper() in cls.__members__:
            return cls[value.upper()]
        raise noted(
            ValueError(
                f"Cannot parse {value} as one of GradientAccumulationReductionMethod. Valid "
                f"values are: {', '.join(cls.__members__)}."
            ),
            f"Pass a member or its name. Received: {argument}={value!r}",
        )
