"""The order of a step's compute sets, and at which positions values are in memory."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram
from ipu_keras.cost.flat.control_flow import bodies_of
from ipu_keras.ir import num_elements


@dataclass(frozen=True)
class Lifetime:
    """The compute sets, by position, from the one that makes a value to the last that reads it."""

    first: int
    last: int


def schedule(program: FlatProgram) -> FlatProgram:
    """Runs early what frees more memory than it takes, such as weight updates.

    So does a gradient that goes straight into its accumulator, and one variable's update ends
    before the next begins. Numbers that follow from variables alone, such as a learning rate, come
    first, as all updates wait for them. Otherwise the order of tracing stays, in which each compute
    set follows those whose results it reads. What is inside a loop stays together.
    """
    # TensorFlow for IPUs tries three schedulers for each computation and keeps the one with the
    # least peak (CHOOSE_BEST). This one does what matters most of its clustering: what has large
    # operands and defines little, as weight updates and weight gradients do, runs at once. Of a
    # weight update by itself, post order has the least peak, depth first from each new value.
    program = _one_update_after_the_other(program)
    order = _Order(program)
    numbers = _numbers_of_variables(program)
    # Positions in the order of tracing, so the smallest is what tracing had first.
    ready = [(k not in numbers, k) for k, count in enumerate(order.waits_for) if count == 0]
    heapq.heapify(ready)
    done: list[ComputeSet] = []
    while ready:
        _, position = heapq.heappop(ready)
        if order.is_done(position):
            continue
        done.append(program.compute_sets[position])
        eager = order.finish(position)
        while eager:
            position = eager.pop()
            if order.is_done(position):
                continue
            if order.frees_memory(position):
                done.append(program.compute_sets[position])
                eager += order.finish(position)
            else:
                heapq.heappush(ready, (position not in numbers, position))
    return replace(program, compute_sets=tuple(done))


def _numbers_of_variables(program: FlatProgram) -> set[int]:
    """Returns the positions of compute sets that make single numbers of nothing but variables."""
    known = {
        name for name, value in program.values.items() if value.role in ("variable", "constant")
    }
    found = set()
    for position, one in enumerate(program.compute_sets):
        is_free = one.repeat == 1 and not one.branches
        if (
            is_free
            and known.issuperset(one.reads)
            and all(num_elements(v.spec) == 1 for v in one.writes)
        ):
            found.add(position)
            known.update(value.name for value in one.writes)
    return found


class _Order:
    """Which compute sets can run, and what they would free."""

    def __init__(self, program: FlatProgram):
        self._sets = program.compute_sets
        self._sizes = {name: value.spec.nbytes for name, value in program.values.items()}
        self._in_place = set(program.updates)
        self._uses = Counter(name for one in self._sets for name in set(one.reads))
        self._uses.update(program.results)
        self._made = {v.name: k for k, one in enumerate(self._sets) for v in one.writes}
        self._followers: dict[int, list[int]] = defaultdict(list)
        self._readers = defaultdict(list)
        self._done = [False] * len(self._sets)
        self.waits_for = [0] * len(self._sets)
        ends = _loop_ends(self._sets)
        for position, one in enumerate(self._sets):
            for name in set(one.reads):
                self._readers[name].append(position)
            for maker in {self._complete(name, one, ends) for name in one.reads}:
                if maker is not None:
                    self._wait(position, maker)
        for position, earlier in _readers_of_old_values(program):
            self._wait(position, earlier)
        self._keep_loops_together()
        self._keep_branches_apart()

    def _keep_loops_together(self) -> None:
        """Lets each compute set of a loop wait for the one before it."""
        for position in range(1, len(self._sets)):
            before, one = self._sets[position - 1], self._sets[position]
            if one.repeat > 1 and before.repeat == one.repeat:
                self._wait(position, position - 1)

    def _keep_branches_apart(self) -> None:
        """Puts what runs 0 times, because another branch takes longer, before that branch."""
        last: dict[str, int] = {}
        for position, one in enumerate(self._sets):
            if one.repeat and not last:
                continue
            for branch in one.branches:
                if branch.conditional in last:
                    self._wait(position, last[branch.conditional])
                if not one.repeat:
                    last[branch.conditional] = position

    def _wait(self, position: int, earlier: int) -> None:
        self._followers[earlier].append(position)
        self.waits_for[position] += 1

    def _complete(self, name: str, reader: ComputeSet, ends: Mapping[str, int]) -> int | None:
        """Returns after which compute set a value can be read."""
        made = self._made.get(name)
        if made is None:
            return None
        # Outside of a loop, a value can be read when the loop is over.
        left = [loop for loop in bodies_of(self._sets[made]) if loop not in bodies_of(reader)]
        return max(made, ends[left[0]]) if left else made

    def is_done(self, position: int) -> bool:
        return self._done[position]

    def frees_memory(self, position: int) -> bool:
        one = self._sets[position]
        # Loops run as a whole, and other branches than the longest take no time.
        if one.repeat != 1:
            return False
        freed = sum(
            self._sizes[name]
            for name in set(one.reads)
            # Variables, constants and arguments are there all the time or from the start:
            # nothing made them here, and reading them last frees nothing.
            if self._uses[name] == 1 and name in self._made
        )
        taken = sum(v.spec.nbytes for v in one.writes if v.name not in self._in_place)
        return freed > taken or self._goes_into_a_variable(one)

    def _goes_into_a_variable(self, one: ComputeSet) -> bool:
        """Whether its result is only there to be written into a variable, which can be next."""
        while len(one.writes) == 1:
            (result,) = one.writes
            if result.name in self._in_place:
                return True
            readers = self._readers[result.name]
            is_only_read_there = self._uses[result.name] == len(readers) == 1
            if not is_only_read_there or self.waits_for[readers[0]] != 1:
                return False
            one = self._sets[readers[0]]
        return False

    def finish(self, position: int) -> list[int]:
        """Marks a compute set as done; returns those that can run now, or may free memory now."""
        self._done[position] = True
        found = []
        for follower in self._followers[position]:
            self.waits_for[follower] -= 1
            if self.waits_for[follower] == 0:
                found.append(follower)
        # A set's order would be another in each process.
        for name in dict.fromkeys(self._sets[position].reads):
            self._uses[name] -= 1
            # The one reader that is left would free the value.
            if self._uses[name] == 1:
                found += [reader for reader in self._readers[name] if self._can_run(reader)]
        # The last is next: what writes variables, as it frees a gradient and takes nothing.
        return sorted(found, key=self._writes_variables)

    def _writes_variables(self, position: int) -> bool:
        return self._in_place.issuperset(value.name for value in self._sets[position].writes)

    def _can_run(self, position: int) -> bool:
        return not self._done[position] and self.waits_for[position] == 0


def _one_update_after_the_other(program: FlatProgram) -> FlatProgram:
    """Sorts the weight update depth first: before each new value comes what only that needs."""
    sets = program.compute_sets
    update = [k for k, one in enumerate(sets) if one.weight_update]
    # The order of what loops and branches do is theirs.
    if any(sets[k].loops or sets[k].branches for k in update):
        return program
    made = {value.name: k for k in update for value in sets[k].writes}
    needed = {k: [made[name] for name in sets[k].reads if name in made] for k in update}
    for position, earlier in _readers_of_old_values(program):
        if position in needed and earlier in needed:
            needed[position].append(earlier)
    ordered: dict[int, None] = {}
    ends = [made[name] for name in program.results if name in made]
    pending = [*reversed(update), *reversed(ends)]
    while pending:
        missing = [k for k in needed[pending[-1]] if k not in ordered]
        if missing and pending[-1] not in ordered:
            pending += reversed(missing)
        else:
            ordered[pending.pop()] = None
    moved = dict(zip(update, ordered, strict=True))
    return replace(program, compute_sets=tuple(sets[moved.get(k, k)] for k in range(len(sets))))


def _readers_of_old_values(program: FlatProgram) -> Iterator[tuple[int, int]]:
    """Yields positions that write over a variable, each with one that has to read it before."""
    readers: dict[str, list[int]] = defaultdict(list)
    for position, one in enumerate(program.compute_sets):
        for value in one.writes:
            old = readers.get(program.updates.get(value.name, ""), ())
            yield from ((position, earlier) for earlier in old)
        for name in set(one.reads):
            readers[name].append(position)


def lifetimes(program: FlatProgram) -> dict[str, Lifetime]:
    """Returns when each value that is not always live is in memory, by name.

    Variables, constants and what is written in place have none: a value lives as long as those
    that take over its memory. What a loop reads from outside lives until the loop ends;
    arguments live from the start, results to the end.
    """
    end = max(len(program.compute_sets) - 1, 0)
    last = last_reads(program.compute_sets)
    first: dict[str, int] = {}
    for position, one in enumerate(program.compute_sets):
        for value in one.writes:
            first[value.name] = position
            last.setdefault(value.name, position)
    last.update((name, end) for name in program.results)
    owners = storage(program)
    for name, owner in owners.items():
        if name in last:
            last[owner] = max(last.get(owner, 0), last[name])
    return {
        name: Lifetime(first.get(name, 0), last[name])
        for name, value in program.values.items()
        if name in last
        and value.role in ("activation", "argument")
        and name not in program.updates
        and owners[name] == name
    }


def storage(program: FlatProgram) -> dict[str, str]:
    """Returns the name of the value that had a value's memory first, itself if no other had."""
    owners: dict[str, str] = {}
    for name in program.values:
        way = [name]
        while way[-1] not in owners and way[-1] in program.in_place:
            way.append(program.in_place[way[-1]])
        owners.update(dict.fromkeys(way, owners.get(way[-1], way[-1])))
    return owners


def last_reads(compute_sets: Sequence[ComputeSet]) -> dict[str, int]:
    """Returns the position of the last compute set that needs each value."""
    ends = _loop_ends(compute_sets)
    made_in = {value.name: bodies_of(one) for one in compute_sets for value in one.writes}
    last: dict[str, int] = {}
    for position, one in enumerate(compute_sets):
        loops = bodies_of(one)
        for name in one.reads:
            # A loop needs what it reads from outside until it ends.
            stays = [ends[loop] for loop in loops if loop not in made_in.get(name, ())]
            last[name] = max([position, last.get(name, 0), *stays])
    return last


def _loop_ends(compute_sets: Iterable[ComputeSet]) -> Mapping[str, int]:
    return {loop: k for k, one in enumerate(compute_sets) for loop in bodies_of(one)}
