"""Has floating point exceptions stop what sessions run, with variables as they were.

A session has variables and lists of its own, which nothing else can see. So its graph gets
operations that keep what is needed, and others that it runs when an execution is over.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.host.exceptions import Again, ExceptionWatch, TilesExceptedError, are_finite
from ipu_keras.host.kept_transfers import KeptTransfer, KeptTransfers
from ipu_keras.host.lost_numbers import noting_lost_numbers
from ipu_keras.host.replicas.replica_variables import written_captures
from ipu_keras.internals.tensorflow.contexts import eagerly
from ipu_keras.internals.tensorflow.functions import unused_number
from ipu_keras.internals.tensorflow.variables import contents_of, plain_variable
from ipu_keras.program import Program


class WatchedInSession:
    """Watches the executions of a traced function by sessions.

    Args:
        concrete: The trace that runs, which is for all replicas if there are several.
        copies: Variables of replicas, which an execution writes before it reads them.

    Attributes:
        function: What is to be called instead.
    """

    def __init__(self, concrete: Any, copies: Sequence[Any]):
        self._concrete = concrete
        self._transfers = KeptTransfers(concrete)
        self.function, self._flag_of_lost = noting_lost_numbers(self._transfers.function)
        own = {copy.handle.ref() for copy in copies}
        captured = concrete.captured_inputs
        self._handles = [h for h in captured if _is_variable(h) and h.ref() not in own]
        self._written = [h for h in written_captures(concrete) if h.ref() not in own]

    def called(
        self, call: Callable[[], Sequence[tf.Tensor]], given: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], tf.Operation]:
        """Puts a call, and what watches it, into the graph; returns its results and what runs all.

        Args:
            call: Makes the call with `given`.
        """
        captured = [t for t in self._concrete.captured_inputs if t.dtype != tf.resource]
        with tf.control_dependencies([one.clear() for one in self._transfers.kept]):
            values = [*given, *captured, *map(_value, self._handles)]
            # TensorFlow's lists have elements of at least one tensor.
            self._before, kept = _kept(values or [tf.constant(0)])
        with tf.control_dependencies([kept]):
            found = list(call())
        operations = reversed(kept.graph.get_operations())
        operation = next(op for op in operations if "PartitionedCall" in op.type)
        with tf.control_dependencies([operation]):
            made = [t for t in [*found, *map(_value, self._written)] if t.dtype.is_floating]
            finite = [tf.reduce_all(tf.math.is_finite(tensor)) for tensor in made]
            self._finite, kept = _kept([tf.reduce_all(tf.stack([True, *finite]))])
        self._look()
        with tf.control_dependencies([kept]):
            return [tf.identity(tensor) for tensor in found], kept

    def begin(self) -> None:
        """Is called before each execution that is to be checked."""
        self._flag_of_lost.lower()

    def check(
        self,
        session: tf.compat.v1.Session,
        program: Program,
        operations: Callable[[], Collection[str]],
    ) -> None:
        """Raises `TilesExceptedError` if the last execution met what stops it.

        Args:
            program: What an error is about, with the exceptions that stop it.
            operations: The same as for `ExceptionWatch`.
        """
        [is_finite], sizes = session.run([self._are_finite, self._sizes])
        values = {
            one: [session.run(peek, {self._index: k}) for k in range(size)]
            for one, peek, size in zip(self._transfers.kept, self._peeks, sizes, strict=True)
        }
        with eagerly(), tf.device("/device:CPU:0"):
            again = self._transfers.again(
                {one: list(map(one.of_fetched, each)) for one, each in values.items()}
            )
            is_shown = not (is_finite and are_finite(again.sent))
            if not (is_shown or self._flag_of_lost.is_raised):
                return
            before = session.run(self._peek_before)
            error = self._error(
                list(map(tf.constant, before)), again, program, operations, is_shown=is_shown
            )
        if error is not None:
            restored = before[len(before) - len(self._handles) :]
            session.run(self._restored, dict(zip(self._places, restored, strict=True)))
            raise error

    def _look(self) -> None:
        """Makes the operations that a session runs when an execution is over."""
        transfers = self._transfers.kept
        self._index = tf.compat.v1.placeholder(tf.int32, ())
        self._are_finite = self._finite.at(0)
        self._sizes = [one.size() for one in transfers]
        self._peeks = [one.fetched_at(self._index) for one in transfers]
        self._peek_before = self._before.at(0)
        written = {handle.ref() for handle in self._written}
        self._places = [tf.compat.v1.placeholder(_contents(h)[1]) for h in self._handles]
        self._restored = [
            tf.raw_ops.AssignVariableOp(resource=handle, value=place)
            for handle, place in zip(self._handles, self._places, strict=True)
            if handle.ref() in written
        ]

    def _error(
        self,
        before: Sequence[Any],
        again: Again,
        program: Program,
        operations: Callable[[], Collection[str]],
        *,
        is_shown: bool,
    ) -> TilesExceptedError | None:
        """Returns what stopped an execution, which runs once more with variables of its own."""
        num_variables = len(self._handles)
        values = before[len(before) - num_variables :]
        given = iter(before[: len(before) - num_variables])
        variables = {
            handle.ref(): plain_variable(value, trainable=False, name="stands_in")
            for handle, value in zip(self._handles, values, strict=True)
        }
        captured = self._concrete.captured_inputs
        tensors = [next(given) for _ in range(len(self._concrete.inputs) - len(captured))]
        captures = []
        for tensor in captured:
            if tensor.dtype != tf.resource:
                captures.append(next(given))
            elif _is_variable(tensor):
                if tensor.ref() not in variables:
                    shape, dtype = _contents(tensor)
                    zeros = tf.zeros(shape, dtype)
                    variables[tensor.ref()] = plain_variable(zeros, trainable=False, name="copy")
                captures.append(variables[tensor.ref()].handle)
            else:
                # Nothing that has it runs once more.
                captures.append(None)
        watch = ExceptionWatch(
            program, lambda: self._concrete, variables.values(), operations, captures
        )
        return watch.error(values, tensors, again, is_shown=is_shown)


def _kept(tensors: Sequence[tf.Tensor]) -> tuple[KeptTransfer, tf.Operation]:
    """Has a graph keep tensors until it runs again; returns the list, and what does it."""
    dtypes = tuple(tensor.dtype for tensor in tensors)
    one = KeptTransfer(f"ipu_kept_{unused_number()}", dtypes, is_sent=False)
    with tf.control_dependencies([one.clear()]):
        return one, tf.raw_ops.Stage(values=tensors, shared_name=one.name)


def _is_variable(handle: tf.Tensor) -> bool:
    return handle.dtype == tf.resource and contents_of(handle) is not None


def _contents(handle: tf.Tensor) -> tuple[tf.TensorShape, tf.DType]:
    [found] = contents_of(handle) or []
    return found


def _value(handle: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=_contents(handle)[1])
