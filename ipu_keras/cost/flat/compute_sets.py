"""Compute sets, which an IPU executes one after the other, and the values that they pass on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ipu_keras.ir import Op, TensorSpec

# The role of values in the memory of the machines around IPUs.
REMOTE = "remote"

# Families whose results depend on nothing but what they read.
DETERMINISTIC = frozenset(
    ["broadcast", "cast", "convolution", "copy", "dot", "elementwise", "reduce", "transpose"]
)


@dataclass(frozen=True)
class Value:
    """A tensor in the memory of the IPU.

    Args:
        role: One of `"variable"`, `"argument"` (from the infeed), `"constant"`, `"activation"`,
            and `REMOTE` for a variable that is not on tiles.
        copy_of: For a value that lies on several IPUs, its name on the first of them.
    """

    name: str
    spec: TensorSpec
    role: str = "activation"
    ipu: int = 0
    copy_of: str | None = None
    is_accumulator: bool = False


@dataclass(frozen=True)
class LoopPart:
    """The body or the condition of a loop, whose name is unique in the program."""

    loop: str
    is_condition: bool = False


@dataclass(frozen=True)
class Branch:
    """One branch of a conditional, whose name is unique in the program; only one branch runs."""

    conditional: str
    index: int


@dataclass(frozen=True, kw_only=True)
class ComputeSet:
    """Vertices that run at the same time, and the exchange before them.

    Args:
        name: Unique in the program: the last operation's, behind its scopes.
        family: What `ir.family_of_op` says, or the name of an operation of Poplar's libraries.
        operands: The tensors that the last operation takes, in its own shapes.
        views: Positions, among what it reads, of values of which it takes a view: a part, or
            another order.
        repeat: How often it runs in one run of the graph. 0 stands for a branch of a conditional
            that another branch takes longer than: only its memory counts.
        loops: The parts of loops that it is in, outermost first; so are `branches`.
        layer: Path of the layer that it belongs to, empty if there is none.
        weight_update: Whether it runs once for each weight update, not for each batch.
        recomputed: Whether a stage's backward part repeats it from the forward part.
        body: What an operation of Poplar's libraries does: a program that takes what the
            operation reads as variables, and results in what it writes.
        flops: Floating point operations of one run; bytes are those of one run, too.
        shard: The IPU that a sharding scope asks for, `None` outside of such scopes.
    """

    name: str
    family: str
    ops: tuple[Op, ...]
    operands: tuple[TensorSpec, ...]
    reads: tuple[str, ...]
    writes: tuple[Value, ...]
    views: tuple[int, ...] = ()
    repeat: int = 1
    loops: tuple[LoopPart, ...] = ()
    branches: tuple[Branch, ...] = ()
    layer: str = ""
    backward: bool = False
    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    ipu: int = 0
    stage: int | None = None
    weight_update: bool = False
    recomputed: bool = False
    shard: int | None = None
    body: "FlatProgram | None" = None

    @property
    def viewed(self) -> frozenset[str]:
        """Names of the values of which it takes a view."""
        return frozenset(self.reads[position] for position in self.views)

    @property
    def part(self) -> tuple[int | None, bool, bool]:
        """What compute sets share that run as often and, in a pipeline, at the same time."""
        # Without a stage, forward and backward are one part.
        return self.stage, self.backward and self.stage is not None, self.weight_update


@dataclass(frozen=True, kw_only=True)
class FlatProgram:
    """One step of a program, written out as compute sets.

    Args:
        compute_sets: In the order of tracing, until `liveness.schedule` gives that of execution.
        updates: Variables' names by names of the results that become their new values, which are
            written in place.
        in_place: Names of values by names of those that take over their memory.
        stashes: For how many more batches a pipeline keeps a value, by the value's name.
        checkpoints: Names of values that recomputation keeps.
        remote_bytes: Bytes that lie in the memory of the machine, not on tiles.
        num_unknown_loops: Loops whose trips depend on data: they were counted with their bound,
            or as one trip.
    """

    compute_sets: tuple[ComputeSet, ...] = ()
    values: Mapping[str, Value] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    updates: Mapping[str, str] = field(default_factory=dict)
    in_place: Mapping[str, str] = field(default_factory=dict)
    stashes: Mapping[str, int] = field(default_factory=dict)
    checkpoints: tuple[str, ...] = ()
    remote_bytes: int = 0
    num_unknown_loops: int = 0


def is_carry(one: ComputeSet) -> bool:
    """Whether a compute set only copies a value to where a loop keeps it."""
    return one.family == "copy" and one.ops[-1].kind == "copy"


def is_sum_of_replicas(one: ComputeSet) -> bool:
    """Whether a compute set adds up each of its operands over replicas, in place."""
    return one.ops[-1].kind == "all-reduce"


def is_update(one: ComputeSet) -> bool:
    """Whether a compute set changes a part of its first operand, which is its result."""
    return one.ops[-1].kind in ("dynamic-update-slice", "scatter")


def widens_halves(one: ComputeSet) -> bool:
    """Whether a compute set only converts float16 to float32."""
    specs = (*one.operands, *(value.spec for value in one.writes))
    return one.family == "cast" and [spec.dtype for spec in specs] == ["float16", "float32"]
