"""Hooks of sessions that read what programs on IPUs send."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from ipu_keras.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_keras.settings.arguments import name_or_none, positive_or_none


class IPULoggingTensorHook(tf.compat.v1.train.SessionRunHook):
    """Logs tensors of a program on an IPU, at level INFO of TensorFlow's log.

    Make it in the model function, let the program run what `log` returns, and hand it to the
    session, such as in `training_hooks`.

    Args:
        every_n_iter: After how many calls of the session values are logged.
        every_n_secs: After how many seconds values are logged. One of both must be given, unless
            `at_end`.
        at_end: Whether values are logged when the session ends.
        formatter: A function from a dict of names and values to the text that is logged.
        logging_mode: Which of the values since the last time are logged: `IPUOutfeedMode.LAST`, or
            `IPUOutfeedMode.ALL`, stacked.
        feed_name: Deprecated: what errors call the queue.
        replication_factor: Deprecated: the device says how many replicas there are.

    Raises:
        ValueError: Not exactly one of `every_n_iter` and `every_n_secs` is given, or a number is
            out of its range.

    Example:

        hook = IPULoggingTensorHook(every_n_iter=1)
        logged = hook.log({"loss": loss})
        return IPUEstimatorSpec(mode, loss=loss, train_op=tf.group(train_op, logged),
                                training_hooks=[hook])
    """

    LoggingMode = IPUOutfeedMode

    def __init__(
        self,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[Mapping[str, Any]], str] | None = None,
        logging_mode: IPUOutfeedMode = IPUOutfeedMode.LAST,
        feed_name: str | None = None,
        replication_factor: int | None = None,
    ):
        given = [value for value in (every_n_iter, every_n_secs) if value is not None]
        if len(given) > 1 or (not given and not at_end):
            raise ValueError(
                "Exactly one of `every_n_iter` and `every_n_secs` must be given, or none with "
                f"`at_end`. Received: every_n_iter={every_n_iter!r}, every_n_secs={every_n_secs!r}"
            )
        if every_n_secs is not None and not every_n_secs > 0:
            raise ValueError(f"`every_n_secs` must be positive. Received: {every_n_secs!r}")
        iterations = positive_or_none("every_n_iter", every_n_iter)
        self._timer = None
        if given:
            self._timer = tf.compat.v1.train.SecondOrStepTimer(every_n_secs, iterations)
        self._at_end = bool(at_end)
        self._formatter = _text if formatter is None else formatter
        self._queue = IPUOutfeedQueue(
            name_or_none("feed_name", feed_name),
            logging_mode,
            replication_factor=replication_factor,
        )
        self._names: Mapping[str, str] = {}
        self._values: Any = None
        self._num_runs = 0

    def log(self, tensors: Any) -> tf.Operation:
        """Sends tensors from a program, which has to run what is returned.

        Args:
            tensors: A tensor, a list or tuple of tensors, which are called by their own names, or
                a dict from names to tensors.

        Returns:
            The operation that sends them.

        Raises:
            ValueError: The hook sends other tensors of the same program already.
        """
        if isinstance(tensors, Mapping):
            named = dict(tensors)
        else:
            listed = tensors if isinstance(tensors, list | tuple) else [tensors]
            named = {tensor.name: tensor for tensor in listed}
        # By number, so that the order of the names is that of the user.
        self._names = {f"{number:06d}": name for number, name in enumerate(named)}
        return self._queue.enqueue(dict(zip(self._names, named.values(), strict=True)))

    def begin(self) -> None:
        """Makes the operations that read the values, before the graph is final.

        Raises:
            RuntimeError: No program of the graph sends anything.
        """
        if not self._queue.enqueued:
            raise RuntimeError(
                "This hook logs what a program sends: call its `log` in the model function, and "
                "let the program run what that returns."
            )
        self._values = self._queue.dequeue()
        self._num_runs = 0
        if self._timer is not None:
            self._timer.reset()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Logs the values, if it is time.

        Args:
            run_context: The `SessionRunContext` of the call that has ended.
            run_values: What the hook asked the session for, which is nothing.
        """
        timer = self._timer
        if timer is not None and timer.should_trigger_for_step(self._num_runs):
            timer.update_last_triggered_step(self._num_runs)
            self._log(run_context.session)
        self._num_runs += 1

    def end(self, session: tf.compat.v1.Session) -> None:
        """Logs the values at the end of a session, if that was asked for.

        Args:
            session: The session that will be closed.
        """
        if self._at_end:
            self._log(session)

    def _log(self, session: Any) -> None:
        found = session.run(self._values)
        tf.compat.v1.logging.info(
            self._formatter({name: found[key] for key, name in self._names.items()})
        )


def _text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())
