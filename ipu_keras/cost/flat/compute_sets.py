"""What an IPU executes one after the other, and the values that it hands on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ipu_keras.ir import Op, TensorSpec

# Families whose results depend on nothing but what they read.
DETERMINISTIC = frozenset(
    ["broadcast", "cast", "convolution", "copy", "dot", "elementwise", "reduce", "transpose"]
)


@dataclass(frozen=True)
class Value:
    """A tensor in the memory of the IPU.

    Args:
        name: Unique in the program.
        spec: Shape and dtype.
        role: `"variable"`, `"argument"` (of the infeed), `"constant"`,
            `"activation"`, or `"remote"`: a variable that is not on tiles.
        ipu: Where it lies.
        copy_of: Of a value that lies on several IPUs, the name that it has on the first.
        is_accumulator: Whether gradients of several batches are added up in it.
    """

    name: str
    spec: TensorSpec
    role: str = "activation"
    ipu: int = 0
    copy_of: str | None = None
    is_accumulator: bool = False


@dataclass(frozen=True)
class LoopPart:
    """The body of a loop, or its condition.

    Args:
        loop: What no other loop of the program is called.
        is_condition: Which of both.
    """

    loop: str
    is_condition: bool = False


@dataclass(frozen=True)
class Branch:
    """One of the branches of a conditional, of which one runs.

    Args:
        conditional: What no other conditional of the program is called.
        index: Of the branch.
    """

    conditional: str
    index: int


@dataclass(frozen=True, kw_only=True)
class ComputeSet:
    """Vertices that run at the same time, and the exchange before them.

    Args:
        name: Of its last operation, behind the scopes that it was written out in; unique.
        family: As `ir.family_of_op` has it; an operation of Poplar's libraries is one of its own,
            called as the operation.
        ops: Its operations; several if they were fused.
        operands: The tensors that its last operation takes, in its own shapes.
        reads: Names of the values that it reads.
        writes: The values that it makes.
        repeat: How often it runs in one run of the graph; 0 in a branch that another one takes
            longer than, of which only the memory counts.
        loops: The parts of loops that it is in, outermost first.
        branches: The branches of conditionals that it is in, outermost first.
        layer: Path of the layer that it belongs to.
        backward: Whether it is part of the gradient.
        stage: The stage of a pipeline that it is in, if there is one.
        weight_update: Whether it runs once for each weight update, not for each batch.
        recomputed: Whether a backward part of a stage repeats it from the forward one.
        body: Of an operation of Poplar's libraries, what it does: a program that takes what
            it reads as variables, and results in what it writes.
        flops: Floating point operations of one run.
        bytes_read: Bytes that one run reads.
        bytes_written: Bytes that one run writes.
        ipu: Where it runs.
        shard: The IPU that scopes say it is on, if there are any.
    """

    name: str
    family: str
    ops: tuple[Op, ...]
    operands: tuple[TensorSpec, ...]
    reads: tuple[str, ...]
    writes: tuple[Value, ...]
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
    def part(self) -> tuple[int | None, bool, bool]:
        """What all have in common that run at the same time in a pipeline, or as often.

        Without a stage, forward and backward are one.
        """
        return self.stage, self.backward and self.stage is not None, self.weight_update


@dataclass(frozen=True, kw_only=True)
class FlatProgram:
    """One step of a program, written out.

    Args:
        compute_sets: In the order of tracing.
        values: Every value by name.
        results: Names of the values that the step returns.
        updates: Names of variables by names of the results that are their new
            values, which are written in place.
        in_place: Names of values by names of those that take over their memory.
        stashes: Of a pipeline, how many more batches a value is kept of, by its name.
        checkpoints: Names of values that recomputation keeps.
        remote_bytes: What lies in the memory of the machine, not on tiles, in bytes.
        num_unknown_loops: Loops whose trips depend on data: they were counted with
            their bound, or as one trip.
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
    """Whether all that it does is to copy a value to where a loop keeps it.

    Args:
        one: Of a program that was written out.
    """
    return one.family == "copy" and one.ops[-1].kind == "copy"


def is_update(one: ComputeSet) -> bool:
    """Whether it changes a part of its first operand, which is its result.

    Args:
        one: Of a program that was written out.
    """
    return one.ops[-1].kind in ("dynamic-update-slice", "scatter")


def widens_halves(one: ComputeSet) -> bool:
    """Whether all that it does is to convert float16 to float32.

    Args:
        one: Of a program that was written out.
    """
    specs = (*one.operands, *(value.spec for value in one.writes))
    return one.family == "cast" and [spec.dtype for spec in specs] == ["float16", "float32"]
