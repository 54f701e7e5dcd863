"""Builds the TensorFlow graphs that run a traced step over all batches of an execution."""

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.host.plan import HostExecution, HostPlan
from ipu_keras.host.replicas.joint_batches import bytes_of_batch, can_join, joint_function
from ipu_keras.host.replicas.replica_values import Captures, mark_part
from ipu_keras.host.replicas.segments import replicate
from ipu_keras.host.splitting import before_return, open_step, split_step
from ipu_keras.host.step_loops import Collect, Reduction, Run, loop, unrolled
from ipu_keras.internals.tensorflow.functions import call_with_captures
from ipu_keras.processes.process_collectives import all_reduce
from ipu_keras.settings.arguments import divisors
from ipu_keras.settings.enumerations import StochasticRoundingBehaviour
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod as Method
from ipu_keras.tracing import has_exchanges
from ipu_keras.tracing.extraction import ExtractedPart
from ipu_keras.tracing.frontend_attributes import (
    STOCHASTIC_ROUNDING,
    ReplicaPart,
    attributed,
    attributes_of,
    is_at_random,
)

# Steps that a parallel loop has in flight for each core: while the operations of one step wait for
# each other, those of the other run. More only cost memory: 1, 2, 4, 8 and 16 steps on two cores
# take the same processor time (CNN28, `predict`: 1.52 to 1.68 ms a step).
_STEPS_PER_CORE = 2

# If there are more compiled steps, a loop calls them: each call in a graph takes 2.5 to 4 ms
# once, to build and to compile, and spares 0.03 to 0.07 ms of each execution (MLP, `predict`,
# 32 to 256 steps: 0.21 and 0.14, 0.17 and 0.14 ms a step). These are 0.2 s more before the
# first step is over.
_MAX_UNROLLED_STEPS = 64

# What is computed for several batches at once may take at most so much memory, counted as if
# all of it existed at the same time. In TensorFlow's executor more does not help: from 16 MB to
# 1 GB, `predict` takes the same processor time (CNN28 2.0, CNN32 4.4 ms a step), but training
# of fewer batches at once does less well (CNN28, 8 batches: all of them or 4 in each of two
# turns 1.00 to 1.02 of the time of one large batch, pairs up to 1.06). XLA gets new memory for
# each call, and makes kernels of many operations, which leaves less to gain: MLP, `predict`,
# one by one 0.18, in 2 MB 0.15, 8 MB 0.13, 32 MB to 1 GB 0.13 ms a step; transformer, in 32 to
# 128 MB 8.9 to 9.5, in 1 GB 12.0.
_MAX_JOINT_BYTES = 1 << 28
_MAX_JOINT_BYTES_IN_XLA = 1 << 25

# If turns can overlap there are at least so many: where one turn takes only one core, another
# fills the rest. CNN28, 8 batches in TensorFlow's executor: two turns of 4 take 1.00 of the
# time of one large batch, and one turn of all 8 1.01 to 1.02.
_MIN_JOINT_TURNS = 2

# What replicas do in turn, with variables of their own, is a part of one XLA program up to so
# many operations: more take longer to compile than parts that are compiled once. An MLP with
# metrics, 16 replicas, 32 steps: 288 operations take 1.7 s to compile and 164 ms to run, in
# parts 1.6 s and 165 ms; 768 2.4 s and 236 ms, 2.2 and 304; 2048 2.8 s and 186 ms, 3.0 and 245;
# 6528 16.9 s and 444 ms, 11.3 and 754.
_MAX_REPEATED_OPERATIONS = 2000


class StepGraphs:
    """Builds what an execution computes.

    Args:
        step: The trace of the program's step. It returns the results, and with them the
            gradients if the program has an update, or what steps hand on.
        captures_of: The same as for `replicate`, for what the update captures as well.
        apart: Whether replicas have all of that of their own, which others may have written.
        plainly: Whether each step is computed by itself, as it is: what makes steps faster
            takes longer to build than some steps do.
        for_executor: Takes a traced function that TensorFlow's executor would run; returns what
            it runs instead.
    """

    def __init__(
        self,
        plan: HostPlan,
        step: Any,
        update: Any,
        execution: HostExecution,
        captures_of: Callable[[int], Captures],
        *,
        apart: bool = False,
        plainly: bool = False,
        for_executor: Callable[[Any], Any] = lambda function: function,
    ):
        program = plan.program
        self._program = program
        self._execution = execution
        self._captures_of = captures_of
        self._plainly = plainly
        self._for_executor = (lambda function: function) if plainly else for_executor
        self._update = update
        self._num_steps = program.repeat_count if update is None else program.accumulation.count
        # All replicas get the same results of an update, so none are kept for each.
        self._of_updates = [Collect(mode.value).of_stacked for mode in program.update_modes]
        self._exchanges = has_exchanges(step.graph)
        self._update_exchanges = (
            update is not None and has_exchanges(update.graph) and program.num_replicas == 1
        )
        self._apart = (apart or program.own_updates) and program.num_replicas > 1
        # Whatever runs for several replicas at once, or in any order, has a key in which nothing
        # tells them apart, and `reset_ipu_seed` may ask for equal ones at any time.
        numerics = program.numerics.of_replicas(program.num_replicas)
        self._is_at_random = (
            numerics.rounding is StochasticRoundingBehaviour.ON or _has_scopes_at_random(step)
        )
        self._is_rounded = program.num_replicas > 1 and self._is_at_random
        self._use(step)
        # A gradient that depends on what steps write cannot be a result of the first part.
        bound = any(gradient.op.name in plan.sequential for gradient in self._gradients)
        # Where steps exchange values or hand tensors on, a whole step must end before the next
        # begins.
        together = self._exchanges or bool(program.carried) or self._apart or self._is_rounded
        split = not bound and not together
        self._sequential = plan.sequential if split else frozenset()
        self._opening: tuple[ExtractedPart, ExtractedPart] | None = None
        if split and plan.opening:
            self._opening = open_step(step, plan.opening)
            self._use(self._opening[1].function)
        in_turn = len(self._sequential) + len(plan.opening)
        self._num_in_turn = in_turn if split else 0
        waits = plan.graph.writes_state or bool(program.carried)
        self._in_order = waits and not self._num_in_turn

    def _use(self, step: Any) -> None:
        """Takes a trace as the step, or as what is left of it after its opening."""
        self._step = step
        computed = tf.nest.map_structure(before_return, step.structured_outputs)
        is_pair = self._update is not None or self._program.carried
        self._structure, others = computed if is_pair else (computed, [])
        self._results = tf.nest.flatten(self._structure)
        modes = self._program.outfeed_modes or [self._program.outfeed_mode] * len(self._results)
        self._kept = [Collect(mode.value) for mode in modes]
        self._gradients = [] if self._program.carried else tf.nest.flatten(others)
        for tensor in (*self._results, *self._gradients):
            _check_shape(self._program.name, tensor)

    def __call__(self, *feeds: Any) -> Any:
        """Runs an execution, and returns the outfeed.

        It takes each feed, `(steps * replicas, ...)`, and then what the first steps of replica
        0, replica 1 and so on are handed. If steps hand tensors on, those of the last steps
        come with the outfeed, in the same order.
        """
        if self._program.carried:
            return self._handing_on(feeds)
        found = self._batches(feeds) if self._update is None else self._updates(feeds)
        results = tf.nest.pack_sequence_as(self._structure, found[: len(self._results)])
        return (results, found[len(self._results) :]) if self._of_updates else results

    def _updates(self, feeds: Sequence[Any]) -> list[Any]:
        """Returns the results of all batches, and then those of the weight updates."""
        rounds = self._program.repeat_count // self._num_steps
        if rounds == 1:
            found = self._one_update(feeds)
            pairs = zip(self._of_updates, found[len(self._results) :], strict=True)
            alone = [value[None] if how is Collect.ALL else value for how, value in pairs]
            return found[: len(self._results)] + alone
        batches = self._num_steps * self._program.num_replicas
        parted = [tf.reshape(feed, (rounds, batches, *feed.shape[1:])) for feed in feeds]
        # The leading axes of what a round returns: its batches, its replicas, or none for its
        # last batch.
        stacked = {Collect.ALL: (batches,), Collect.LAST: ()}
        each = (self._program.num_replicas,)
        specs = [
            tf.TensorSpec((*stacked.get(how, each), *r.shape), r.dtype)
            for how, r in zip(self._kept, self._results, strict=True)
        ]
        collect = [how.of_stacked for how in self._kept] + self._of_updates
        specs += _outputs(self._update)
        found = loop(self._one_update, specs, rounds, parted, collect)
        return [
            tf.reshape(tensor, (-1, *tensor.shape[2:])) if how is Collect.ALL else tensor
            for how, tensor in zip(self._kept, found, strict=False)
        ] + found[len(self._kept) :]

    @property
    def is_one_program(self) -> bool:
        """Whether XLA compiles the whole execution, and not its parts.

        What replicas do with variables of their own is a part that is compiled once for all of
        them, so that the time to compile does not grow with their number. If it is little, such
        as the metrics of a model without moving averages, calls of that part would take longer
        than it does.
        """
        alone = self._program.num_replicas == 1 or self._exchanges
        repeated = self._num_in_turn * self._program.num_replicas
        little = 0 < repeated <= _MAX_REPEATED_OPERATIONS
        return (alone or little) and self._execution is HostExecution.COMPILED_LOOP

    def _one_update(self, feeds: Sequence[Any]) -> list[Any]:
        found = self._batches(feeds)
        num_results = len(self._results)
        if self._apart:
            gradients = list(map(tf.unstack, found[num_results:]))
            if not self._program.own_updates:
                totals = self._over_processes([tf.add_n(each) for each in gradients])
                gradients = [
                    [total] * len(each) for total, each in zip(totals, gradients, strict=True)
                ]
            by_replica = list(zip(*gradients, strict=True))
            replicate(self._update, len(by_replica), self._captures_of)(by_replica)
            return found[:num_results]
        in_parts = self._execution.is_compiled and not self.is_one_program
        update = _compiled(self._update) if in_parts else self._update
        gradients = self._over_processes(found[num_results:])
        with self._rounded_alike():
            if self._update_exchanges:
                (updated,) = replicate(self._update, 1, self._captures_of)([gradients])
                updated = tf.nest.flatten(updated)
            else:
                updated = _flat(update)(gradients)
        return found[:num_results] + updated

    def _over_processes(self, gradients: Sequence[Any]) -> list[Any]:
        """Adds up gradients over all processes, by one call for all of a type."""
        return all_reduce(gradients) if self._program.num_processes > 1 else list(gradients)

    def _rounded_alike(self) -> contextlib.AbstractContextManager[None]:
        """While this is open, operations are made that all replicas share, and so round alike."""
        rounding = self._program.numerics.rounding
        if rounding is not StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY:
            return contextlib.nullcontext()
        return attributed(tf.compat.v1.get_default_graph(), STOCHASTIC_ROUNDING, "true")

    def _batches(self, feeds: Sequence[Any]) -> list[Any]:
        """Returns the results of some batches, and their accumulated gradients."""
        if self._opening is not None:
            feeds = self._opened(*self._opening, feeds)
        if self._sequential:
            return self._split_batches(feeds)
        reduced = [Collect.REDUCED] * len(self._gradients)
        how = Collect.REDUCED_OF_EACH if self._apart else Collect.REDUCED
        collect = self._kept + [how] * len(reduced)
        if self._exchanges:
            return self._together(feeds, collect)
        if not self._in_order and not self._apart and not self._is_rounded:
            return self._all_steps(self._step, feeds, collect)

        def run(own: Sequence[Any]) -> list[Any]:
            return self._steps(self._step, own, [*self._kept, *reduced], 1)

        in_loop = self._execution is HostExecution.COMPILED_LOOP
        return self._each_replica(run, feeds, collect, compiled=in_loop)

    def _handing_on(self, given: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Runs the steps in turn, each of which takes what the one before handed on."""
        num_feeds, num_results = len(self._program.infeed), len(self._results)
        feeds, carried = given[:num_feeds], given[num_feeds:]
        collect = self._kept
        if self._program.num_replicas > 1 or self._exchanges:
            found = self._together(feeds, collect, carried)
        else:
            run = _flat(self._as_run(self._step))
            specs = _outputs(self._step)[:num_results]
            found = loop(run, specs, self._num_steps, feeds, collect, carried=carried)
        results = tf.nest.pack_sequence_as(self._structure, found[:num_results])
        return results, found[num_results:]

    def _together(
        self, feeds: Sequence[Any], collect: Sequence[Collect], carried: Sequence[Any] = ()
    ) -> list[Any]:
        """Runs the steps in turn, each by all replicas at the same time, as they exchange values.

        What is `carried` is ordered by replica, and returned like that after the results.
        """
        num_replicas = self._program.num_replicas
        num_feeds, num_carried = len(feeds), len(carried) // num_replicas
        stacked = [how is Collect.ALL or how.is_of_each for how in collect]
        is_compiled = self._execution.is_compiled
        step = self._step if is_compiled else self._for_executor(self._step)
        step = replicate(step, num_replicas, self._captures_of)

        def run(given: Sequence[Any]) -> list[Any]:
            batches, handed = given[:num_feeds], given[num_feeds:]
            own = [
                [batch[replica] for batch in batches]
                + list(handed[replica * num_carried : (replica + 1) * num_carried])
                for replica in range(num_replicas)
            ]
            by_replica = [tf.nest.flatten(result) for result in step(own)]
            together = zip(*by_replica, strict=True)
            results = [
                tf.stack(values) if is_stacked else _joined(how, values)
                for how, is_stacked, values in zip(collect, stacked, together, strict=False)
            ]
            return results + [t for each in by_replica for t in each[len(collect) :]]

        parted = [tf.reshape(f, (-1, num_replicas, *f.shape[1:])) for f in feeds]
        in_xla = self._execution is HostExecution.COMPILED_STEPS
        once = tf.function(lambda *batches: run(batches), autograph=False, jit_compile=in_xla)
        specs = [
            tf.TensorSpec((num_replicas, *t.shape) if is_stacked else t.shape, t.dtype)
            for is_stacked, t in zip(stacked, _outputs(self._step), strict=not carried)
        ]
        reduction = Reduction(self._program.accumulation.reduction, self._num_steps)
        found = loop(
            _flat(once),
            specs,
            self._num_steps,
            parted,
            [how.of_stacked for how in collect],
            reduction,
            carried=carried,
        )
        results = [
            tf.reshape(t, (-1, *t.shape[2:])) if how is Collect.ALL else t
            for how, t in zip(collect, found, strict=False)
        ]
        return results + found[len(collect) :]

    def _opened(
        self, opening: ExtractedPart, rest: ExtractedPart, feeds: Sequence[Any]
    ) -> list[Any]:
        """Does the openings of all steps in turn, and returns what the rest of all steps takes."""
        collect = [Collect.ALL] * len(_outputs(opening.function))
        drawn = self._in_turn(opening, [feeds[i] for i in opening.inputs], collect)
        return [*(feeds[i] for i in rest.inputs), *drawn]

    def _in_turn(
        self, part: ExtractedPart, feeds: Sequence[Any], collect: Sequence[Collect]
    ) -> list[Any]:
        """Runs a part of all steps in turn, with each replica's own variables."""
        run, specs = _flat(part.function), _outputs(part.function)

        def run_all(own: Sequence[Any]) -> list[Any]:
            if self._num_steps == 1:
                return unrolled(run, 1, own, collect, Reduction())
            return loop(run, specs, self._num_steps, own, collect)

        return self._each_replica(run_all, feeds, collect, compiled=self._execution.is_compiled)

    def _split_batches(self, feeds: Sequence[Any]) -> list[Any]:
        """Runs the first parts of all steps in any order, then the second parts in turn."""
        first, second = split_step(self._step, self._sequential, self._structure, self._gradients)
        num_kept = len(_outputs(first.function)) - len(self._gradients)
        collect = [Collect.ALL] * num_kept + [Collect.REDUCED] * len(self._gradients)
        found = self._all_steps(first.function, [feeds[i] for i in first.inputs], collect)
        results = self._in_turn(
            second,
            [*(feeds[i] for i in second.inputs), *found[:num_kept]],
            self._kept,
        )
        return [*results, *found[num_kept:]]

    def _all_steps(
        self, function: Any, feeds: Sequence[Any], collect: Sequence[Collect]
    ) -> list[Any]:
        """Runs a function for the batches of all replicas, in any order."""
        num_replicas = self._program.num_replicas
        summed = [how is Collect.REDUCED for how in collect]
        # If results of each replica are kept apart, a joint result must have equally many of
        # all replicas.
        unit = num_replicas if any(how.is_of_each for how in collect) else 1
        joint = self._joint_batches(function, summed, unit)
        together = None
        if joint > 1:
            in_steps = self._execution is HostExecution.COMPILED_STEPS
            together = joint_function(function, summed, joint, compiled=in_steps)
        if together is not None and not self._execution.is_compiled:
            together = self._for_executor(together)

        def run(*feeds: Any) -> list[Any]:
            if together is None:
                return self._steps(function, feeds, collect, num_replicas)
            return self._jointly(together, joint, feeds, collect)

        is_part = self._execution is HostExecution.COMPILED_LOOP and not self.is_one_program
        return (
            tf.function(run, autograph=False, jit_compile=True)(*feeds) if is_part else run(*feeds)
        )

    def _joint_batches(self, function: Any, summed: Sequence[bool], unit: int) -> int:
        """Returns how many batches, a multiple of `unit`, to compute at once; 1 if none."""
        count = self._num_steps * self._program.num_replicas
        if self._plainly or count == 1 or not can_join(function, summed, count):
            return 1
        at_once = self._execution is HostExecution.PARALLEL_LOOP
        most = count // _MIN_JOINT_TURNS if at_once else count
        limit = _MAX_JOINT_BYTES_IN_XLA if self._execution.is_compiled else _MAX_JOINT_BYTES
        most = min(most, limit // max(bytes_of_batch(function, summed), 1))
        return max((k for k in divisors(count) if k <= most and k % unit == 0), default=1)

    def _jointly(
        self, together: Any, joint: int, feeds: Sequence[Any], collect: Sequence[Collect]
    ) -> list[Any]:
        """Runs all batches by a function that takes `joint` of them at once."""
        count = self._num_steps * self._program.num_replicas
        if joint == count:
            found = _flat(together)(feeds)
        else:
            parted = [tf.reshape(f, (-1, joint, *f.shape[1:])) for f in feeds]
            at_once = self._execution is not HostExecution.GRAPH_LOOP
            found = loop(
                _flat(together),
                _outputs(together),
                count // joint,
                parted,
                [how.of_stacked for how in collect],
                parallel_steps=_num_at_once() if at_once else 1,
            )
        return [
            self._of_joint(how, value, several=joint < count)
            for how, value in zip(collect, found, strict=True)
        ]

    def _of_joint(self, how: Collect, value: Any, *, several: bool) -> Any:
        """Turns a joint result into what is kept; if there are `several`, they are stacked."""
        num_replicas = self._program.num_replicas
        if how is Collect.LAST:
            return value[-1]
        if how is Collect.LAST_OF_EACH:
            return value[-num_replicas:]
        if how is Collect.SUM_OF_EACH:
            by_step = tf.reshape(value, (-1, num_replicas, *value.shape[1:]))
            return tf.reduce_sum(by_step, axis=0)
        if how is Collect.ALL:
            return tf.reshape(value, (-1, *value.shape[2:])) if several else value
        is_sum = self._program.accumulation.reduction is Method.SUM
        return value if is_sum else value / self._num_steps

    def _steps(
        self, function: Any, feeds: Sequence[Any], collect: Sequence[Collect], num_replicas: int
    ) -> list[Any]:
        """Runs a function for each batch, those of `num_replicas` replicas in turn."""
        count = self._num_steps * num_replicas
        method = self._program.accumulation.reduction
        reduction = Reduction(method, self._num_steps, num_replicas)
        in_steps = self._execution is HostExecution.COMPILED_STEPS
        run, specs = _flat(self._as_run(function)), _outputs(function)
        # A loop and its unrolled turns have other keys by which they round at random, and
        # TensorFlow's executor has a loop.
        most = _MAX_UNROLLED_STEPS if in_steps and not self._is_at_random else 1
        if count <= most:
            return unrolled(run, count, feeds, collect, reduction)
        at_once = not self._in_order and self._execution is not HostExecution.GRAPH_LOOP
        parallel_steps = _num_at_once() if at_once else 1
        return loop(run, specs, count, feeds, collect, reduction, parallel_steps)

    def _as_run(self, function: Any) -> Any:
        """Returns a function of a batch, compiled where it is a program of its own."""
        if self._execution is HostExecution.COMPILED_STEPS:
            return _compiled(function)
        return function if self._execution.is_compiled else self._for_executor(function)

    def _each_replica(
        self, run: Run, feeds: Sequence[Any], collect: Sequence[Collect], *, compiled: bool
    ) -> list[Any]:
        num_replicas = self._program.num_replicas
        # What is a part of one XLA program anyway needs no call of its own.
        if num_replicas == 1 and (self.is_one_program or not compiled):
            return run(feeds)
        # Element k of the data belongs to replica k mod R, in step k div R.
        parted = [tf.reshape(f, (-1, num_replicas, *f.shape[1:])) for f in feeds]
        specs = [tf.TensorSpec((p.shape[0], *p.shape[2:]), p.dtype) for p in parted]
        function = tf.function(lambda *own: run(own), autograph=False, jit_compile=compiled)
        concrete = function.get_concrete_function(*specs)
        name = tf.compat.v1.get_default_graph().unique_name("replicas")
        by_replica = [
            self._called(concrete, [p[:, k] for p in parted], ReplicaPart(k, name))
            for k in range(num_replicas)
        ]
        return [_joined(*pair) for pair in zip(collect, zip(*by_replica, strict=True), strict=True)]

    def _called(self, concrete: Any, tensors: Sequence[Any], part: ReplicaPart) -> list[Any]:
        own = self._captures_of(part.replica)
        captures = [own.get(capture.ref(), capture) for capture in concrete.captured_inputs]
        # One trace serves all replicas, and calling it as usual would take the captures of
        # replica 0.
        results = tf.nest.flatten(call_with_captures(concrete, tensors, captures))
        mark_part(results, part)
        return results


def _has_scopes_at_random(step: Any) -> bool:
    """Whether operations of a traced step are rounded at random whatever is configured."""
    return any(is_at_random(attributes_of(op)) for op in step.graph.get_operations())


def _num_at_once() -> int:
    return _STEPS_PER_CORE * (os.cpu_count() or 1)


def _joined(how: Collect, by_replica: Sequence[Any]) -> Any:
    """Joins the results of all replicas; where one reaches the host, it is the last replica's."""
    if how is Collect.REDUCED_OF_EACH:
        return tf.stack(by_replica)
    if len(by_replica) == 1 or how is Collect.LAST:
        return by_replica[-1]
    if how is Collect.REDUCED:
        return tf.add_n(by_replica)
    if how.is_of_each:
        return tf.concat(by_replica, axis=0)
    stacked = tf.stack(by_replica, axis=1)
    return tf.reshape(stacked, (-1, *stacked.shape[2:]))


def _flat(function: Any) -> Run:
    return lambda tensors: tf.nest.flatten(function(*tensors))


def _outputs(function: Any) -> list[Any]:
    return tf.nest.flatten(function.structured_outputs)


def _compiled(function: Any) -> Any:
    """Makes a traced function an XLA program of its own."""
    outer = tf.function(lambda *given: function(*given), autograph=False, jit_compile=True)
    num_captures = len(function.captured_inputs)
    arguments = function.inputs[: len(function.inputs) - num_captures]
    return outer.get_concrete_function(*(tf.TensorSpec(a.shape, a.dtype) for a in arguments))


def _check_shape(program: str, tensor: Any) -> None:
    if not tensor.shape.is_fully_defined():
        raise ValueError(
            f"A result of program {program!r} has the shape {tensor.shape}, which is not "
            "fully defined. IPU programs are static: give the operation that makes it a fixed "
            f"output shape. Received: {tensor.name}"
        )
