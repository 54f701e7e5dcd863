"""Keeps the plans of a program's convolutions and matrix products, each made once."""

from ipu_keras.cost.products.convolution_planner import ConvolutionPlan, plan
from ipu_keras.cost.products.convolutions import Convolution
from ipu_keras.machine.target import Target


class Plans:
    """Remembers plans, as layers repeat and one plan is searched for among thousands."""

    def __init__(self, target: Target):
        self._target = target
        self._made: dict[tuple[Convolution, float], ConvolutionPlan] = {}

    def find_or_make(self, convolution: Convolution, memory_proportion: float) -> ConvolutionPlan:
        """Returns the plan of a convolution, or of a matrix product as one."""
        key = convolution, memory_proportion
        if key not in self._made:
            self._made[key] = plan(self._target, convolution, memory_proportion=memory_proportion)
        return self._made[key]
