"""Plans of the convolutions and matrix products of a program, each made once."""

from ipu_keras.cost.products.convolution_planner import ConvolutionPlan, plan
from ipu_keras.cost.products.convolutions import Convolution
from ipu_keras.machine.target import Target


class Plans:
    """Remembers plans, as layers repeat and one plan is searched for among thousands.

    Args:
        target: The hardware that is planned for.
    """

    def __init__(self, target: Target):
        self._target = target
        self._made: dict[tuple[Convolution, float], ConvolutionPlan] = {}

    def find_or_make(self, convolution: Convolution, memory_proportion: float) -> ConvolutionPlan:
        """The plan of a convolution.

        Args:
            convolution: Or a matrix product as one.
            memory_proportion: Of a tile's memory, what its temporaries may take.
        """
        key = convolution, memory_proportion
        if key not in self._made:
            self._made[key] = plan(self._target, convolution, memory_proportion=memory_proportion)
        return self._made[key]
