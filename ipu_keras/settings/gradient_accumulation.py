"""How gradients are accumulated over several steps before the weights are updated."""

import enum
from typing import Any

from ipu_keras.settings.argument_errors import noted


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

    def kept(self, accumulated: Any, num_before: Any) -> Any:
        """What is left of what was accumulated, to which the share of one more gradient is added.

        Args:
            accumulated: A number, array or tensor.
            num_before: Steps that it is of, in a floating point type.
        """
        if self is GradientAccumulationReductionMethod.RUNNING_MEAN:
            return accumulated * (num_before / (num_before + 1))
        return accumulated

    def share(self, gradient: Any, num_before: Any, num_steps: int) -> Any:
        """What one more gradient adds.

        Args:
            gradient: A number, array or tensor.
            num_before: Steps before, in a floating point type.
            num_steps: How many there are in all.

        Example:

        >>> mean = GradientAccumulationReductionMethod.RUNNING_MEAN
        >>> mean.kept(2.0, 1.0) + mean.share(6.0, 1.0, num_steps=2)
        4.0
        """
        if self is GradientAccumulationReductionMethod.SUM:
            return gradient
        if self is GradientAccumulationReductionMethod.MEAN:
            return gradient / num_steps
        return gradient / (num_before + 1)

    @classmethod
    def parse(cls, argument: str, value: Any) -> "GradientAccumulationReductionMethod":
        """The method that a member or its name, in any case, stands for.

        Args:
            argument: What users call it, for the error.
            value: What they gave.

        Raises:
            ValueError: It stands for none.
        """
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
