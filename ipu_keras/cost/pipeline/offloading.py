"""Moves parts of a pipeline to remote memory, or shares them among its replicas.

Remote memory is that of the machines around IPUs. Values in it take no memory of tiles but while
they are used; each use costs the way to and from it.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import REMOTE, ComputeSet, FlatProgram, Value
from ipu_keras.cost.pipeline.placement import STASH_FAMILY
from ipu_keras.ir import Op, TensorSpec, num_elements
from ipu_keras.program import Pipeline

REMOTE_FAMILY = "remote copy"


def offload(
    program: FlatProgram, pipeline: Pipeline, num_replicas: int, *, minimum_bytes: int
) -> FlatProgram:
    """Moves what the options of a pipeline say to remote memory, or shares it among replicas.

    - Activations that wait for their backward part: stashes are written and read remotely.
    - Accumulators: fetched, added to and written back for each micro-batch.
    - Variables that only the weight update reads: fetched for it and written back. With
      `replicated_optimizer_state_sharding`, each replica has a part of them, and all gather
      them.
    - With `replicated_weight_sharding`, so it is with variables that stages read, before each
      part that does; `offload_weights` puts these parts into remote memory.

    An option that is `None` leaves things on the IPU, a single replica shares nothing, and
    variables with fewer than `minimum_bytes` stay where they are.
    """
    accumulators, states, weights = _variables(program, minimum_bytes)
    if pipeline.offload_activations:
        program = _with_remote_stashes(program)
    if pipeline.offload_gradient_accumulation_buffers:
        program = _Elsewhere(program, accumulators, 1, remote=True).run()
    if pipeline.offload_weight_update_variables:
        shards = num_replicas if pipeline.replicated_optimizer_state_sharding else 1
        program = _Elsewhere(program, states, shards, remote=True).run()
    if pipeline.replicated_weight_sharding and num_replicas > 1:
        remote = bool(pipeline.offload_weights)
        program = _Elsewhere(program, weights, num_replicas, remote=remote).run()
    return program


def _variables(program: FlatProgram, minimum_bytes: int) -> tuple[list[str], list[str], list[str]]:
    """Returns accumulators, what only the weight update reads, and what stages read."""
    by_stages = {n for one in program.compute_sets if not one.weight_update for n in one.reads}
    found: tuple[list[str], list[str], list[str]] = ([], [], [])
    for name, value in program.values.items():
        if value.role == "variable" and value.spec.nbytes >= minimum_bytes:
            found[0 if value.is_accumulator else 2 if name in by_stages else 1].append(name)
    return found


def _with_remote_stashes(program: FlatProgram) -> FlatProgram:
    sizes = (program.values[name].spec.nbytes * n for name, n in program.stashes.items())
    return replace(
        program,
        compute_sets=tuple(
            replace(one, family=REMOTE_FAMILY) if one.family == STASH_FAMILY else one
            for one in program.compute_sets
        ),
        stashes={},
        remote_bytes=program.remote_bytes + sum(sizes),
    )


class _Elsewhere:
    """Fetches some variables before the parts that read them, and writes back what is new."""

    def __init__(
        self, program: FlatProgram, names: Collection[str], num_shards: int, *, remote: bool
    ):
        self._program = program
        self._names = set(names)
        self._num_shards = num_shards
        self._remote = remote
        self._values = dict(program.values)
        self._updates = dict(program.updates)
        # What stays on tiles of each new value, by its name.
        self._kept: dict[str, str | None] = {}
        self._fetched: dict[tuple[str, tuple], str] = {}
        for name in self._names:
            value = program.values[name]
            role = REMOTE if remote else value.role
            self._values[name] = replace(value, spec=self._shard(value.spec), role=role)

    def run(self) -> FlatProgram:
        compute_sets: list[ComputeSet] = []
        for one in self._program.compute_sets:
            for name in dict.fromkeys(one.reads):
                if name in self._names and (name, one.part) not in self._fetched:
                    compute_sets += self._fetch(name, one)
            reads = (self._fetched.get((name, one.part), name) for name in one.reads)
            compute_sets.append(replace(one, reads=tuple(reads)))
            for value in one.writes:
                if self._program.updates.get(value.name) in self._names:
                    compute_sets += (
                        replace(back, loops=one.loops, branches=one.branches)
                        for back in self._write_back(value, one)
                    )
        return replace(
            self._program,
            compute_sets=tuple(compute_sets),
            values=self._values,
            results=tuple(self._results()),
            updates=self._updates,
            remote_bytes=self._program.remote_bytes + self._bytes_elsewhere(),
        )

    def _results(self) -> Iterator[str]:
        """Yields the step's results; of new values that are written back, what stays here."""
        for name in self._program.results:
            kept = self._kept.get(name, name)
            # A result that is no variable's new value would be fetched by the host.
            if kept is not None:
                yield kept

    def _bytes_elsewhere(self) -> int:
        specs = (self._values[name].spec for name in self._names)
        return sum(spec.nbytes for spec in specs) if self._remote else 0

    def _shard(self, spec: TensorSpec) -> TensorSpec:
        if self._num_shards == 1:
            return spec
        return TensorSpec((math.ceil(num_elements(spec) / self._num_shards),), spec.dtype)

    def _fetch(self, name: str, reader: ComputeSet) -> Iterator[ComputeSet]:
        """Loads a part from remote memory, and gathers the parts of all replicas."""
        value = self._program.values[name]
        where = "update" if reader.weight_update else _part_name(reader)
        here = name
        if self._remote:
            loaded = self._new(f"{name}/{where}/loaded", self._shard(value.spec), value)
            yield _set_of(REMOTE_FAMILY, "load", (here,), (loaded,), self._values, reader)
            here = loaded.name
        if self._num_shards > 1:
            whole = self._new(f"{name}/{where}/gathered", value.spec, value)
            kind = {"num_replicas": self._num_shards}
            yield _set_of("collective", "all-gather", (here,), (whole,), self._values, reader, kind)
            here = whole.name
        self._fetched[name, reader.part] = here

    def _write_back(self, value: Value, writer: ComputeSet) -> Iterator[ComputeSet]:
        """Keeps the replica's own part of a new value, in remote memory if that is its place."""
        variable = self._updates.pop(value.name)
        here = value.name
        if self._num_shards > 1:
            part = self._new(f"{here}/shard", self._shard(value.spec), self._values[here])
            yield _set_of("copy", "slice", (here,), (part,), self._values, writer)
            here = part.name
        if self._remote:
            yield _set_of(REMOTE_FAMILY, "store", (here,), (), self._values, writer)
            self._kept[value.name] = None
        else:
            self._updates[here] = variable
            self._kept[value.name] = here

    def _new(self, name: str, spec: TensorSpec, like: Value) -> Value:
        self._values[name] = Value(name, spec, ipu=like.ipu)
        return self._values[name]


def _part_name(one: ComputeSet) -> str:
    return f"stage {one.stage} {'backward' if one.backward else 'forward'}"


def _set_of(
    family: str,
    kind: str,
    reads: tuple[str, ...],
    writes: tuple[Value, ...],
    values: Mapping[str, Value],
    beside: ComputeSet,
    attributes: Mapping[str, int] | None = None,
) -> ComputeSet:
    name = f"{writes[0].name if writes else reads[0]}/{kind}"
    specs = tuple(values[name].spec for name in reads)
    made = tuple(value.spec for value in writes)
    return ComputeSet(
        name=name,
        family=family,
        ops=(Op(name, kind, made, inputs=reads, attributes=dict(attributes or {})),),
        operands=specs,
        reads=reads,
        writes=writes,
        layer=beside.layer,
        backward=beside.backward,
        stage=beside.stage,
        weight_update=beside.weight_update,
        ipu=beside.ipu,
        bytes_read=_size(specs),
        bytes_written=_size(made),
    )


def _size(specs: Iterable[TensorSpec]) -> int:
    return sum(spec.nbytes for spec in specs)
