"""The cycles of each compute set: its vertices, the exchange before them, synchronization.

Tiles synchronize before they exchange, once: each knows then in which cycle its data arrives, and
starts to compute behind that. What needs no exchange starts as soon as its tile is done with the
compute set before. Source: the `launch_cycles` of the target are what compute sets that followed
each other without exchange were measured to take besides their vertices.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ipu_keras.compiler import vertices
from ipu_keras.compiler.batched_lookups import num_batches, num_lookups
from ipu_keras.compiler.compute_sets import ComputeSet, FlatProgram, Value, is_carry
from ipu_keras.compiler.convolution_planner import ConvolutionPlan, plan
from ipu_keras.compiler.convolutions import Convolution
from ipu_keras.compiler.cost import Cost, one_after_the_other
from ipu_keras.compiler.exchange import (
    ExchangePhase,
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    exchange_cycles,
    host_seconds,
    inter_ipu_copy_seconds,
    reduce_scatter_seconds,
    remote_seconds,
    sync_cycles,
)
from ipu_keras.compiler.hlo_convolutions import convolution_of, product_of
from ipu_keras.compiler.host_tables import HOST_TABLE_FAMILY
from ipu_keras.compiler.lookups import (
    BatchedLookups,
    batched_gather_cost,
    batched_update_cost,
)
from ipu_keras.compiler.memory import num_tiles_of, peak_besides_results
from ipu_keras.compiler.offloading import REMOTE_FAMILY
from ipu_keras.compiler.pipeline_placement import STASH_FAMILY
from ipu_keras.compiler.planning import Planning
from ipu_keras.compiler.rejection import REJECTING, rejecting_draw
from ipu_keras.compiler.scans import scan_cost
from ipu_keras.compiler.sorts import sort_cost
from ipu_keras.compiler.stages import COPY_FAMILY
from ipu_keras.compiler.vertex_rates import ELEMENTWISE
from ipu_keras.compiler.vertices import VertexCycles
from ipu_keras.ir import REJECTING_DRAWS, num_elements, scanned_axis
from ipu_keras.program import TensorSpec
from ipu_keras.target import Confidence, Target

# XLA's own operations, as popnn computes them: two vectors are applied; the gradient
# centres and scales the tensor again, and subtracts both of its means from the gradient.
_SCALED = [("multiply", 2), ("add", 2)]
_BATCH_NORMS: Mapping[str, tuple[list[tuple[str, int]], int]] = {
    "batch-norm-inference": (_SCALED, 0),
    "batch-norm-training": (_SCALED, 2),
    "batch-norm-grad": (
        [("subtract", 2), ("multiply", 2), ("multiply", 2), *_SCALED, ("add", 2)],
        2,
    ),
}
# What a categorical draw makes of a random number and a logit.
_NOISY_LOGITS = [("log", 1), ("negate", 1), ("log", 1), ("subtract", 2)]
# Their synchronization is in the seconds.
_COLLECTIVES: Mapping[str, Callable[..., float]] = {
    "all-gather": all_gather_seconds,
    "all-reduce": all_reduce_seconds,
    "all-to-all": all_to_all_seconds,
    "reduce-scatter": reduce_scatter_seconds,
}
_UPDATES = frozenset({"dynamic-update-slice", "scatter"})

# What updates of one element may do in any order.
_ORDERLESS = frozenset({"add", "maximum", "minimum", "multiply"})
# In a chain of elementwise operations, they happen on the way.
_WITHOUT_VERTEX = frozenset({"broadcast", "copy"})


class CostTable:
    """Costs compute sets of one program; equal products and convolutions are planned once.

    Args:
        target: The hardware.
        program: In the order of execution.
        planning: Says how a compute set that is a convolution or product is planned.
        num_ipus: That run the program, all replicas together.
        ipu_at: Which IPU of a replica is the one of a number; its links depend on it.
    """

    def __init__(
        self,
        target: Target,
        program: FlatProgram,
        *,
        planning: Callable[[ComputeSet], Planning],
        num_ipus: int = 1,
        ipu_at: Callable[[int], int] = lambda position: position,
    ):
        self._target = target
        self._values = program.values
        self._in_place = {**program.in_place, **program.updates}
        self._planning = planning
        self._num_ipus = num_ipus
        self._ipu_at = ipu_at
        self._plans: dict[tuple[Convolution, float], ConvolutionPlan] = {}
        # The value whose spread over the tiles a value shares.
        self._layouts: dict[str, str] = {}
        self._by_family: Mapping[str, Callable[[ComputeSet], Cost]] = {
            "broadcast": self._broadcast,
            "cast": self._elementwise,
            "collective": self._collective,
            "control flow": lambda one: Cost(),
            "convolution": self._product,
            "copy": self._copied,
            "dot": self._product,
            "dynamic slice": self._dynamic_slice,
            "elementwise": self._elementwise,
            "gather": self._gather,
            HOST_TABLE_FAMILY: self._with_host,
            COPY_FAMILY: self._inter_ipu_copy,
            "norm": self._normalized,
            "pooling": self._pooling,
            "random": self._random,
            "reduce": self._reduce,
            "scan": self._scanned,
            "scatter": self._scatter,
            "softmax": self._normalized,
            "sort": self._sort,
            REMOTE_FAMILY: self._remote,
            STASH_FAMILY: self._stashed,
            "stream copy": self._free,
            "transpose": self._rearranged,
        }

    def cost(self, one: ComputeSet) -> Cost:
        """The cost of one run of a compute set.

        Args:
            one: The next one of the program: where values lie depends on those before.
        """
        if one.body is not None:
            return self._poplar_call(one, one.body)
        return self._by_family.get(one.family, self._unknown)(one)

    # -- families --------------------------------------------------------------

    def _poplar_call(self, one: ComputeSet, body: FlatProgram) -> Cost:
        """The sum of what it consists of; its own values are temporary.

        What it is given is where it was, its results where they are made.
        """
        place = {name: getattr(one, name) for name in ("stage", "backward", "weight_update")}
        share = one.ops[-1].attributes.get("memory_proportion")
        own = {} if share is None else {"memory_proportion": share}
        table = CostTable(
            self._target,
            body,
            planning=lambda inner: replace(self._planning(replace(inner, **place)), **own),
            num_ipus=self._num_ipus,
        )
        table._plans = self._plans
        parts = tuple(map(table.cost, body.compute_sets))
        pairs = zip(body.compute_sets, parts, strict=True)
        runs = [part.in_step(inner, batches_per_update=1) for inner, part in pairs]
        return Cost(
            compute_cycles=sum(run.compute_cycles for run in runs),
            exchange_cycles=sum(run.exchange_cycles for run in runs),
            sync_cycles=sum(run.sync_cycles for run in runs),
            exchange_bytes=sum(run.exchange_bytes for run in runs),
            temporary_bytes=peak_besides_results(
                body,
                self._target,
                temporary_bytes=[part.temporary_bytes for part in parts],
                message_bytes=[part.message_bytes for part in parts],
            ),
            num_vertices=sum(part.num_vertices for part in parts),
            tiles=max((part.tiles for part in parts), default=0),
            vertex=one.family,
            confidence=vertices.least([Confidence.DERIVED, *(part.confidence for part in parts)]),
            detail=f"{len(parts)} compute set{'s' if len(parts) != 1 else ''}",
            parts=parts,
        )

    def _free(self, one: ComputeSet) -> Cost:
        return Cost(vertex=one.family)

    def _collective(self, one: ComputeSet) -> Cost:
        """What replicas exchange over the links, where a group of them does."""
        op, target = one.ops[-1], self._target
        num_replicas = op.attributes.get("num_replicas", 1)
        if op.kind not in _COLLECTIVES or num_replicas == 1:
            return self._free(one)
        # An all-gather starts from parts; all others from whole tensors.
        whole = op.outputs if op.kind == "all-gather" else one.operands
        num_bytes = sum(spec.nbytes for spec in whole)
        seconds = _COLLECTIVES[op.kind](target, num_bytes, num_ipus=num_replicas)
        return Cost(
            exchange_cycles=math.ceil(seconds * target.clock_hz),
            exchange_bytes=sum(self._bytes_per_tile(spec) for spec in whole),
            num_vertices=1,
            tiles=max(self._tiles(spec) for spec in whole),
            vertex=op.kind,
            detail=f"{num_replicas} replicas",
        )

    def _inter_ipu_copy(self, one: ComputeSet) -> Cost:
        target, source = self._target, self._values[one.reads[0]]
        specs = [self._spec(name) for name in one.reads]
        size = sum(spec.nbytes for spec in specs)
        here, there = self._ipu_at(source.ipu), self._ipu_at(one.ipu)
        seconds = inter_ipu_copy_seconds(target, size, source=here, to=there)
        sync = sync_cycles(target, num_ipus=2)
        return Cost(
            exchange_cycles=math.ceil(seconds * target.clock_hz) - sync,
            sync_cycles=sync,
            exchange_bytes=sum(map(self._bytes_per_tile, specs)),
            vertex=one.family,
            detail=f"from IPU {source.ipu} to IPU {one.ipu}",
        )

    def _remote(self, one: ComputeSet) -> Cost:
        specs = one.operands
        size = sum(spec.nbytes for spec in specs)
        seconds = remote_seconds(self._target, size, num_ipus=self._num_ipus)
        sync = sync_cycles(self._target, num_ipus=2)
        return Cost(
            exchange_cycles=math.ceil(seconds * self._target.clock_hz) - sync,
            sync_cycles=sync,
            exchange_bytes=sum(map(self._bytes_per_tile, specs)),
            vertex=one.family,
            confidence=Confidence.GUESSED,
            detail=one.ops[-1].kind,
        )

    def _with_host(self, one: ComputeSet) -> Cost:
        """The host gets what is to be looked up, or learned, and then sends rows, if any."""
        rows = [value.spec for value in one.writes]
        sizes = one.bytes_read, one.bytes_written
        seconds = sum(
            host_seconds(self._target, size, num_ipus=self._num_ipus) for size in sizes if size
        )
        return Cost(
            exchange_cycles=math.ceil(seconds * self._target.clock_hz),
            exchange_bytes=sum(map(self._bytes_per_tile, rows)),
            vertex=one.family,
            confidence=Confidence.DERIVED,
            detail=f"{sizes[0]:,} bytes to the host, {sizes[1]:,} from it",
        )

    def _stashed(self, one: ComputeSet) -> Cost:
        """Copies on the tiles that have the values, which all start together."""
        cycles = vertices.copy(self._target, num_bytes=self._inputs_per_tile(one), atom_bytes=8)
        tiles = max(self._tiles(self._spec(name)) for name in one.reads)
        return replace(self._cost(one, cycles, 0, vertex="copy"), tiles=tiles)

    def _elementwise(self, one: ComputeSet) -> Cost:
        output = one.writes[0].spec
        operations = [
            (op.kind, max(len(op.inputs), 1)) for op in one.ops if op.kind not in _WITHOUT_VERTEX
        ]
        full = [name for name in one.reads if self._elements(name) == num_elements(output)]
        place = self._in_place.get(one.writes[0].name) or (full[0] if full else None)
        layout = one.writes[0].name if place is None else self._layout(place)
        self._layouts[one.writes[0].name] = layout
        elsewhere = [name for name in full if self._layout(name) != layout]
        small = [
            name
            for name in one.reads
            if self._elements(name) < num_elements(output) and self._values[name].role != "constant"
        ]
        per_tile = self._share(output)
        received = sum(self._bytes_per_tile(self._values[name].spec) for name in elsewhere)
        received += sum(min(self._spec(name).nbytes, per_tile * _item(output)) for name in small)
        cycles = self._map(one, operations, per_tile)
        kinds = "+".join(sorted({kind for kind, _ in operations}))
        return self._cost(one, cycles, received, vertex=f"map {kinds} {output.dtype}")

    def _map(self, one: ComputeSet, operations: Sequence[tuple[str, int]], count: int):
        """The vertex of one or several elementwise operations."""
        dtype = _widest(one, self._values)
        if len(operations) > 1:
            return vertices.fused(
                self._target,
                operations=operations,
                dtype=dtype,
                num_elements=count,
                num_inputs=len(one.reads),
            )
        ((kind, num_operands),) = operations
        if kind == "convert":
            return vertices.cast(
                self._target,
                from_dtype=self._spec(one.reads[0]).dtype,
                to_dtype=one.writes[0].spec.dtype,
                num_elements=count,
            )
        return vertices.elementwise(
            self._target,
            operation=kind,
            dtype=dtype,
            num_elements=count,
            num_operands=num_operands,
        )

    def _broadcast(self, one: ComputeSet) -> Cost:
        output = one.writes[0].spec
        cycles = vertices.fill(self._target, dtype=output.dtype, num_elements=self._share(output))
        source = self._spec(one.reads[0]).nbytes
        received = min(source, self._bytes_per_tile(output))
        return self._cost(one, cycles, received, vertex=f"fill {output.dtype}")

    def _product(self, one: ComputeSet) -> Cost:
        op = one.ops[-1]
        if not all(map(num_elements, one.operands)):  # sums of nothing
            return self._broadcast(one)
        planning = self._planning(one)
        traced = (product_of if op.kind == "dot" else convolution_of)(op, one.operands)
        convolution, proportion = planning.applied_to(traced), planning.memory_proportion
        if (convolution, proportion) not in self._plans:
            self._plans[convolution, proportion] = plan(
                self._target, convolution, memory_proportion=proportion
            )
        found = self._plans[convolution, proportion]
        # IPUs multiply no other types: such a product is costed as one of these.
        is_native = all(spec.dtype in ("float16", "float32") for spec in one.operands)
        return Cost(
            compute_cycles=found.compute_cycles + found.reduce_cycles + found.transform_cycles,
            exchange_cycles=found.exchange_cycles,
            exchange_bytes=found.exchange_bytes,
            temporary_bytes=found.temporary_bytes,
            num_vertices=1,
            tiles=found.tiles_used,
            vertex=f"{found.method} {convolution.dtype} {convolution.partials_dtype}",
            confidence=found.confidence if is_native else Confidence.GUESSED,
            detail=found.method,
        )

    def _reduce(self, one: ComputeSet) -> Cost:
        source = one.operands[0]
        outputs = sum(num_elements(value.spec) for value in one.writes)
        found = one.writes[0].spec.dtype
        return self._reduced(one.ops[-1].attributes["operation"], source, outputs, found)

    def _reduced(self, operation: str, source: TensorSpec, outputs: int, found_dtype: str) -> Cost:
        """Each tile reduces what it has; what the tiles found meets in one or more stages.

        What they found is of the type of the results: sums of halves are float32.
        """
        outputs = max(outputs, 1)
        on_tile = self._share(source)
        first = self._reduction(operation, source.dtype, min(outputs, on_tile), on_tile)
        parts = min(self._tiles(source), max(num_elements(source) // outputs, 1))
        partials = replace(source, dtype=found_dtype)
        found = [self._stages(operation, partials, outputs, parts, count) for count in (1, 2, 3)]
        cycles, received, exchange, stages = min(found, key=lambda stage: stage[0] + stage[2])
        target = self._target
        sync = sync_cycles(target, num_ipus=1)
        return Cost(
            compute_cycles=first.cycles + cycles + target.launch_cycles * (1 + stages),
            exchange_cycles=exchange,
            sync_cycles=sync * stages,
            exchange_bytes=received,
            num_vertices=1 + stages,
            tiles=self._tiles(source),
            vertex=f"reduce {operation} {source.dtype}",
            confidence=first.confidence,
            detail=f"{1 + stages} stages",
        )

    def _normalized(self, one: ComputeSet) -> Cost:
        """A pass over a tensor: its broadcast vertices one after the other, then its sums.

        Source: popnn, Norms and NonLinearity: vectors are added and multiplied in place, a
        vertex for each; several sums of a tensor are reduced by the same compute sets.
        """
        tensor = self._spec(one.reads[0])
        passes, sums = _vertices_of(one)
        made = [value for value in one.writes if num_elements(value.spec) == num_elements(tensor)]
        self._layouts.update((value.name, self._layout(one.reads[0])) for value in made)
        count = self._share(tensor)
        parts = [self._pass(tensor, kind, operands, count) for kind, operands in passes]
        reduced = [self._reduced(kind, tensor, outputs, dtype) for kind, outputs, dtype in sums]
        launches, sync = self._target.launch_cycles, sync_cycles(self._target, num_ipus=1)
        received = self._arriving(one, tensor)
        exchange = self._arrival_cycles(received)
        # Sums start and meet together: only what is computed and exchanged adds up.
        starts = [launches * cost.num_vertices for cost in reduced]
        return Cost(
            compute_cycles=sum(part.cycles + launches for part in parts)
            + sum(cost.compute_cycles for cost in reduced)
            - (sum(starts) - max(starts, default=0)),
            exchange_cycles=exchange + sum(cost.exchange_cycles for cost in reduced),
            sync_cycles=sync * (received > 0)
            + max((cost.sync_cycles for cost in reduced), default=0),
            exchange_bytes=max([received, sum(cost.exchange_bytes for cost in reduced)]),
            num_vertices=len(parts) + sum(cost.num_vertices for cost in reduced),
            tiles=self._tiles(tensor),
            vertex=f"{one.family} {'+'.join(sorted({kind for kind, _ in passes}))} {tensor.dtype}",
            confidence=vertices.least(
                [*(part.confidence for part in parts), *(cost.confidence for cost in reduced)]
            ),
            detail=f"{len(passes)} vertices, {len(sums)} sums",
        )

    def _pass(self, tensor: TensorSpec, kind: str, num_operands: int, count: int) -> VertexCycles:
        return vertices.elementwise(
            self._target,
            operation=kind,
            dtype=tensor.dtype,
            num_elements=count,
            num_operands=num_operands,
        )

    def _arriving(self, one: ComputeSet, tensor: TensorSpec) -> int:
        """Bytes that a tile receives: of tensors that lie elsewhere, and of vectors."""
        size, per_tile = num_elements(tensor), self._bytes_per_tile(tensor)
        layout, received = self._layout(one.reads[0]), 0
        for name in one.reads:
            if self._elements(name) < size and self._values[name].role != "constant":
                received += min(self._spec(name).nbytes, per_tile)
            elif self._elements(name) == size and self._layout(name) != layout:
                received += self._bytes_per_tile(self._spec(name))
        return received

    def _arrival_cycles(self, received: int) -> int:
        phase = ExchangePhase(bytes_in=received, bytes_out=received)
        return exchange_cycles(self._target, phase) if received else 0

    def _stages(
        self, operation: str, partials: TensorSpec, outputs: int, parts: int, count: int
    ) -> tuple[int, int, int, int]:
        """Compute cycles, bytes received, exchange cycles and number of stages.

        Source: poplibs, the reduction planner: exchanged bytes and added partials of
        each stage, with as many partials meeting in every stage.
        """
        if parts <= 1:
            return 0, 0, 0, 0
        together = math.ceil(parts ** (1 / count))
        cycles = exchange = received = 0
        for _ in range(count):
            remaining = math.ceil(parts / together)
            owners = min(self._target.num_tiles, outputs * remaining)
            results = math.ceil(outputs * remaining / owners)
            num_bytes = results * together * _item(partials)
            phase = ExchangePhase(bytes_in=num_bytes, bytes_out=num_bytes)
            exchange += exchange_cycles(self._target, phase)
            received = max(received, num_bytes)
            cycles += self._reduction(operation, partials.dtype, results, results * together).cycles
            parts = remaining
        return cycles, received, exchange, count

    def _reduction(self, operation: str, dtype: str, outputs: int, elements: int) -> VertexCycles:
        return vertices.reduce(
            self._target,
            operation=operation,
            dtype=dtype,
            num_outputs=outputs,
            num_partials=max(math.ceil(elements / max(outputs, 1)), 1),
        )

    def _scanned(self, one: ComputeSet) -> Cost:
        op, source = one.ops[-1], one.operands[0]
        axis, operation = scanned_axis(op), op.attributes["operation"]
        assert axis is not None, "it is what makes the family"
        own = operation if operation in ELEMENTWISE else "map"
        parts = op.attributes.get("operations") or (own,)
        found = scan_cost(self._target, operations=parts, source=source, axis=axis)
        name = f"scan {operation} {source.dtype}"
        return replace(found, tiles=self._tiles(source), vertex=name)

    def _pooling(self, one: ComputeSet) -> Cost:
        op, output = one.ops[-1], one.writes[0].spec
        window = math.prod(op.attributes["window_size"])
        cycles = vertices.pooling(
            self._target,
            dtype=output.dtype,
            num_outputs=self._share(output),
            window_elements=window,
            backward=op.kind == "select-and-scatter",
        )
        return self._cost(one, cycles, self._inputs_per_tile(one), vertex=op.kind)

    def _copied(self, one: ComputeSet) -> Cost:
        if not is_carry(one):
            return self._moved(one, vertices.copy)
        # What a loop carries lies as its first value did.
        output = one.writes[0]
        source = self._in_place.get(output.name, one.reads[0])
        self._layouts[output.name] = self._layout(source)
        elsewhere = self._layout(one.reads[0]) != self._layout(source)
        cycles = self._copy(output.spec)
        received = self._bytes_per_tile(output.spec) if elsewhere else 0
        return self._cost(one, cycles, received, vertex="copy")

    def _copy(self, spec: TensorSpec) -> VertexCycles:
        """A copy of a tensor on the tiles that have it."""
        size = self._bytes_per_tile(spec)
        return vertices.copy(self._target, num_bytes=size, atom_bytes=_item(spec))

    def _rearranged(self, one: ComputeSet) -> Cost:
        # Neighbours come from different places: one element at a time.
        return self._moved(one, vertices.rearrange)

    def _moved(self, one: ComputeSet, vertex: Callable[..., VertexCycles]) -> Cost:
        output = one.writes[0].spec
        num_bytes = self._bytes_per_tile(output)
        cycles = vertex(self._target, num_bytes=num_bytes, atom_bytes=_item(output))
        return self._cost(one, cycles, num_bytes, vertex=vertex.__name__)

    def _dynamic_slice(self, one: ComputeSet) -> Cost:
        part = one.writes[0].spec
        if one.ops[-1].kind == "dynamic-update-slice":
            part = self._spec(one.reads[1])
            self._layouts[one.writes[0].name] = self._layout(one.reads[0])
        cycles = vertices.dynamic_slice(
            self._target, dtype=part.dtype, num_slices=1, slice_elements=self._share(part)
        )
        return self._with_copy(one, self._cost(one, cycles, 0, vertex="dynamic slice"))

    def _gather(self, one: ComputeSet) -> Cost:
        return self._lookup(one, one.writes[0].spec, vertices.multi_slice)

    def _scatter(self, one: ComputeSet) -> Cost:
        self._layouts[one.writes[0].name] = self._layout(one.reads[0])
        updated = self._lookup(one, self._spec(one.reads[-1]), vertices.multi_update_add)
        divided = self._shared_update(one)
        # It may need no more memory than all indices on each tile do.
        if divided is not None and divided.temporary_bytes <= updated.exchange_bytes:
            updated = min(updated, divided, key=lambda cost: cost.cycles)
        return self._with_copy(one, updated)

    def _shared_update(self, one: ComputeSet) -> Cost | None:
        """Tiles share the updates too: each makes those of a table of its own, which then meet.

        That is popops' `lookupSplit`. It needs one table, rows of fewer columns than half the
        tiles, and updates whose order does not matter; `None` of others.
        """
        table, indices, rows = (self._spec(one.reads[k]) for k in (0, 1, -1))
        operation = str(one.ops[-1].attributes.get("operation"))
        num_rows = max(num_lookups(one.ops[-1], indices), 1)
        columns = math.ceil(num_elements(rows) / num_rows)
        parts = min(self._target.num_tiles // max(columns, 1), num_rows)
        if num_batches(one.ops[-1], table) > 1 or parts < 2 or operation not in _ORDERLESS:
            return None
        own = math.ceil(num_elements(table) / columns)
        filled = vertices.fill(self._target, dtype=table.dtype, num_elements=own)
        updated = vertices.multi_update_add(
            self._target, dtype=rows.dtype, num_indices=math.ceil(num_rows / parts), row_elements=1
        )
        received = math.ceil(indices.nbytes / parts) + self._bytes_per_tile(rows)
        partials = TensorSpec((parts, *table.shape), table.dtype)
        steps = [
            self._cost(one, filled, 0, vertex="fill"),
            self._cost(one, updated, received, vertex=one.family),
            self._reduced(operation, partials, num_elements(table), table.dtype),
        ]
        whole = one_after_the_other(steps, vertex=f"{one.family} in parts")
        temporary = own * _item(table) + whole.exchange_bytes
        return replace(whole, temporary_bytes=temporary, detail=f"{parts} parts")

    def _with_copy(self, one: ComputeSet, cost: Cost) -> Cost:
        """An update works in place: on a copy, if somebody still needs what it would change."""
        if one.ops[-1].kind not in _UPDATES or one.writes[0].name in self._in_place:
            return cost
        cycles = self._copy(one.writes[0].spec).cycles + self._target.launch_cycles
        return replace(
            cost,
            compute_cycles=cost.compute_cycles + cycles,
            num_vertices=cost.num_vertices + 1,
            detail=f"{cost.detail}, on a copy" if cost.detail else "on a copy",
        )

    def _lookup(self, one: ComputeSet, rows: TensorSpec, vertex) -> Cost:
        table, indices = one.operands[:2]
        num_rows = num_lookups(one.ops[-1], indices)
        num_tables = num_batches(one.ops[-1], table)
        if num_tables <= 1 or not num_rows:
            return self._rows(one, vertex, rows=rows, num_rows=num_rows, indices=indices)
        row_elements = num_elements(rows) // num_rows
        lookups = BatchedLookups(
            num_tables=num_tables,
            num_rows=math.ceil(num_elements(table) / num_tables / max(row_elements, 1)),
            num_lookups=num_rows // num_tables,
            row_elements=row_elements,
            dtype=rows.dtype,
            item_bytes=_item(rows),
            index_bytes=indices.nbytes // num_rows,
        )
        if one.family == "scatter":
            found = batched_update_cost(self._target, lookups)
        else:
            found = batched_gather_cost(
                self._target,
                lookups,
                result_bytes=self._bytes_per_tile(rows),
                memory_proportion=self._planning(one).memory_proportion,
            )
        detail = f"{num_tables} tables, {found.detail}"
        return replace(found, vertex=one.family, detail=detail)

    def _rows(
        self, one: ComputeSet, vertex, *, rows: TensorSpec, num_rows: int, indices: TensorSpec
    ) -> Cost:
        # The tiles share the columns: each sees all indices, and its part of all rows.
        columns = math.ceil(num_elements(rows) / max(num_rows, 1) / self._target.num_tiles)
        cycles = vertex(self._target, dtype=rows.dtype, num_indices=num_rows, row_elements=columns)
        received = indices.nbytes + self._bytes_per_tile(rows)
        return self._cost(one, cycles, received, vertex=one.family)

    def _random(self, one: ComputeSet) -> Cost:
        op = one.ops[-1]
        if op.kind == "StatelessShuffle" or op.attributes.get("distribution") == "shuffle":
            return self._shuffled(one)
        if "num_drawn" in op.attributes:
            return self._categorical(one, op.attributes["num_drawn"])
        distribution = REJECTING_DRAWS.get(op.kind, op.attributes.get("distribution"))
        if distribution in REJECTING:
            return self._rejecting(one, distribution)
        return self._drawn(one, one.writes[-1].spec)

    def _drawn(self, one: ComputeSet, numbers: TensorSpec) -> Cost:
        cycles = vertices.random_uniform(
            self._target, dtype=numbers.dtype, num_elements=self._share(numbers)
        )
        cost = self._cost(one, cycles, 0, vertex="random uniform")
        return replace(cost, tiles=self._tiles(numbers))

    def _rejecting(self, one: ComputeSet, distribution: str) -> Cost:
        """Of each sample, its parameters arrive where it is drawn."""
        samples = one.writes[-1].spec
        cycles = rejecting_draw(
            self._target,
            distribution=distribution,
            dtype=samples.dtype,
            num_elements=self._share(samples),
        )
        parameters = [spec for spec in one.operands if "float" in spec.dtype]
        most = self._share(samples)
        received = sum(min(spec.nbytes, most * _item(spec)) for spec in parameters)
        cost = self._cost(one, cycles, received, vertex=f"random {distribution}")
        return replace(cost, tiles=self._tiles(samples))

    def _categorical(self, one: ComputeSet, num_drawn: int) -> Cost:
        """As XLA has it: of each sample, the class with the largest logit - log(-log(number))."""
        logits = [spec for spec in one.operands if "float" in spec.dtype]
        dtype = logits[0].dtype if logits else "float32"
        numbers = TensorSpec((num_drawn,), dtype)
        noisy = vertices.fused(
            self._target,
            operations=_NOISY_LOGITS,
            dtype=dtype,
            num_elements=self._share(numbers),
            num_inputs=2,
        )
        per_tile = self._bytes_per_tile(numbers)
        received = min(sum(spec.nbytes for spec in logits), per_tile)
        parts = [
            self._drawn(one, numbers),
            self._cost(one, noisy, received, vertex="map"),
            self._reduced("custom", numbers, num_elements(one.writes[-1].spec), dtype),
        ]
        whole = one_after_the_other(parts, vertex="random categorical")
        return replace(whole, temporary_bytes=per_tile + whole.exchange_bytes)

    def _shuffled(self, one: ComputeSet) -> Cost:
        """As XLA has it: random keys are sorted with numbers or, of others, numbers of rows."""
        output = one.writes[-1].spec
        keys = TensorSpec(output.shape[:1], "uint32")
        numbers = output if len(output.shape) == 1 else keys
        ordered = sort_cost(self._target, operands=[keys, numbers], axis=0)
        parts = [self._drawn(one, keys), replace(ordered, tiles=self._tiles(keys))]
        if len(output.shape) > 1:
            look = partial(self._rows, one, vertices.multi_slice, rows=output)
            parts.append(look(num_rows=output.shape[0], indices=keys))
        whole = one_after_the_other(parts, vertex="random shuffle")
        per_tile = self._bytes_per_tile(keys) + self._bytes_per_tile(numbers)
        return replace(whole, temporary_bytes=per_tile + whole.exchange_bytes)

    def _sort(self, one: ComputeSet) -> Cost:
        op = one.ops[-1]
        operands = [self._spec(name) for name in one.reads]
        (axis,) = op.attributes.get("dimensions", (len(operands[0].shape) - 1,))
        if op.kind == "topk":
            operands.append(TensorSpec(operands[0].shape, "int32"))
        found = sort_cost(
            self._target, operands=operands, axis=axis, num_largest=op.attributes.get("k")
        )
        keys = operands[0]
        return replace(found, tiles=self._tiles(keys), vertex=f"sort {keys.dtype}")

    def _unknown(self, one: ComputeSet) -> Cost:
        tiles = max([self._tiles(value.spec) for value in one.writes], default=1)
        cycles = vertices.unknown(
            self._target,
            bytes_read=math.ceil(one.bytes_read / tiles),
            bytes_written=math.ceil(one.bytes_written / tiles),
            flops=math.ceil(one.flops / tiles),
            dtype=one.writes[0].spec.dtype if one.writes else "float32",
        )
        return self._cost(one, cycles, self._inputs_per_tile(one), vertex=one.ops[-1].kind)

    # -- what they share -------------------------------------------------------

    def _cost(self, one: ComputeSet, cycles: VertexCycles, received: int, *, vertex: str) -> Cost:
        """Vertices that start together, after an exchange if a tile receives anything."""
        target = self._target
        return Cost(
            compute_cycles=cycles.cycles + target.launch_cycles,
            exchange_cycles=self._arrival_cycles(received),
            sync_cycles=sync_cycles(target, num_ipus=1) if received else 0,
            exchange_bytes=received,
            num_vertices=1,
            tiles=max((self._tiles(value.spec) for value in one.writes), default=1),
            vertex=vertex,
            confidence=cycles.confidence,
        )

    def _layout(self, name: str) -> str:
        return self._layouts.get(name, name)

    def _spec(self, name: str) -> TensorSpec:
        return self._values[name].spec

    def _elements(self, name: str) -> int:
        return num_elements(self._spec(name))

    def _tiles(self, spec: TensorSpec) -> int:
        return num_tiles_of(spec, self._target)

    def _share(self, spec: TensorSpec) -> int:
        """Elements of a tensor on the tile with the most."""
        return math.ceil(num_elements(spec) / self._tiles(spec))

    def _bytes_per_tile(self, spec: TensorSpec) -> int:
        return math.ceil(spec.nbytes / self._tiles(spec))

    def _inputs_per_tile(self, one: ComputeSet) -> int:
        return sum(self._bytes_per_tile(self._spec(name)) for name in one.reads)


def _vertices_of(
    one: ComputeSet,
) -> tuple[list[tuple[str, int]], list[tuple[str, int, str]]]:
    """Of a pass over a tensor, the operations on each element with the number of their
    operands, and the reductions with the number of their results and the type of these."""
    op = one.ops[-1]
    if op.kind in _BATCH_NORMS:
        passes, num_sums = _BATCH_NORMS[op.kind]
        vector = op.outputs[-1]
        return passes, [("add", num_elements(vector), vector.dtype)] * num_sums
    passes = [(op.kind, len(op.inputs)) for op in one.ops if op.kind != "reduce"]
    sums = [(op, op.outputs[0]) for op in one.ops if op.kind == "reduce"]
    return passes, [
        (op.attributes["operation"], num_elements(found), found.dtype) for op, found in sums
    ]


def _item(spec: TensorSpec) -> int:
    return spec.nbytes // max(num_elements(spec), 1)


def _widest(one: ComputeSet, values: Mapping[str, Value]) -> str:
    specs = [values[name].spec for name in one.reads] + [value.spec for value in one.writes]
    floats = [spec for spec in specs if "float" in spec.dtype] or specs
    return max(floats, key=_item).dtype
