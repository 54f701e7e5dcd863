"""Stops executions in which arithmetic meets what an IPU would stop at, and says where it did.

Exceptions leave NaN or infinities in results or in variables, which are looked at when an execution
is over, or in numbers that are lost before, which are looked at while it runs. Only if one is there
the same steps run again, from the state before, operation by operation.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras._rounding import NotFiniteFlag
from ipu_keras.host.fused_updates import TYPES
from ipu_keras.host.half_operations import COMPUTING
from ipu_keras.host.interpreter import (
    Interpreter,
    Run,
    RunningPlace,
    Substitute,
    nothing_instead,
    positions_of,
)
from ipu_keras.host.lost_numbers import noting_lost_numbers
from ipu_keras.host.watching_operations import KeptValues, note_not_finite, value_of
from ipu_keras.internals.tensorflow.functions import call_with_captures
from ipu_keras.machine.numerics import FloatingPointException, Numerics
from ipu_keras.program import Program
from ipu_keras.tracing.layers import LayerNames

_HALVES_LARGEST = np.float16(65504)

# Which operand makes an infinity of a finite number, and which numbers do so.
_POLES: dict[str, tuple[int, tuple[float, ...]]] = {
    **dict.fromkeys(["Div", "RealDiv", "FloorDiv", "FloorMod", "Mod"], (1, (0.0,))),
    **dict.fromkeys(["TruncateDiv", "TruncateMod"], (1, (0.0,))),
    **dict.fromkeys(["Xdivy", "Xlogy"], (1, (0.0,))),
    **dict.fromkeys(["Inv", "Log", "Reciprocal", "Rsqrt"], (0, (0.0,))),
    **dict.fromkeys(["BesselK0", "BesselK1", "BesselY0", "BesselY1"], (0, (0.0,))),
    **dict.fromkeys(["BesselK0e", "BesselK1e"], (0, (0.0,))),
    **dict.fromkeys(["InvGrad", "Pow", "ReciprocalGrad", "RsqrtGrad", "SqrtGrad"], (0, (0.0,))),
    "Xlog1py": (1, (-1.0,)),
    "Log1p": (0, (-1.0,)),
    "Atanh": (0, (-1.0, 1.0)),
    "Erfinv": (0, (-1.0, 1.0)),
    "Ndtri": (0, (0.0, 1.0)),
}


# They compute what they write into variables, and return nothing.
_WRITING = frozenset({"AssignAddVariableOp", "AssignSubVariableOp", *TYPES})


class TilesExceptedError(tf.errors.InternalError):
    """An execution stopped at a floating-point exception; variables are as they were before it."""

    def __init__(self, message: str):
        super().__init__(None, None, message)


@dataclass(frozen=True)
class FoundException:
    """Where arithmetic first met an exception in an execution; all counts begin with 0.

    Args:
        step: The step, or the last one of those that share the operation.
        num_steps: How many steps share the operation, as their batches were joined.
        replica: The replica; `None` if several share the operation, as their batches were joined.
        turn: The turn of the innermost loop around the operation, in a program of a single step;
            `None` if there is no loop.
    """

    kinds: frozenset[FloatingPointException]
    operation: str
    type: str
    layer: str
    is_gradient: bool
    is_weight_update: bool
    step: int
    num_steps: int
    replica: int | None
    turn: int | None


@dataclass(frozen=True)
class Again:
    """What an execution read and sent, for the same to run once more; usually that is nothing.

    Args:
        instead: Asked for the outputs of operations that read, or send, and are not to run.
    """

    read: Sequence[Any] = ()
    sent: Sequence[Any] = ()
    instead: Substitute = nothing_instead


_NOTHING_ELSE = Again()


class ExceptionWatch:
    """Watches the executions of one program.

    Args:
        plain: Returns a traced function that does what an execution does, operation by operation
            and without what makes it fast, and computes halves as the host does.
        variables: What an execution may write.
        operations: Returns the names of the operations of step and weight update.
        captures: What the traced function has instead of its own captures.
    """

    def __init__(
        self,
        program: Program,
        plain: Callable[[], Any],
        variables: Iterable[Any],
        operations: Callable[[], Collection[str]],
        captures: Sequence[Any] | None = None,
    ):
        self._program = program
        self._captures = captures
        self._plain = plain
        self._variables = list({id(v): v for v in variables}.values())
        self._operations = operations
        self._found_in: Any = None
        self._flag = NotFiniteFlag()
        self._flag_of_lost = NotFiniteFlag()
        self._kept: KeptValues | None = None

    def watched(self, concrete: Any, *, in_xla: bool = False) -> Any:
        """Returns a traced function that does the same, for `check`.

        Args:
            in_xla: Whether it is one program of XLA.
        """
        noting, self._flag_of_lost = noting_lost_numbers(concrete)
        kept = self._kept = KeptValues(self._variables)

        def run(*given: Any) -> Any:
            kept.keep(in_xla=in_xla)
            results = call_with_captures(noting, given, concrete.captured_inputs)
            made = filter(tf.is_tensor, tf.nest.flatten(results, expand_composites=True))
            numbers = [*made, *map(value_of, self._variables)]
            note_not_finite(numbers, self._flag, in_xla=in_xla)
            return results

        num_given = len(concrete.inputs) - len(concrete.captured_inputs)
        specs = [tf.TensorSpec(t.shape, t.dtype) for t in concrete.inputs[:num_given]]
        function = tf.function(run, autograph=False, jit_compile=in_xla)
        return function.get_concrete_function(*specs)

    def begin(self) -> None:
        """Is called before each execution that is to be checked."""
        self._flag.lower()
        self._flag_of_lost.lower()

    def state(self) -> list[Any]:
        """Returns the values of the variables."""
        return [variable.read_value() for variable in self._variables]

    def restore(self, state: Sequence[Any]) -> None:
        for variable, value in zip(self._variables, state, strict=True):
            variable.assign(value)

    def check(self, tensors: Sequence[Any], again: Again = _NOTHING_ELSE) -> None:
        """Raises `TilesExceptedError` if the last execution met what stops it.

        Args:
            tensors: What it was given.
        """
        is_shown = self._flag.is_raised or not are_finite(again.sent)
        if not is_shown and not self._flag_of_lost.is_raised:
            return
        assert self._kept is not None
        before, after = self._kept.values(), self.state()
        self.restore(before)
        kept = before
        try:
            error = self.error(before, tensors, again, is_shown=is_shown)
            if error is not None:
                raise error
            kept = after
        finally:
            self.restore(kept)

    def error(
        self,
        before: Sequence[Any],
        tensors: Sequence[Any],
        again: Again = _NOTHING_ELSE,
        *,
        is_shown: bool = True,
    ) -> TilesExceptedError | None:
        """Returns what stops an execution in which not all was finite; variables are changed.

        It is `None` if what is not finite had come from outside, or is of a kind that does not
        stop.

        Args:
            before: The values of the variables before the execution, which they have again.
            tensors: What it was given.
            is_shown: Whether results or variables are not finite.
        """
        found = self._first(tensors, again)
        if not is_shown:
            return None if found is None else TilesExceptedError(_message(self._program, found))
        all_stop = len(self._program.numerics.stops_at) == len(FloatingPointException)
        if found is None and not (all_stop and are_finite([*before, *tensors, *again.read])):
            return None
        return TilesExceptedError(_message(self._program, found))

    def first_not_finite(
        self, tensors: Sequence[Any], prepare: Callable[[], None]
    ) -> tuple[FoundException | None, bool]:
        """Runs an execution that leaves no trace, and looks where its numbers become infinite.

        Args:
            prepare: Called before, to set variables that get their present values back.

        Returns:
            Where NaN or an infinity was first made of numbers, `None` if nowhere, and whether
            results and variables are finite: if they are, what was made there was masked.
        """
        before = self.state()
        search = _NotFiniteSearch(self._program, self._operations())
        try:
            prepare()
            results = Interpreter(self._plain(), search.observe)(tensors)
            return search.found, are_finite([*results, *self.state()])
        finally:
            self.restore(before)

    def _first(self, tensors: Sequence[Any], again: Again) -> FoundException | None:
        if self._found_in is None:
            self._found_in = self._plain()
        search = _ExceptionSearch(self._program, self._operations())
        try:
            Interpreter(
                self._found_in, search.observe, captures=self._captures, instead=again.instead
            )(tensors)
        except _Found as stop:
            return stop.found
        return None


class _Found(Exception):
    def __init__(self, found: FoundException):
        super().__init__(found)
        self.found = found


class _ExceptionSearch:
    """Sees the operations of an execution, and ends it at the first exception that stops it."""

    def __init__(self, program: Program, operations: Collection[str]):
        self._program = program
        self._numerics = program.numerics
        self._layers = LayerNames(operations)

    def observe(
        self, op: tf.Operation, place: RunningPlace, inputs: Sequence[Any], run: Run
    ) -> list[Any]:
        if not self._is_looked_at(op):
            return run(*inputs)
        is_writing = op.type in _WRITING
        before = _written(inputs) if is_writing else []
        outputs = run(*inputs)
        made = _written(inputs) if is_writing else outputs
        if are_finite(made):
            return outputs

        def again(arrays: Sequence[Any]) -> list[Any]:
            pairs = zip(inputs, arrays, strict=True)
            return [*map(_array, run(*(t if a is None else tf.constant(a) for t, a in pairs)))]

        given, found = ([*map(_array, tensors)] for tensors in ([*inputs, *before], made))
        # What writes, or waits for other processes, does so once.
        kinds = exceptions_of(op.type, given, found, None if op.op_def.is_stateful else again)
        kinds |= _invalid_halves(made, kinds, self._program.numerics)
        as_halves = [_as_halves(value, kinds, self._numerics) for value in outputs]
        self._note(op, place, kinds, made if op.type in _WRITING else as_halves)
        return as_halves

    def _is_looked_at(self, op: tf.Operation) -> bool:
        return op.type in COMPUTING or op.type == "Cast" or op.type in _WRITING

    def _note(
        self,
        op: tf.Operation,
        place: RunningPlace,
        kinds: frozenset[FloatingPointException],
        made: Sequence[Any],
    ) -> None:
        """Does what there is to do about the exceptions that an operation met."""
        if kinds & self._numerics.stops_at:
            raise _Found(self._described(op, place, kinds & self._numerics.stops_at))

    def _described(
        self, op: tf.Operation, place: RunningPlace, kinds: frozenset[FloatingPointException]
    ) -> FoundException:
        step, num_steps, replica = _steps_and_replica(self._program, place)
        names = self._layers.place(op.name)
        num_steps = 1 if names.weight_update else num_steps
        # What TensorFlow's `pfor` converts to many batches at once has its name.
        is_joint = num_steps > 1 or "pfor" in op.name.split("/")
        return FoundException(
            kinds,
            op.name,
            op.type,
            names.layer,
            names.backward,
            names.weight_update,
            step,
            num_steps,
            None if is_joint else replica,
            _turn(self._program, place),
        )


class _NotFiniteSearch(_ExceptionSearch):
    """Sees the operations of an execution, and notes the first that makes NaN or an infinity."""

    def __init__(self, program: Program, operations: Collection[str]):
        super().__init__(program, operations)
        self._numerics = Numerics(nanoo=program.numerics.shows_overflow)
        self.found: FoundException | None = None

    def _is_looked_at(self, op: tf.Operation) -> bool:
        # What has no numbers for inputs is a constant, or reads a variable.
        return any(tensor.dtype.is_floating for tensor in op.inputs)

    def _note(
        self,
        op: tf.Operation,
        place: RunningPlace,
        kinds: frozenset[FloatingPointException],
        made: Sequence[Any],
    ) -> None:
        if self.found is None and kinds and not are_finite(made):
            self.found = self._described(op, place, kinds)


def exceptions_of(
    kind: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    again: Callable[[Sequence[Any]], list[Any]] | None = None,
) -> frozenset[FloatingPointException]:
    """Returns the exceptions that an operation met, given arrays; `None` are no numbers.

    As IEEE 754 has it, NaN made of numbers is invalid, an infinity made of finite numbers is a
    division by zero at a pole and else an overflow, and what NaN becomes is no exception.

    Args:
        again: Computes outputs from other inputs, to tell what became of NaN and infinities in
            the inputs from what was made beside it. Without it, that is not told apart.

    Example:

    >>> infinite = np.float32([np.inf])
    >>> exceptions_of("RealDiv", [np.float32([1]), np.float32([0])], [infinite])
    frozenset({<FloatingPointException.DIV0: 'division by zero (DIV0)'>})
    """
    given, made = _floats(inputs), _floats(outputs)
    found = set()
    if _is_made(np.isnan, given, made) or (again and _is_nan_made(inputs, made, again)):
        found.add(FloatingPointException.INV)
    if _is_made(np.isinf, given, made) or (again and _is_infinity_made(inputs, made, again)):
        position, poles = _POLES.get(kind, (0, ()))
        at_pole = bool(poles) and bool(np.isin(inputs[position], poles).any())
        found.add(FloatingPointException.DIV0 if at_pole else FloatingPointException.OFLO)
    return frozenset(found)


def _floats(arrays: Iterable[Any]) -> list[Any]:
    return [array for array in arrays if array is not None and array.dtype.kind == "f"]


def _is_made(is_special: Callable, given: Iterable[Any], made: Iterable[Any]) -> bool:
    """Whether there is NaN, say, where none was given."""
    return any(is_special(a).any() for a in made) and not any(is_special(a).any() for a in given)


def _is_nan_made(inputs: Sequence[Any], made: Sequence[Any], again: Callable) -> bool:
    """Whether some of the NaN did not come from NaN, but from infinities or from numbers."""
    if not any(np.isnan(array).any() for array in made):
        return False
    without_infinities = _outputs(inputs, again, np.isinf, _large)
    of_numbers = _outputs(inputs, again, lambda array: ~np.isfinite(array), np.ones_like)
    return any(
        (np.isnan(array) & (~np.isnan(kept) | np.isnan(number))).any()
        for array, kept, number in zip(made, without_infinities, of_numbers, strict=False)
    )


def _is_infinity_made(inputs: Sequence[Any], made: Sequence[Any], again: Callable) -> bool:
    """Whether some of the infinities came from numbers alone."""
    if not any(np.isinf(array).any() for array in made):
        return False
    of_numbers = _outputs(inputs, again, np.isinf, lambda array: np.full_like(array, np.nan))
    pairs = zip(made, of_numbers, strict=False)
    return any((np.isinf(array) & np.isinf(number)).any() for array, number in pairs)


def _outputs(
    inputs: Sequence[Any], again: Callable, is_replaced: Callable, instead: Callable
) -> list[Any]:
    """Computes outputs with others in place of some numbers; none if that is refused."""
    arrays = [a if a is None else np.where(is_replaced(a), instead(a), a) for a in inputs]
    try:
        return _floats(again(arrays))
    except tf.errors.OpError:  # a matrix of it has no inverse, say
        return []


def _large(array: Any) -> Any:
    """Returns numbers of the same signs whose products are finite."""
    return np.copysign(np.sqrt(np.finfo(array.dtype).max), array)


def _array(tensor: Any) -> Any:
    return tensor.numpy() if tensor.dtype.is_floating else None


def _written(inputs: Sequence[Any]) -> list[Any]:
    """Returns the values of the variables that an operation has written to."""
    handles = [tensor for tensor in inputs if tensor.dtype == tf.resource]
    # Indices of rows, and counts of steps, are integers.
    dtype = next((t.dtype for t in inputs if t.dtype.is_floating), inputs[1].dtype)
    return [tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype) for handle in handles]


def are_finite(tensors: Iterable[Any]) -> bool:
    """Whether no floating number of these eager tensors is NaN or an infinity."""
    return all(np.isfinite(t.numpy()).all() for t in tensors if t.dtype.is_floating)


def _invalid_halves(
    made: Iterable[Any], kinds: frozenset[FloatingPointException], numerics: Numerics
) -> frozenset[FloatingPointException]:
    """Returns INV where halves become NaN: of infinities, and with `nanoo` of what is too large."""
    saturates = FloatingPointException.OFLO in kinds and not numerics.nanoo
    if saturates or FloatingPointException.DIV0 in kinds:
        return frozenset()
    halves = (value.numpy() for value in made if value.dtype == tf.float16)
    is_met = any(np.isinf(half).any() for half in halves)
    return frozenset({FloatingPointException.INV} if is_met else ())


def _as_halves(value: Any, kinds: frozenset[FloatingPointException], numerics: Numerics) -> Any:
    """Returns what an IPU has where a CPU has infinite halves."""
    if value.dtype != tf.float16:
        return value
    array = value.numpy()
    saturates = kinds == {FloatingPointException.OFLO} and not numerics.nanoo
    largest = np.copysign(_HALVES_LARGEST, array) if saturates else np.float16(np.nan)
    return tf.constant(np.where(np.isinf(array), largest, array))


def _steps_and_replica(program: Program, place: RunningPlace) -> tuple[int, int, int]:
    """Returns the last step, the number of steps, and the replica of an operation.

    They are as `StepGraphs` has them in loops.
    """
    steps, replicas = program.repeat_count, program.num_replicas
    of_call = next((number for number in place.calls if number), 0) if replicas > 1 else 0
    turn, total = 0, 1
    for turn, total in positions_of(place):
        if replicas > 1 and total == steps * replicas:
            return turn // replicas, 1, turn % replicas
        if total == steps and (steps > 1 or replicas == 1):
            return turn, 1, of_call
        if total > steps * replicas:
            break
    # A weight update comes after the last of its steps.
    each = max(steps // total, 1)
    return min((turn + 1) * each, steps) - 1, each, of_call


def _turn(program: Program, place: RunningPlace) -> int | None:
    """Returns the turn of the innermost loop that is no loop over steps or replicas."""
    if program.repeat_count > 1:
        return None
    of_program = (1, program.num_replicas)
    return next((turn for turn, total in place.turns[::-1] if total not in of_program), None)


def _message(program: Program, found: FoundException | None) -> str:
    start = f"Tiles in excepted state: the program {program.title!r} was stopped by "
    end = (
        " Variables have the values from before the execution. Change what makes the number, or "
        "the options `floating_point_behaviour` of the `IPUConfig` that stop at it."
    )
    if found is None:
        return start + "a floating-point exception that a second run did not meet again." + end
    return f"{start}{in_words(found, program)}{end}"


def in_words(found: FoundException, program: Program) -> str:
    """Returns a text that begins with the kind of an exception, and says all that is known."""
    kinds = " and ".join(sorted(kind.value for kind in found.kinds))
    where = f" of {found.layer!r}" if found.layer else ""
    if found.is_gradient:
        where = f" in the gradient{where}"
    if found.turn is not None:
        where = f"{where}, in turn {found.turn} of a loop"
    replica = ""
    if program.num_replicas > 1 and found.replica is not None:
        replica = f" of replica {found.replica}"
    step = f"step {found.step}"
    if found.num_steps > 1:
        step = f"one of the steps {found.step - found.num_steps + 1} to {found.step}"
    return (
        f"{kinds} in the operation {found.operation!r} ({found.type}){where}, in "
        f"{step}{replica} of the execution's {program.repeat_count} (all counts begin with 0)."
    )
