"""Checks what can be chosen about a program that is modelled."""

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.memory_sizes import AVAILABLE_MEMORY_PROPORTION
from ipu_keras.cost.products.planning_options import PoplarOptions, ProductOptions, product_options
from ipu_keras.cost.rewrites.precision import PRECISIONS
from ipu_keras.program import Pipeline
from ipu_keras.settings.arguments import integer_in, positive_integer
from ipu_keras.settings.pipeline_choices import SelectionOrder, recomputation_mode

# A Bow Pod1024. The model's time grows with their number.
_MOST_IPUS = 1024

_SWITCHES = (
    *("outlining", "own_updates", "place_ops_on_io_tiles", "recomputation"),
    *("copies_seed", "synthetic_infeed", "synthetic_outfeed"),
)


@dataclass(frozen=True, kw_only=True)
class CostOptions:
    """What can be chosen about a program besides its content.

    Args:
        available_memory_proportion: Share of a tile's memory that the temporaries of a matrix
            product or convolution may take. Poplibs' default is 0.6.
        convolution_options: Poplar's options of convolutions: `availableMemoryProportion`, which
            goes before the above, and `partialsType`, `"float"` or `"half"`, the type of the
            sums that a product of float16 numbers adds up. Others have no model: `profile` and
            its like warn of them.
        matmul_options: The same options for matrix products.
        outlining: Whether calls of an outlined function, and equal products, convolutions and
            normalizations, share their code.
        steps_per_execution: Steps between two exchanges with the host; a step is one batch on
            each replica, whether the weights are updated after it or not.
        dtype: `"float16"` or `"float32"`, if the step's floating point numbers are to count as
            such, whatever they were traced with; see `precision`.
        recomputation: Whether activations are computed again for the gradient instead of kept;
            see `recomputation`.
        num_ipus: IPUs that share the layers; see `shards`. Systems hand out 1, 2, 4, ...
        gradient_accumulation_count: Steps between two weight updates: what was traced in the
            scope of the weight update runs once for as many steps; see `accumulation`.
        gradient_accumulation_dtype: Type that gradients are added up in, by default the
            gradients'.
        num_replicas: Copies of the program that run at the same time on IPUs of their own.
        own_updates: Whether each of them updates weights of its own, with its own gradients.
        pipeline: How the stages of the trace run, each on its IPU; `None` if it has none. The
            micro-batches that pass through are the steps between two weight updates; in
            inference, without accumulation, those of an execution. `num_ipus` stays 1.
        stage_splits: Stages in place of each of the pipeline, which is cut between its layers,
            on as many IPUs in place of one; see `finer_stages`.
        minimum_remote_tensor_size: Bytes from which on the pipeline's variables may be in remote
            memory, or shared among replicas.
        maximum_cross_replica_sum_buffer_size: Bytes that may wait to be summed over the replicas
            in one; 0 sums each tensor at once. See `merged_collectives`.
        maximum_reduce_scatter_buffer_size: The same for sums of which each replica gets a part.
        num_io_tiles: Tiles of each IPU for input and output, besides those of the target.
        place_ops_on_io_tiles: Whether input and output are there, so that they pass while the
            other tiles compute; see `io_tiles`.
        io_tile_available_memory_proportion: Share of their memory that data may fill. More data
            than that stays on the other tiles.
        copies_seed: Whether each execution begins with a copy of the seed of random numbers from
            the host, as TensorFlow's programs do and PopART's do not.
        synthetic_infeed: Whether nothing that a step is given is copied from the host.
        synthetic_outfeed: Whether nothing that a step returns is copied to the host.
        selection_order: Which IPU of a replica gets which shard or stage: copies between
            neighbours go over one link.

    Raises:
        ValueError: A number is out of its range or no number, or there is no such choice.
        TypeError: Poplar's options are no dictionary.
    """

    available_memory_proportion: float = AVAILABLE_MEMORY_PROPORTION
    convolution_options: PoplarOptions = None
    matmul_options: PoplarOptions = None
    outlining: bool = True
    steps_per_execution: int = 1
    dtype: str | None = None
    recomputation: bool = False
    num_ipus: int = 1
    gradient_accumulation_count: int = 1
    gradient_accumulation_dtype: str | None = None
    num_replicas: int = 1
    own_updates: bool = False
    pipeline: Pipeline | None = None
    stage_splits: int = 1
    # What is smaller lies on one tile, and would cost more to fetch than it takes.
    minimum_remote_tensor_size: int = 128
    maximum_cross_replica_sum_buffer_size: int = 0
    maximum_reduce_scatter_buffer_size: int = 0
    num_io_tiles: int = 0
    place_ops_on_io_tiles: bool = False
    io_tile_available_memory_proportion: float = 0.9
    copies_seed: bool = True
    synthetic_infeed: bool = False
    synthetic_outfeed: bool = False
    selection_order: SelectionOrder = SelectionOrder.AUTO

    def __post_init__(self) -> None:
        self._check_counts()
        self._check_proportion("available_memory_proportion", "a number above 0 and at most 1")
        self._check_dtype("dtype", "what the model has")
        self._check_dtype("gradient_accumulation_dtype", "that of the gradients")
        for name in _SWITCHES:
            switch = getattr(self, name)
            if not isinstance(switch, bool):
                raise ValueError(f"`{name}` must be True or False. Received: {name}={switch!r}")
        self._check_io_tiles()
        if not isinstance(self.selection_order, SelectionOrder):
            raise ValueError(
                "`selection_order` must be a SelectionOrder, such as SelectionOrder.SNAKE. "
                f"Received: selection_order={self.selection_order!r}"
            )
        self._check_pipeline()
        if self.num_replicas * self.ipus_per_replica > _MOST_IPUS:
            raise ValueError(
                f"Replicas must have at most {_MOST_IPUS} IPUs together, those of the largest "
                f"system. Received: num_replicas={self.num_replicas}, each on "
                f"{self.ipus_per_replica} IPU(s)"
            )
        self.product_options()

    def _check_counts(self) -> None:
        names = (
            "gradient_accumulation_count",
            "num_replicas",
            "stage_splits",
            "steps_per_execution",
        )
        for name in names:
            object.__setattr__(self, name, positive_integer(name, getattr(self, name)))
        if self.steps_per_execution % self.gradient_accumulation_count:
            raise ValueError(
                "`steps_per_execution` must be a multiple of `gradient_accumulation_count`: "
                "executions end with a weight update. Received: "
                f"steps_per_execution={self.steps_per_execution}, "
                f"gradient_accumulation_count={self.gradient_accumulation_count}"
            )
        num_ipus = integer_in(self.num_ipus)
        if num_ipus is None or num_ipus < 1 or num_ipus & (num_ipus - 1):
            raise ValueError(
                "`num_ipus` must be a power of two: 1, 2, 4 and so on. "
                f"Received: num_ipus={self.num_ipus!r}"
            )
        if num_ipus > _MOST_IPUS:
            raise ValueError(
                f"`num_ipus` must be at most {_MOST_IPUS}, those of the largest system. "
                f"Received: num_ipus={self.num_ipus!r}"
            )
        object.__setattr__(self, "num_ipus", num_ipus)
        self._check_not_negative("minimum_remote_tensor_size")
        self._check_not_negative("maximum_cross_replica_sum_buffer_size")
        self._check_not_negative("maximum_reduce_scatter_buffer_size")

    def _check_not_negative(self, name: str) -> None:
        given = getattr(self, name)
        count = integer_in(given)
        if count is None or count < 0:
            raise ValueError(f"`{name}` must be an integer, 0 or more. Received: {name}={given!r}")
        object.__setattr__(self, name, count)

    def _check_io_tiles(self) -> None:
        self._check_not_negative("num_io_tiles")
        self._check_proportion(
            "io_tile_available_memory_proportion", "a number from 0 to 1", may_be_zero=True
        )
        if self.place_ops_on_io_tiles and not self.num_io_tiles:
            raise ValueError(
                "`place_ops_on_io_tiles` needs tiles for input and output: set `num_io_tiles`. "
                f"Received: place_ops_on_io_tiles={self.place_ops_on_io_tiles}, num_io_tiles=0"
            )

    def _check_proportion(self, name: str, expected: str, *, may_be_zero: bool = False) -> None:
        proportion: Any = getattr(self, name)
        is_number = isinstance(proportion, numbers.Real) and not isinstance(proportion, bool)
        if not is_number or not 0 <= proportion <= 1 or not (proportion or may_be_zero):
            raise ValueError(f"`{name}` must be {expected}. Received: {name}={proportion!r}")
        object.__setattr__(self, name, float(proportion))

    def _check_dtype(self, name: str, default: str) -> None:
        dtype = getattr(self, name)
        # TensorFlow's types equal their names, but cannot be written down.
        if dtype is not None and not (isinstance(dtype, str) and dtype in PRECISIONS):
            raise ValueError(
                f"`{name}` must be one of {', '.join(PRECISIONS)}, or None for {default}. "
                f"Received: {name}={dtype!r}"
            )

    def product_options(self) -> Callable[[ComputeSet], ProductOptions]:
        return product_options(
            self.available_memory_proportion,
            convolution_options=self.convolution_options,
            matmul_options=self.matmul_options,
            pipeline=self.pipeline_as_cut,
        )

    @property
    def pipeline_as_cut(self) -> Pipeline | None:
        """The pipeline with the stages that it is to have, not those of the trace."""
        return None if self.pipeline is None else self.pipeline.cut(self.stage_splits)

    @property
    def ipus_per_replica(self) -> int:
        pipeline = self.pipeline_as_cut
        return self.num_ipus if pipeline is None else pipeline.num_ipus

    def ipu_at(self, position: int) -> int:
        """Returns which IPU of a replica is the one of a number."""
        is_pipelined = self.pipeline is not None
        return self.selection_order.ipu_at(position, self.ipus_per_replica, pipelined=is_pipelined)

    @property
    def has_parts(self) -> bool:
        """Whether it matters what is traced in the scope of a stage or of the weight update."""
        counts = self.gradient_accumulation_count, self.num_replicas
        return self.pipeline is not None or max(counts) > 1

    @property
    def num_stages(self) -> int:
        """Stages of the pipeline as it was cut; 0 if there is none."""
        pipeline = self.pipeline_as_cut
        return 0 if pipeline is None else pipeline.num_stages

    def _check_pipeline(self) -> None:
        if self.pipeline is None:
            if self.stage_splits != 1:
                raise ValueError(
                    "`stage_splits` cuts the stages of a `pipeline`, and there is none; "
                    "`num_ipus` shares the layers of a step without stages. "
                    f"Received: stage_splits={self.stage_splits}"
                )
            return
        if not isinstance(self.pipeline, Pipeline):
            raise ValueError(
                "`pipeline` must be a Pipeline, or None for a step without stages. "
                f"Received: pipeline={self.pipeline!r}"
            )
        if self.num_ipus != 1:
            raise ValueError(
                "`num_ipus` shares the layers of a step without stages; with a `pipeline`, its "
                f"`device_mapping` says where they are. Received: num_ipus={self.num_ipus}"
            )
        recomputation_mode(self.pipeline.schedule, self.pipeline.recomputation_mode)
