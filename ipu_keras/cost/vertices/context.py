"""Says what the cost of a compute set follows from besides itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram, Value
from ipu_keras.cost.flat.layouts import allocated_values, bytes_per_tile, layouts_of
from ipu_keras.cost.products.planning_options import ProductOptions
from ipu_keras.ir import TensorSpec, num_elements
from ipu_keras.machine.target import Target


@dataclass(frozen=True, kw_only=True)
class CostContext:
    """The program around a compute set, and the machine that runs it.

    Args:
        in_place: Names of values by names of those that are written over them.
        layouts: Names of values by names of those that lie as they do; see `layouts_of`.
        allocated: Names of values that lie as an operation that reads them wants them.
        num_ipus: IPUs that run the program, all replicas together.
        ipus_per_replica: IPUs of each of them.
        ipu_at: Maps a replica's IPU by number to the hardware's, on which its links depend.
    """

    target: Target
    values: Mapping[str, Value]
    in_place: Mapping[str, str]
    layouts: Mapping[str, str]
    allocated: frozenset[str]
    product_options: Callable[[ComputeSet], ProductOptions]
    num_ipus: int
    ipus_per_replica: int
    ipu_at: Callable[[int], int]

    @classmethod
    def of(
        cls,
        program: FlatProgram,
        target: Target,
        *,
        product_options: Callable[[ComputeSet], ProductOptions],
        num_ipus: int = 1,
        ipus_per_replica: int = 1,
        ipu_at: Callable[[int], int] = lambda position: position,
    ) -> "CostContext":
        """Returns the context of a program's compute sets, which are in the order of execution."""
        return cls(
            target=target,
            values=program.values,
            in_place={**program.in_place, **program.updates},
            layouts=layouts_of(program),
            allocated=allocated_values(program),
            product_options=product_options,
            num_ipus=num_ipus,
            ipus_per_replica=ipus_per_replica,
            ipu_at=ipu_at,
        )

    def within(
        self, body: FlatProgram, product_options: Callable[[ComputeSet], ProductOptions]
    ) -> "CostContext":
        """Returns the context of what an operation of Poplar's libraries consists of."""
        inner = CostContext.of(body, self.target, product_options=product_options)
        return replace(
            inner,
            # A library's operation makes its own tensors as those that read them want them.
            allocated=frozenset(body.values),
            num_ipus=self.num_ipus,
            ipus_per_replica=self.ipus_per_replica,
            ipu_at=self.ipu_at,
        )

    def spec(self, name: str) -> TensorSpec:
        return self.values[name].spec

    def num_elements(self, name: str) -> int:
        return num_elements(self.values[name].spec)

    def inputs_per_tile(self, one: ComputeSet) -> int:
        """Returns the bytes of all that a compute set reads, on the tiles with the most."""
        return sum(bytes_per_tile(self.spec(name), self.target) for name in one.reads)

    def is_allocated(self, name: str) -> bool:
        """Whether a value lies as an operation that reads it wants it."""
        return not self.allocated.isdisjoint((name, self.layouts.get(name, name)))

    def lie_alike(self, name: str, other: str) -> bool:
        """Whether no element has to move between two values of the same size."""
        return self.layouts.get(name, name) == self.layouts.get(other, other)
