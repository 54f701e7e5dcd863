"""Puts normalizations and softmax, which frameworks write as small operations, together again.

popnn's vertices sum a tensor in one pass, in float32, then add or multiply a vector each. They
keep its dtype, and compute values again in the gradient rather than keep them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram, Value, widens_halves
from ipu_keras.ir import Op, num_elements

# A batch normalization as Keras writes it, in XLA's operations. `x` and `y` have N rows of C
# float16 channels, what is between is float32; `n` to `shift` are vectors of C numbers:
#
#   x ─ convert ─┬─ reduce add ─ divide n ─ mean ─ broadcast ─┐
#                ├─ subtract ─────────────────────────────────┘
#                │     └─ multiply by itself ─ reduce add ─ divide n ─ var ─ rsqrt ─┐
#                │                  gamma ─ multiply ───────────────────────────────┘
#                │                            └─ scale ─ broadcast ─┐
#                └─ multiply ───────────────────────────────────────┘
#                      └─ add ─ convert ─ y
#                          └─ broadcast ─ shift = beta - mean * scale
#
# It becomes two passes over `x`; what is done to vectors stays as it is between them:
#
#   norm     x                      -> sum(x), sum(x * x)   from which mean and var follow
#   norm     x, scale, shift        -> y                    vertices multiply and add, float16
#
# and its gradient two more, where `a` and `b` are vectors. It centres `x` again, so that nothing
# is kept of the size of `x` but `x` itself, and nothing in float32:
#
#   norm     dy, x                  -> sum(dy), sum(dy * x)
#   norm     dy, x, scale, a, mean  -> dx = dy * scale + (x - mean) * a + b
#
# A layer normalization is the same over the other axis; its factor is the product of two
# broadcasts, the root of each row and the gamma of each column. A softmax
#
#   x ─┬─ reduce maximum ─ broadcast ─┐
#      └─ subtract ───────────────────┘
#            └─ exponential ─┬─ reduce add ─ broadcast ─┐
#                            └─ divide ─────────────────┘─ y
#
# becomes three passes, and an operation on vectors between them:
#
#   softmax      x                  -> maximum
#   softmax      x, maximum         -> e = exp(x - maximum), sum(e)
#   elementwise  sum(e)             -> reciprocals, one of each row
#   softmax      e, reciprocals     -> y: multiplied, where XLA divides each element

# What their expressions are made of besides conversions and broadcasts:
_ARITHMETIC = frozenset(
    ["add", "divide", "exponential", "multiply", "negate", "reduce", "rsqrt", "sqrt", "subtract"]
)
# Families that are there only for those who read them: within these, they cost nothing.
_MERE_OPERANDS = frozenset(["broadcast", "cast", "elementwise"])


def fuse_normalizations(program: FlatProgram) -> FlatProgram:
    """Replaces single operations of normalizations and softmax by popnn's vertices.

    A layer is recognised by its structure: a tensor is multiplied by a reciprocal square root
    that was broadcast to its size, or is the exponent of its difference to its maximum. What
    else the layer and its gradient do to that tensor, its result and the gradient of that
    belongs to it. A layer that does anything else with a tensor of that size stays as it is.
    """
    reader = _Reader(program)
    removed: set[int] = set()
    made: dict[int, list[ComputeSet]] = defaultdict(list)
    for layer in reader.layers():
        found = _Layer.of(reader, layer)
        for position, one in () if found is None else found.compute_sets():
            made[position].append(one)
        removed.update(() if found is None else found.members)
    compute_sets: list[ComputeSet] = []
    # A pass stands where its first result was made, by when all that it reads is there.
    for position, one in enumerate(program.compute_sets):
        compute_sets += made.get(position, ())
        if position not in removed:
            compute_sets.append(one)
    compute_sets = _without_unread(compute_sets, reader)
    values = {**program.values, **{v.name: v for one in compute_sets for v in one.writes}}
    return replace(program, compute_sets=tuple(compute_sets), values=values)


def _without_unread(compute_sets: Sequence[ComputeSet], reader: "_Reader") -> list[ComputeSet]:
    """Leaves out vectors' broadcasts and the like that nobody reads but what was replaced."""
    reads = Counter(name for one in compute_sets for name in dict.fromkeys(one.reads))
    kept = []
    for one in reversed(compute_sets):
        names = [value.name for value in one.writes]
        # What nobody read before either is no leftover of this pass: it stays.
        if one.family in _MERE_OPERANDS and all(
            reader.is_read(name) and not reads[name] for name in names
        ):
            reads.subtract(set(one.reads))
        else:
            kept.append(one)
    return kept[::-1]


class _Reader:
    """A program, and who makes and reads its values."""

    def __init__(self, program: FlatProgram):
        self.sets = program.compute_sets
        self.values = program.values
        self.made = {v.name: k for k, one in enumerate(self.sets) for v in one.writes}
        self._readers = defaultdict(set)
        for position, one in enumerate(self.sets):
            for name in one.reads:
                self._readers[name].add(position)
        # Values that loops carry have a place of their own, so they are needed as much as
        # results are.
        in_place = program.in_place
        self._results = {*program.results, *in_place, *in_place.values(), *program.checkpoints}

    def layers(self) -> Iterable[list[int]]:
        """Returns the positions of each layer's compute sets; those of no layer are left out."""
        layers = defaultdict(list)
        for position, one in enumerate(self.sets):
            # Only what runs together, and as often, can be one pass.
            if one.layer and len(one.writes) == 1:
                layers[one.layer, one.repeat, one.stage, one.shard, one.weight_update].append(
                    position
                )
        return layers.values()

    def size(self, name: str) -> int:
        return num_elements(self.values[name].spec)

    def kind(self, name: str) -> str:
        """Returns the operation that makes a value; empty if none does."""
        made = self.made.get(name)
        return "" if made is None else self.sets[made].ops[-1].kind

    def operand(self, name: str, position: int = 0) -> str:
        return self.sets[self.made[name]].reads[position]

    def is_tensor(self, name: str) -> bool:
        """Whether a value is more than a vector that was broadcast."""
        return self.kind(name) != "broadcast"

    def is_read(self, name: str) -> bool:
        """Whether compute sets read a value, and nobody else needs it."""
        return bool(self._readers[name]) and name not in self._results

    def halves(self, name: str) -> str:
        """Returns what a value was before float32 was made of it, if it was float16."""
        made = self.made.get(name)
        if made is None or not widens_halves(self.sets[made]):
            return name
        return self.sets[made].reads[0]

    def is_read_outside(self, name: str, members: set[int]) -> bool:
        return name in self._results or not self._readers[name] <= members

    def converted_from(self, name: str) -> str:
        while self.kind(name) == "convert":
            name = self.operand(name)
        return name


def _anchor(reader: _Reader, positions: Sequence[int]) -> tuple[str, str] | None:
    """Returns a layer's family and the tensor that it normalizes; `None` if not just one."""
    scales: dict[str, int] = {}  # made of a reciprocal square root, with that one's size
    found = set()
    centred: dict[str, str] = {}  # of a tensor and a vector, with the tensor
    for position in positions:
        one = reader.sets[position]
        name, kind = one.writes[0].name, one.ops[-1].kind
        scaled = [scales[other] for other in one.reads if other in scales]
        if kind == "rsqrt":
            scales[name] = reader.size(name)
        elif kind == "exponential" and _is_softmax(reader, one.reads[0]):
            found.add(("softmax", reader.converted_from(reader.operand(one.reads[0]))))
        elif scaled and kind in ("broadcast", "convert", "multiply"):
            tensors = [other for other in one.reads if other not in scales]
            # Still a factor: a vector times gamma, or its broadcast, also by the factor of other
            # axes.
            if reader.size(name) == min(scaled) or not any(map(reader.is_tensor, tensors)):
                scales[name] = min(scaled)
            # A factor of the tensor's size meets the tensor, or what is left of it without its
            # mean. Frameworks convert that to float32 first: the pass reads what it was before.
            elif kind == "multiply" and reader.size(tensors[0]) == reader.size(name):
                tensor = reader.converted_from(tensors[0])
                found.add(("norm", centred.get(tensor, tensor)))
        elif kind == "subtract" and not reader.is_tensor(one.reads[1]):
            centred[name] = reader.converted_from(one.reads[0])
    # With two such tensors in one layer, nothing says which operation belongs to which.
    return found.pop() if len(found) == 1 else None


def _is_softmax(reader: _Reader, exponent: str) -> bool:
    """Whether an exponent is the difference of a tensor to its own maximum."""
    if reader.kind(exponent) != "subtract":
        return False
    highest = reader.operand(exponent, 1)
    while reader.kind(highest) in ("broadcast", "convert"):
        highest = reader.operand(highest)
    made = reader.made.get(highest)
    # Frameworks subtract the maximum so that exponents do not overflow; an exponential without
    # one is an activation function, and stays an elementwise operation.
    return (
        made is not None
        and reader.sets[made].ops[-1].attributes.get("operation") == "maximum"
        and reader.size(highest) < reader.size(exponent)
    )


@dataclass
class _Part:
    """Operations of a layer in one direction.

    Args:
        members: Positions of the operations that work on the whole tensor.
        inputs: The tensors that come from elsewhere.
    """

    members: list[int] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    output: str | None = None


@dataclass
class _Phase:
    """One pass over the tensor, at a position of the program.

    Args:
        reads: The names that it takes, as keys in order.
        divisors: Vectors whose reciprocals it takes, each with a division by it.
    """

    position: int
    ops: list[Op] = field(default_factory=list)
    reads: dict[str, None] = field(default_factory=dict)
    divisors: dict[str, ComputeSet] = field(default_factory=dict)
    writes: list[Value] = field(default_factory=list)
    flops: int = 0


# Tensors that can be read, with the pass that makes them, if one of these does.
_There = dict[str, _Phase | None]


class _Layer:
    """A normalization or softmax with its gradient, and the passes that these become."""

    def __init__(self, reader: _Reader, family: str, source: str):
        self._reader = reader
        self._family = family
        self._source = source
        self._size = reader.size(source)
        self._parts: list[_Part] = []
        self._by_position: set[int] = set()
        self._axes_of: dict[str, frozenset[int] | None] = {}
        self._reciprocals: dict[str, Value] = {}  # by vector
        self.members: set[int] = set()  # that its passes replace

    @classmethod
    def of(cls, reader: _Reader, positions: Sequence[int]) -> "_Layer | None":
        """Returns the layer of these compute sets; `None` if it is another kind of layer."""
        forward = [k for k in positions if not reader.sets[k].backward]
        anchor = _anchor(reader, forward)
        if anchor is None:
            return None
        layer = cls(reader, *anchor)
        # The forward part knows its input alone; the gradient takes one more tensor, that of
        # `y`.
        layer._parts.append(layer._part(forward, spare=0))
        layer._parts.append(layer._part([k for k in positions if reader.sets[k].backward], spare=1))
        return layer if layer._finish() else None

    # -- what belongs to it ----------------------------------------------------

    def _part(self, positions: Sequence[int], *, spare: int) -> _Part:
        """Collects what works on known tensors, and on as many others as may be spared."""
        reader, part = self._reader, _Part(inputs=[self._source])
        known = {self._source, *(self._made(k) for p in self._parts for k in p.members)}
        for position in positions:
            one = reader.sets[position]
            full = [name for name in one.reads if reader.size(name) == self._size]
            tensors = dict.fromkeys(filter(reader.is_tensor, full))
            new = [name for name in tensors if name not in known]
            if len(new) > spare or not self._belongs(one, full):
                continue
            spare -= len(new)
            # Another layer can have asked for the same conversion; this one reads the halves too.
            halves = list(map(reader.halves, new))
            part.inputs += halves
            known.update([*new, *halves])
            part.members.append(position)
            known.add(self._made(position))
        return part

    def _belongs(self, one: ComputeSet, full: Sequence[str]) -> bool:
        kind, size = one.ops[-1].kind, num_elements(one.writes[0].spec)
        if kind == "reduce":
            return full == [one.reads[0]] and size < self._size
        if kind == "broadcast":
            return size == self._size and not full
        return size == self._size and bool(full) and kind in (_ARITHMETIC | {"convert"})

    def _made(self, position: int) -> str:
        return self._reader.sets[position].writes[0].name

    def _finish(self) -> bool:
        """Finds the results; returns whether there is at most one tensor in each direction."""
        self._by_position = {k for part in self._parts for k in part.members}
        read_outside = {
            k
            for k in self._by_position
            if self._reader.size(self._made(k)) == self._size
            and self._reader.is_read_outside(self._made(k), self._by_position)
        }
        shared = {k for k in read_outside if self._is_shared(self._made(k))}
        for part in self._parts:
            outputs = [k for k in part.members if k in read_outside - shared]
            # popnn's vertices have one result of the tensor's size: what needs two stays as it
            # was.
            if len(outputs) > 1:
                return False
            part.output = self._made(outputs[0]) if outputs else None
        self.members = self._by_position - self._with_operands(shared)
        return self._parts[0].output is not None

    def _is_shared(self, name: str) -> bool:
        """Whether others can have asked for a tensor too: a vector's broadcast, an input's cast."""
        # `deduplicate` has made one of what several layers ask for. It stays for them, and the
        # layer computes it again within its passes, where it is free.
        inputs = {name for part in self._parts for name in part.inputs}
        return self._axes(name) is not None or self._reader.converted_from(name) in inputs

    def _with_operands(self, positions: Iterable[int]) -> set[int]:
        """Returns operations, and those that make what they read."""
        found: set[int] = set()
        pending = list(positions)
        while pending:
            position = pending.pop()
            if position in self._by_position - found:
                found.add(position)
                made = self._reader.made
                reads = self._reader.sets[position].reads
                pending += [made[name] for name in reads if name in made]
        return found

    # -- its passes ------------------------------------------------------------

    def compute_sets(self) -> Iterable[tuple[int, ComputeSet]]:
        """Yields the passes over the tensor, each with the position before which it takes place."""
        for part in self._parts:
            for phase in self._phases(part):
                for vector, division in phase.divisors.items():
                    # The layer and its gradient may divide by the same vector.
                    if vector not in self._reciprocals:
                        yield phase.position, self._inverted(vector, division)
                yield phase.position, self._compute_set(phase)

    def _phases(self, part: _Part) -> list[_Phase]:
        phases: list[_Phase] = []
        there: _There = dict.fromkeys(part.inputs)
        if part is not self._parts[0]:
            there.setdefault(self._parts[0].output or "", None)
        for position in part.members:
            if self._reader.sets[position].ops[-1].kind == "reduce":
                self._reduce(position, phases, there)
        if part.output is not None and part.output not in there:
            phase = _Phase(self._reader.made[part.output])
            self._express(part.output, phase, there)
            phases.append(phase)
            there[part.output] = phase
        self._keep(part.output, phases, there)
        return phases

    def _keep(self, output: str | None, phases: Sequence[_Phase], there: _There) -> None:
        """Lets each pass write the tensors that later ones and others read."""
        needed = {name: there[name] for phase in phases for name in phase.reads if name in there}
        if output is not None:
            needed[output] = there[output]
        # popnn's vertices write the dtype that the tensor came in, whatever was converted
        # between.
        dtype = self._reader.values[self._source].spec.dtype
        for name, phase in needed.items():
            if phase is not None:
                value = self._reader.values[name]
                phase.writes.append(replace(value, spec=replace(value.spec, dtype=dtype)))

    def _reduce(self, position: int, phases: list[_Phase], there: _There) -> None:
        """Adds a reduction to the last pass if what it needs is there by then."""
        one = self._reader.sets[position]
        phase = _Phase(position)
        found = dict(there)
        self._express(self._summand(one, phases), phase, found)
        phase.ops.append(one.ops[-1])
        phase.flops += one.flops
        phase.writes.append(one.writes[0])
        # popops' reduceMany takes several sums in one pass, so the tensor is read once for all.
        if phases and phases[-1].writes and self._is_there(phase, phases[-1].position, there):
            together = phases[-1]
            together.ops += phase.ops
            together.reads.update({r: None for r in phase.reads if there.get(r) is not together})
            together.divisors.update(phase.divisors)
            together.writes += phase.writes
            together.flops += phase.flops
            phase = together
        else:
            phases.append(phase)
        there.update((name, phase) for name in found if name not in there)

    def _summand(self, one: ComputeSet, phases: Sequence[_Phase]) -> str:
        """Returns what is reduced: of a square the root, if need be without its mean."""
        reader, name = self._reader, one.reads[0]
        if not self._is_square(name):
            return name
        # The sum of squares of the tensor itself is taken in the same pass as its sum, and the
        # square of the mean subtracted from the result.
        root = reader.operand(name)
        centred = reader.kind(root) == "subtract" and reader.kind(reader.operand(root, 1)) == (
            "broadcast"
        )
        sums = [op for phase in phases for op in phase.ops if op.kind == "reduce"]
        # Without a sum over the same axes, nothing could give the mean that is subtracted later,
        # as where statistics come from elsewhere.
        same = [
            op for op in sums if op.attributes["dimensions"] == one.ops[-1].attributes["dimensions"]
        ]
        return reader.operand(root) if centred and same else root

    def _is_square(self, name: str) -> bool:
        made = self._reader.made.get(name)
        if made not in self._by_position:
            return False
        one = self._reader.sets[made]
        return one.ops[-1].kind == "multiply" and one.reads[0] == one.reads[1]

    def _is_there(self, phase: _Phase, position: int, there: _There) -> bool:
        made = self._reader.made
        return all(made.get(name, -1) < position for name in phase.reads if there.get(name) is None)

    def _express(self, name: str, phase: _Phase, there: _There) -> None:
        """Adds to a pass what makes a tensor out of others that are there."""
        pending, order = [name], []
        while pending:
            current = pending.pop()
            if current in there:
                if there[current] is not phase:
                    phase.reads[current] = None
                continue
            position = self._reader.made[current]
            one = self._reader.sets[position]
            kind = one.ops[-1].kind
            # Both are free within a vertex: it takes the vector, or the halves.
            if kind in ("broadcast", "convert"):
                pending += [r for r in one.reads if self._reader.size(r) == self._size]
                phase.reads.update((r, None) for r in one.reads if r not in pending)
                continue
            pending += reversed(one.reads)
            # What is computed of broadcasts alone costs as much as its vector, next to nothing.
            if self._axes(current) is None:
                there[current] = phase
                order.append(position)
        # In the order of tracing, as vertices work on the tensor in place one after the other.
        for position in sorted(set(order)):
            one = self._reader.sets[position]
            phase.ops.append(self._vertex_of(one))
            phase.divisors.update(dict.fromkeys(self._divisors_of(one), one))
            phase.flops += one.flops

    def _axes(self, name: str) -> frozenset[int] | None:
        """Returns along which axes a tensor is the broadcast of a vector; `None` if it is none."""
        if name not in self._axes_of:
            self._axes_of[name] = self._find_axes(name)
        return self._axes_of[name]

    def _find_axes(self, name: str) -> frozenset[int] | None:
        position = self._reader.made.get(name)
        if position is None:
            return None
        one = self._reader.sets[position]
        if one.ops[-1].kind == "broadcast":
            small = num_elements(one.operands[0]) == 1
            return frozenset(() if small else one.ops[-1].attributes["dimensions"])
        if position not in self._by_position or one.ops[-1].kind == "reduce":
            return None
        axes = {self._axes(operand) for operand in one.reads}
        # Vectors along different axes make a matrix: that is work on the whole tensor.
        if None in axes or len(axes - {frozenset()}) > 1:
            return None
        return frozenset().union(*(found for found in axes if found is not None))

    def _vertex_of(self, one: ComputeSet) -> Op:
        """Returns a vertex's operation: a division by a vector multiplies by reciprocals."""
        op = one.ops[-1]
        if op.kind == "divide" and self._axes(one.reads[1]) is not None:
            return replace(op, kind="multiply")
        return op

    def _divisors_of(self, one: ComputeSet) -> Iterable[str]:
        """Yields the vector that divides a tensor, if only the run makes it known."""
        if one.ops[-1].kind != "divide":
            return
        name = one.reads[1]
        while self._reader.kind(name) in ("broadcast", "convert"):
            name = self._reader.operand(name)
        if self._reader.size(name) < self._size and self._reader.values[name].role != "constant":
            yield name

    def _inverted(self, vector: str, division: ComputeSet) -> ComputeSet:
        """Returns what computes a vector's reciprocals, which are fewer than quotients."""
        # popnn's stable softmax does so. XLA's own form divides every element, which takes 10
        # cycles for 2 floats and 21 for 4 halves, where a multiplication takes one.
        spec, name = self._reader.values[vector].spec, f"{division.name}/reciprocals"
        made = self._reciprocals[vector] = Value(name, spec)
        return replace(
            division,
            name=name,
            ops=(replace(division.ops[-1], name=name, outputs=(spec,)),),
            operands=(spec, spec),
            reads=(vector,),
            writes=(made,),
            flops=num_elements(spec),
            bytes_read=spec.nbytes,
            bytes_written=spec.nbytes,
        )

    def _compute_set(self, phase: _Phase) -> ComputeSet:
        reader = self._reader
        inverted = {name: self._reciprocals[name] for name in phase.divisors}
        reads = sorted(phase.reads, key=lambda name: reader.size(name) != self._size)
        last = reader.sets[reader.made[phase.writes[0].name]]
        return replace(
            last,
            family=self._family,
            ops=tuple(phase.ops),
            operands=tuple(reader.values[name].spec for name in reads),
            reads=tuple(inverted[name].name if name in inverted else name for name in reads),
            writes=tuple(phase.writes),
            flops=phase.flops,
            bytes_read=sum(reader.values[name].spec.nbytes for name in reads),
            bytes_written=sum(value.spec.nbytes for value in phase.writes),
        )
