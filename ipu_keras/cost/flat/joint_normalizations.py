"""Finds normalizations within operations of Poplar's libraries.

The gradient of one is an operation by itself, and reads the tensor that was normalized rather
than what the other made of it: which passes over the tensor both need is only seen together.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram, Value
from ipu_keras.cost.flat.fusion import deduplicate
from ipu_keras.cost.flat.normalizations import fuse_normalizations

_NORMALIZATIONS = frozenset({"norm", "softmax"})


def with_normalized_bodies(program: FlatProgram) -> FlatProgram:
    """Does `fuse_normalizations` for bodies, those of an operation and its gradient jointly."""
    sets = dict(enumerate(program.compute_sets))
    values = dict(program.values)
    users = Counter(name for one in sets.values() for name in dict.fromkeys(one.reads))
    users.update([*program.results, *program.checkpoints])
    done: dict[int, ComputeSet] = {}
    # popnn keeps the input, the mean and the reciprocal deviation, and whitens again in the
    # gradient. Each body for itself would write out whitened values as results, since it does
    # not see that the gradient could compute them.
    for forward, backward in _pairs(sets):
        joint = _Joint.of(sets[forward], sets[backward], users)
        if joint is not None:
            done[forward], done[backward] = joint.forward(), joint.backward()
            values.update((value.name, value) for value in done[forward].writes)
    compute_sets = (done.get(position) or _alone(one) for position, one in sets.items())
    return replace(program, compute_sets=tuple(compute_sets), values=values)


def _alone(one: ComputeSet) -> ComputeSet:
    if one.body is None:
        return one
    body = with_normalized_bodies(one.body)
    body = replace(body, compute_sets=_in_layer_of(one, body.compute_sets))
    return replace(one, body=fuse_normalizations(deduplicate(body)))


def _in_layer_of(call: ComputeSet, sets: Sequence[ComputeSet]) -> tuple[ComputeSet, ...]:
    """Puts what an operation consists of into one layer, so that it is recognised as a whole."""
    return tuple(replace(one, layer=call.layer or call.name) for one in sets)


def _pairs(sets: Mapping[int, ComputeSet]) -> Iterator[tuple[int, int]]:
    """Yields positions of operations, each with that of the gradient that reads its results."""
    makers: dict[str, int] = {}
    paired = set()
    for position, one in sets.items():
        if one.body is None:
            continue
        if one.backward:
            of_kind = [
                maker
                for maker in (makers[name] for name in one.reads if name in makers)
                if (sets[maker].family, sets[maker].layer) == (one.family, one.layer)
            ]
            # What reads the results of another operation besides is the gradient of the last.
            last = max(of_kind, default=None)
            if last is not None and last not in paired:
                paired.add(last)
                yield last, position
        else:
            makers.update((value.name, position) for value in one.writes)


@dataclass(frozen=True)
class _Joint:
    """An operation and its gradient (`calls`), and what both do as one program.

    Args:
        names: What the program around calls the operation's results.
    """

    calls: tuple[ComputeSet, ComputeSet]
    program: FlatProgram
    names: Mapping[str, str]

    @classmethod
    def of(
        cls, forward: ComputeSet, backward: ComputeSet, users: Mapping[str, int]
    ) -> "_Joint | None":
        """Returns both as one if there are passes that they can share, else `None`."""
        assert forward.body is not None, "only operations with a body are paired"
        inner = {
            value.name: result
            for value, result in zip(forward.writes, forward.body.results, strict=True)
        }
        # What only the gradient reads need not be a result: it may be computed again there.
        outside = [name for name in inner if users[name] > (name in backward.reads)]
        gradient = _renamed(backward, inner)
        both = FlatProgram(
            compute_sets=_in_layer_of(forward, forward.body.compute_sets + gradient.compute_sets),
            values={**gradient.values, **forward.body.values},
            results=(*(inner[name] for name in outside), *gradient.results),
            in_place={**forward.body.in_place, **gradient.in_place},
        )
        joint = fuse_normalizations(deduplicate(both))
        returned = joint.results[: len(outside)]
        names = {result: name for name, result in inner.items()}
        names.update(zip(returned, outside, strict=True))
        found = cls((forward, backward), joint, names)
        return found if found._is_whole(returned) else None

    def forward(self) -> ComputeSet:
        """Returns the operation, which now results in what its gradient reads."""
        sets = self._sets(backward=False)
        made = _made(sets)
        kept = [name for name in self.program.results if name in made]
        read = [name for one in self._sets(backward=True) for name in one.reads if name in made]
        results = tuple(dict.fromkeys([*kept, *read]))
        writes = tuple(Value(self._name(name), self.program.values[name].spec) for name in results)
        return self._call(self.calls[0], sets, results, writes)

    def backward(self) -> ComputeSet:
        sets = self._sets(backward=True)
        results = self.program.results[len(self.program.results) - len(self.calls[1].writes) :]
        return self._call(self.calls[1], sets, results, self.calls[1].writes)

    def _call(
        self,
        call: ComputeSet,
        sets: Sequence[ComputeSet],
        results: tuple[str, ...],
        writes: tuple[Value, ...],
    ) -> ComputeSet:
        made = _made(sets)
        taken = dict.fromkeys(name for one in sets for name in one.reads if name not in made)
        values = {name: self.program.values[name] for name in (*taken, *made)}
        for name in taken:
            if values[name].role == "activation":
                values[name] = replace(values[name], role="variable")
        in_place = {name: old for name, old in self.program.in_place.items() if name in made}
        body = FlatProgram(
            compute_sets=tuple(sets), values=values, results=results, in_place=in_place
        )
        return replace(
            call,
            reads=tuple(map(self._name, taken)),
            writes=writes,
            body=body,
            bytes_read=sum(values[name].spec.nbytes for name in taken),
            bytes_written=sum(value.spec.nbytes for value in writes),
        )

    def _sets(self, *, backward: bool) -> list[ComputeSet]:
        return [one for one in self.program.compute_sets if one.backward == backward]

    def _name(self, name: str) -> str:
        return self.names.get(name, name)

    def _is_whole(self, returned: Sequence[str]) -> bool:
        """Whether there is a normalization, and each part still makes what it returns."""
        forward, backward = self._sets(backward=False), self._sets(backward=True)
        gradient = self.program.results[len(returned) :]
        return (
            any(one.family in _NORMALIZATIONS for one in backward)
            # The last condition: the operation runs before the gradient and can read nothing of
            # it.
            and len(set(returned)) == len(returned)
            and set(returned) <= _made(forward).keys()
            and set(gradient) <= _made(backward).keys()
            and not any(name in _made(backward) for one in forward for name in one.reads)
        )


def _renamed(backward: ComputeSet, inner: Mapping[str, str]) -> FlatProgram:
    """Returns the body of a gradient, which reads values by their names within the operation."""
    body = backward.body
    assert body is not None, "only operations with a body are paired"
    return replace(
        body,
        compute_sets=tuple(
            replace(one, reads=tuple(inner.get(name, name) for name in one.reads))
            for one in body.compute_sets
        ),
        values={name: value for name, value in body.values.items() if name not in inner},
    )


def _made(sets: Sequence[ComputeSet]) -> dict[str, Value]:
    return {value.name: value for one in sets for value in one.writes}
