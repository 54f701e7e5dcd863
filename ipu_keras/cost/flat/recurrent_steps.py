"""Multiplies in the steps of recurrent layers, as popnn does.

A host computes products with inputs and gradients of all steps at once, so that is what is traced.
popnn computes them step by step unless it is told otherwise (`preCalcWeights`): its temporaries are
those of one step, and what one step adds together is one product.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ipu_keras.cost.flat.compute_sets import (
    ComputeSet,
    FlatProgram,
    LoopPart,
    Value,
    widens_halves,
)
from ipu_keras.ir import Op, TensorSpec, num_elements

# Operations of popnn that are recurrent, by their names in reports.
RECURRENT = frozenset(
    {"PopnnAUGRU", "PopnnDynamicGRU", "PopnnDynamicLSTM", "PopnnGRU", "PopnnLSTM"}
)


def with_products_in_steps(program: FlatProgram) -> FlatProgram:
    """Multiplies what belongs to one step in that step, of a body before views are taken.

    - Halves are multiplied as such, in place of numbers that were widened so that their sums are
      in float32.
    - The inputs' product joins the state's product that it is added to; where it is added to none,
      it is one of its own in the step.
    - Products after the loop become loops over the steps, which write what they make for each or
      add it up. What is added up of equal gradients is one product.
    """
    steps = _num_steps(program)
    if steps is None:
        return program
    body = _StepProducts(program, steps)
    body.multiply_halves()
    body.take_parts_of_weights()
    body.join_inputs()
    body.split_products()
    return body.program()


def _num_steps(program: FlatProgram) -> int | None:
    """Returns how often all loops of a body run; `None` without loops, or if that differs."""
    counts = {one.repeat for one in program.compute_sets if one.loops}
    outside = {one.repeat for one in program.compute_sets if not one.loops}
    return counts.pop() if len(counts) == 1 and outside <= {1} and counts != {1} else None


@dataclass(frozen=True)
class _Inputs:
    """The product of all steps' inputs, what is added to it, and the slice that a step takes."""

    product: ComputeSet
    bias: str | None
    between: tuple[ComputeSet, ...]
    slice: ComputeSet


@dataclass(frozen=True)
class _Addition:
    """Where a step adds a part of its inputs' product to that of its state.

    Args:
        part: The slice of the inputs' product, if not all of it is added.
        added: Where both are added up, once a step.
        product: That of the state.
    """

    part: ComputeSet | None
    added: ComputeSet
    product: ComputeSet


class _StepProducts:
    """A body whose products are being moved."""

    def __init__(self, program: FlatProgram, steps: int):
        self._program = program
        self._steps = steps
        self._sets = list(program.compute_sets)
        self._values = dict(program.values)
        self._in_place = dict(program.in_place)
        self._index()

    def program(self) -> FlatProgram:
        used = {name for one in self._sets for name in one.reads}
        used.update(value.name for one in self._sets for value in one.writes)
        used.update(self._program.results)
        values = {
            name: value
            for name, value in self._values.items()
            if name in used or value.role != "activation"
        }
        return replace(
            self._program, compute_sets=tuple(self._sets), values=values, in_place=self._in_place
        )

    def _index(self) -> None:
        self._made = {value.name: one for one in self._sets for value in one.writes}
        self._readers: dict[str, list[ComputeSet]] = defaultdict(list)
        for one in self._sets:
            for name in dict.fromkeys(one.reads):
                self._readers[name].append(one)
        self._kept = {*self._program.results, *self._in_place, *self._in_place.values()}

    def _change(self, changed: Callable[[ComputeSet], Iterable[ComputeSet]]) -> None:
        """Puts other compute sets in the place of each, and none for those that are dropped."""
        self._sets = [new for one in self._sets for new in changed(one)]
        self._values.update((value.name, value) for one in self._sets for value in one.writes)
        self._index()

    def _only_reader(self, name: str) -> ComputeSet | None:
        readers = self._readers[name]
        return readers[0] if len(readers) == 1 and name not in self._kept else None

    # -- halves ----------------------------------------------------------------------------------

    def multiply_halves(self) -> None:
        """Lets products take halves that were widened for them, and sum them in float32."""
        narrow = self._widened_for_products()
        names = {name for name, one in narrow.items() if widens_halves(one)}
        sources = {name: narrow[name].reads[0] for name in names}

        def changed(one: ComputeSet) -> list[ComputeSet]:
            made = one.writes[0].name if len(one.writes) == 1 else ""
            if made in names or made in narrowed_after:
                return []
            reads = tuple(sources.get(name, name) for name in one.reads)
            if made in narrow:
                spec = replace(one.writes[0].spec, dtype="float16")
                return [_as_halves(replace(one, reads=reads), spec)]
            if one.family == "dot" and narrow.keys() >= set(one.reads):
                after = ends.get(made)
                writes = one.writes if after is None else after.writes
                spec = writes[0].spec
                op = replace(one.ops[-1], partials_dtype="float32")
                one = replace(one, ops=(op,), reads=reads, writes=writes)
                return [_as_halves(one, TensorSpec(one.ops[-1].outputs[0].shape, spec.dtype))]
            return [one]

        ends = {
            one.writes[0].name: after
            for one in self._sets
            if one.family == "dot"
            and narrow.keys() >= set(one.reads)
            and (after := self._only_reader(one.writes[0].name)) is not None
            and after.family == "cast"
            and after.writes[0].spec.dtype == "float16"
        }
        narrowed_after = {after.writes[0].name for after in ends.values()}
        self._change(changed)

    def _widened_for_products(self) -> dict[str, ComputeSet]:
        """Returns what makes float32 of halves, and views of it, that only products take."""
        wide: dict[str, ComputeSet] = {}
        for one in self._sets:
            if widens_halves(one) or (one.ops[-1].kind in _VIEWS and one.reads[0] in wide):
                wide[one.writes[0].name] = one
        before = None
        while wide.keys() != before:
            before = set(wide)
            wide = {name: one for name, one in wide.items() if self._serves_products(name, wide)}
        return wide

    def _serves_products(self, name: str, wide: dict[str, ComputeSet]) -> bool:
        one = wide[name]
        return (
            name not in self._kept
            and (widens_halves(one) or one.reads[0] in wide)
            and all(
                reader.writes[0].name in wide
                if reader.ops[-1].kind in _VIEWS
                else reader.family == "dot" and wide.keys() >= set(reader.reads)
                for reader in self._readers[name]
            )
        )

    # -- weights ---------------------------------------------------------------------------------

    def take_parts_of_weights(self) -> None:
        """Lets products take parts of weights where these are, however often they run."""
        parts = {
            one.writes[0].name: one.reads[0]
            for one in self._sets
            if one.ops[-1].kind == "slice"
            and self._values[one.reads[0]].role == "variable"
            and one.writes[0].name not in self._kept
            and all(map(_is_plain_product, self._readers[one.writes[0].name]))
        }
        self._change(
            lambda one: (
                []
                if one.writes and one.writes[0].name in parts
                else [replace(one, reads=tuple(parts.get(name, name) for name in one.reads))]
            )
        )

    # -- inputs ----------------------------------------------------------------------------------

    def join_inputs(self) -> None:
        """Moves products of inputs into the steps that take a slice of them."""
        for one in [one for one in self._sets if _is_plain_product(one) and not one.loops]:
            inputs = self._inputs_of(one)
            if inputs is None:
                continue
            additions = self._additions_to(inputs.slice)
            if additions:
                self._join(inputs, additions)
            else:
                self._move(inputs)

    def _inputs_of(self, product: ComputeSet) -> _Inputs | None:
        bias: str | None = None
        between: list[ComputeSet] = []
        one = self._only_reader(product.writes[0].name)
        while one is not None and one.ops[-1].kind == "add" and not one.loops:
            before = between[-1] if between else product
            others = [name for name in one.reads if name != before.writes[0].name]
            made = self._made.get(others[0]) if others else None
            if bias is not None or made is None or not _repeats_vector(made):
                return None
            bias = made.reads[0]
            between.append(one)
            one = self._only_reader(one.writes[0].name)
        if one is None or not self._takes_step(one):
            return None
        return _Inputs(product, bias, tuple(between), one)

    def _takes_step(self, one: ComputeSet) -> bool:
        """Whether a compute set of a step takes what is there for that step, of all steps."""
        return (
            bool(one.loops)
            and one.ops[-1].kind == "dynamic-slice"
            and len(one.operands[0].shape) == 3
            and one.operands[0].shape[0] == self._steps
            and one.ops[-1].attributes["slice_sizes"] == (1, *one.operands[0].shape[1:])
        )

    def _additions_to(self, step: ComputeSet) -> list[_Addition]:
        """Returns where products of the state are added to a step's slice; none if not to all."""
        found = []
        for reader in self._readers[step.writes[0].name]:
            part = reader if reader.ops[-1].kind == "slice" else None
            added = reader if part is None else self._only_reader(part.writes[0].name)
            if added is None or added.ops[-1].kind != "add" or added.loops != step.loops:
                return []
            source = step if part is None else part
            others = [name for name in added.reads if name != source.writes[0].name]
            product = self._made.get(others[0]) if others else None
            if (
                product is None
                or not _is_plain_product(product)
                or product.loops != step.loops
                or self._only_reader(others[0]) is not added
            ):
                return []
            found.append(_Addition(part, added, product))
        return found

    def _join(self, inputs: _Inputs, additions: Sequence[_Addition]) -> None:
        """Lets products of the state take a step's inputs as well."""
        source, matrix = inputs.product.reads
        step = self._step_of(source, inputs.slice)
        (spec,) = (value.spec for value in step.writes)
        joined: dict[str, ComputeSet] = {}
        biases: dict[str, list[ComputeSet]] = {}
        for one in additions:
            rows = one.product.operands[0]
            spec_of_sum = one.added.writes[0].spec
            inner = spec.shape[-1] + rows.shape[-1]
            columns = spec_of_sum.shape[-1]
            product = _product(
                one.product,
                (
                    TensorSpec((rows.shape[0], inner), rows.dtype),
                    TensorSpec((inner, columns), rows.dtype),
                ),
                (1, 0),
                reads=(step.writes[0].name, one.product.reads[0], matrix, one.product.reads[1]),
                writes=one.product.writes if inputs.bias is not None else one.added.writes,
            )
            joined[one.product.name] = product
            if inputs.bias is not None:
                taken = one.part if one.part is not None else inputs.slice
                biases[taken.name] = [_repeated(taken, inputs.bias, self._values)]
        dropped = {one.name for one in (inputs.product, inputs.slice, *inputs.between)}
        dropped.update(one.part.name for one in additions if one.part is not None)
        if inputs.bias is None:
            dropped.update(one.added.name for one in additions)
        places = {one.name: k for k, one in enumerate(self._sets)}
        late = [n for n in joined if places[n] < places[inputs.slice.name]]

        def changed(one: ComputeSet) -> list[ComputeSet]:
            new = list(biases.get(one.name, ()))
            if one.name == inputs.slice.name:
                # A step's place is known here, and not where the state's product stood.
                new += [step, *(joined[name] for name in late)]
            elif one.name in joined and one.name not in late:
                new.append(joined[one.name])
            elif one.name not in dropped and one.name not in joined:
                new.append(one)
            return new

        self._change(changed)

    def _move(self, inputs: _Inputs) -> None:
        """Makes a product of the inputs one of each step."""
        source, matrix = inputs.product.reads
        step = self._step_of(source, inputs.slice)
        taken = inputs.slice.writes[0]
        rows = TensorSpec(step.writes[0].spec.shape[1:], step.writes[0].spec.dtype)
        end = taken if inputs.bias is None else self._new(f"{inputs.product.name}/step", taken.spec)
        product = _product(
            inputs.product,
            (rows, inputs.product.operands[1]),
            (1, inputs.product.ops[-1].attributes["rhs_contracting_dimensions"][0]),
            reads=(step.writes[0].name, matrix),
            writes=(end,),
        )
        new = [step, _placed(product, inputs.slice)]
        if inputs.bias is not None:
            vector = replace(
                inputs.slice, writes=(self._new(f"{inputs.product.name}/bias", taken.spec),)
            )
            repeated = _repeated(vector, inputs.bias, self._values)
            (added,) = inputs.between
            specs = (taken.spec, taken.spec)
            new += [
                repeated,
                _sized(
                    _placed(added, inputs.slice),
                    specs,
                    reads=(end.name, repeated.writes[0].name),
                    writes=(taken,),
                ),
            ]
        dropped = {inputs.product.name, *(one.name for one in inputs.between)}
        self._change(
            lambda one: (
                new if one.name == inputs.slice.name else [] if one.name in dropped else [one]
            )
        )

    def _step_of(self, source: str, like: ComputeSet) -> ComputeSet:
        """Returns what takes a step's part of all steps' values, where and as another does."""
        batch = like.operands[0].shape[1]
        whole = self._values[source].spec
        width = num_elements(whole) // (self._steps * batch)
        return _step_slice(like, source, TensorSpec((self._steps, batch, width), whole.dtype))

    # -- products behind the loop ----------------------------------------------------------------

    def split_products(self) -> None:
        """Makes loops of the products of all steps that are left."""
        sums: dict[str, list[ComputeSet]] = defaultdict(list)
        rows = []
        for one in self._sets:
            if one.loops or not _is_plain_product(one):
                continue
            attributes = one.ops[-1].attributes
            contracted = attributes["lhs_contracting_dimensions"]
            if contracted == (1,) and self._has_steps(one.reads[0], one.operands[0]):
                rows.append(one)
            elif (contracted, attributes["rhs_contracting_dimensions"]) == ((0,), (0,)) and all(
                self._has_steps(name, spec)
                for name, spec in zip(one.reads, one.operands, strict=True)
            ):
                sums[one.reads[1]].append(one)
        made = {one.name: self._rows_by_step(one) for one in rows}
        for members in sums.values():
            # All that it reads is there when the last of them is.
            made.update((one.name, []) for one in members[:-1])
            made[members[-1].name] = self._sums_by_step(members)
        self._change(lambda one: made.get(one.name, [one]))

    def _has_steps(self, name: str, spec: TensorSpec) -> bool:
        shape = self._values[name].spec.shape
        return len(shape) == 3 and shape[0] == self._steps and spec.shape[0] == math.prod(shape[:2])

    def _rows_by_step(self, product: ComputeSet) -> list[ComputeSet]:
        """Returns a loop that multiplies the rows of each step."""
        (result,) = product.writes
        loop = self._loop_for(product)
        step = self._step_of_all(product.reads[0], loop)
        width = result.spec.shape[-1]
        rows = TensorSpec(step.writes[0].spec.shape[1:], step.writes[0].spec.dtype)
        part = self._new(
            f"{product.name}/step", TensorSpec((rows.shape[0], width), result.spec.dtype)
        )
        multiplied = _product(
            loop,
            (rows, product.operands[1]),
            (1, product.ops[-1].attributes["rhs_contracting_dimensions"][0]),
            reads=(step.writes[0].name, product.reads[1]),
            writes=(part,),
        )
        before = self._zeros_for(product, result)
        operands = (result.spec, part.spec)
        op = Op(f"{product.name}/write", "dynamic-update-slice", (result.spec,))
        written = replace(
            _sized(loop, operands, reads=(before.writes[0].name, part.name), writes=(result,)),
            name=op.name,
            ops=(op,),
            family="dynamic slice",
            flops=0,
        )
        return [before, step, multiplied, written]

    def _sums_by_step(self, products: Sequence[ComputeSet]) -> list[ComputeSet]:
        """Returns a loop that adds up the products of each step, which share an operand."""
        first, loop = products[0], self._loop_for(products[0])
        sources = [*dict.fromkeys(one.reads[0] for one in products), first.reads[1]]
        steps = {name: self._step_of_all(name, loop) for name in dict.fromkeys(sources)}
        specs = {name: one.writes[0].spec for name, one in steps.items()}
        batch, width = specs[first.reads[1]].shape[1:]
        heights = [specs[one.reads[0]].shape[-1] for one in products]
        before = [self._zeros_for(one, one.writes[0]) for one in products]
        # Of what it adds to, a product takes the place: popnn's is `matMulAcc`.
        multiplied = _product(
            loop,
            (
                TensorSpec((batch, sum(heights)), specs[first.reads[0]].dtype),
                TensorSpec((batch, width), specs[first.reads[1]].dtype),
            ),
            (0, 0),
            reads=(
                *(steps[name].writes[0].name for name in dict.fromkeys(sources)),
                *(zeros.writes[0].name for zeros in before),
            ),
            writes=tuple(one.writes[0] for one in products),
        )
        return [*before, *steps.values(), multiplied]

    def _loop_for(self, product: ComputeSet) -> ComputeSet:
        """Returns a product as it would be in a loop of its own over the steps."""
        return replace(
            product,
            repeat=product.repeat * self._steps,
            loops=(LoopPart(f"{product.name}/steps"),),
        )

    def _step_of_all(self, source: str, loop: ComputeSet) -> ComputeSet:
        spec = self._values[source].spec
        op = Op(f"{loop.name}/{source}", "dynamic-slice", attributes={"slice_sizes": ()})
        like = replace(loop, ops=(op,), family="dynamic slice", reads=(source,), operands=(spec,))
        return _step_slice(like, source, spec)

    def _zeros_for(self, product: ComputeSet, result: Value) -> ComputeSet:
        """Returns what fills the memory that a loop writes its result to."""
        place = self._new(f"{result.name}/before", result.spec)
        self._in_place[result.name] = place.name
        zero = Value(f"{product.name}/zero", TensorSpec((), result.spec.dtype), "constant")
        self._values[zero.name] = zero
        op = Op(f"{product.name}/zeros", "broadcast", (result.spec,), attributes={"dimensions": ()})
        return replace(
            product,
            name=op.name,
            family="broadcast",
            ops=(op,),
            operands=(zero.spec,),
            reads=(zero.name,),
            writes=(place,),
            flops=0,
            bytes_read=zero.spec.nbytes,
            bytes_written=result.spec.nbytes,
        )

    def _new(self, name: str, spec: TensorSpec) -> Value:
        self._values[name] = Value(name, spec)
        return self._values[name]


# Operations that give products a part or another order of a matrix.
_VIEWS = frozenset({"slice", "transpose"})


def _is_plain_product(one: ComputeSet) -> bool:
    """Whether a compute set multiplies two matrices."""
    if one.family != "dot" or len(one.reads) != 2:
        return False
    contracted = one.ops[-1].attributes["lhs_contracting_dimensions"]
    return all(len(spec.shape) == 2 for spec in one.operands) and len(contracted) == 1


def _repeats_vector(one: ComputeSet) -> bool:
    """Whether a compute set broadcasts a vector along all axes but the last."""
    shape = one.writes[0].spec.shape
    return one.ops[-1].kind == "broadcast" and one.operands[0].shape == shape[-1:]


def _as_halves(one: ComputeSet, spec: TensorSpec) -> ComputeSet:
    """Returns a compute set that takes halves, with a result like this."""
    op = replace(one.ops[-1], outputs=(spec,))
    operands = tuple(replace(operand, dtype="float16") for operand in one.operands)
    writes = tuple(replace(v, spec=replace(v.spec, dtype=spec.dtype)) for v in one.writes)
    return _sized(replace(one, ops=(op,)), operands, reads=one.reads, writes=writes)


def _sized(one: ComputeSet, operands: Sequence[TensorSpec], **changes: Any) -> ComputeSet:
    """Returns a compute set with other operands and results, whose bytes it moves."""
    one = replace(one, operands=tuple(operands), **changes)
    op = one.ops[-1]
    if len(one.writes) == 1 and op.outputs:
        op = replace(op, outputs=(one.writes[0].spec,))
    return replace(
        one,
        ops=(*one.ops[:-1], op),
        bytes_read=sum(spec.nbytes for spec in operands),
        bytes_written=sum(value.spec.nbytes for value in one.writes),
    )


def _product(
    one: ComputeSet,
    operands: tuple[TensorSpec, TensorSpec],
    contracted: tuple[int, int],
    **changes: Any,
) -> ComputeSet:
    """Returns a product of other matrices over an axis of each, where another product is."""
    left, right = operands
    attributes = {
        **one.ops[-1].attributes,
        "lhs_contracting_dimensions": contracted[:1],
        "rhs_contracting_dimensions": contracted[1:],
    }
    op = replace(one.ops[-1], attributes=attributes)
    outputs = num_elements(left) // left.shape[contracted[0]] * right.shape[1 - contracted[1]]
    made = _sized(replace(one, ops=(op,)), operands, **changes)
    return replace(made, flops=2 * outputs * left.shape[contracted[0]])


def _placed(one: ComputeSet, like: ComputeSet) -> ComputeSet:
    """Returns a compute set that runs when and as often as another."""
    return replace(one, repeat=like.repeat, loops=like.loops, branches=like.branches)


def _step_slice(like: ComputeSet, source: str, spec: TensorSpec) -> ComputeSet:
    """Returns what takes one step of a value, where another compute set does."""
    made = TensorSpec((1, *spec.shape[1:]), spec.dtype)
    name = f"{like.name}/of {source}"
    op = replace(like.ops[-1], name=name, attributes={"slice_sizes": made.shape})
    operands = (spec, *like.operands[1:])
    one = replace(like, name=name, ops=(op,), flops=0)
    return _sized(one, operands, reads=(source, *like.reads[1:]), writes=(Value(name, made),))


def _repeated(taken: ComputeSet, vector: str, values: dict[str, Value]) -> ComputeSet:
    """Returns a broadcast of a vector, or of a part of it, to what a compute set made."""
    (result,) = taken.writes
    spec = TensorSpec(result.spec.shape[-1:], result.spec.dtype)
    axis = len(result.spec.shape) - 1
    name = f"{result.name}/repeated"
    op = Op(name, "broadcast", (result.spec,), attributes={"dimensions": (axis,)})
    one = replace(taken, name=name, ops=(op,), family="broadcast", flops=0)
    return _sized(one, (spec,), reads=(vector,), writes=(result,))
