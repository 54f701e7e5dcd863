"""Callbacks of batches that run once per step, on a thread beside the executions."""

import queue
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf


class StepLogs(dict):
    """The logs of an execution's last step, which also hold those of every step.

    The first axis of each value in `stacked` is over the steps and, within a step, its replicas.
    """

    def __init__(self, stacked: dict[str, Any], num_replicas: int = 1):
        self.num_replicas = num_replicas
        # The last row is the last replica's, whose metrics a program of several replicas
        # reports.
        super().__init__(tf.nest.map_structure(lambda values: values[-1], stacked))
        num_steps = len(tf.nest.flatten(stacked)[0])
        self.steps = [
            tf.nest.map_structure(lambda values, step=step: np.asarray(values)[step], stacked)
            for step in range(num_steps)
        ]


class AsyncCallbackList(keras.callbacks.CallbackList):
    """Calls the callbacks of batches on a second thread, once per step and replica, in order.

    The callbacks of epochs and of the whole run wait until those of all steps before them are
    done. What a callback raises is raised at the next batch or at the end of the epoch.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # Keras hands callbacks that it takes for safe to a pool of threads, which keeps no
        # order.
        self._async_train = self._async_test = self._async_predict = False
        self._calls: queue.SimpleQueue = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._ended = False
        self._thread: threading.Thread | None = None

    def on_train_batch_begin(self, batch, logs=None):
        """Does nothing: the second thread begins each step."""

    def on_train_batch_end(self, batch, logs=None):
        self._each_step(super().on_train_batch_begin, super().on_train_batch_end, batch, logs)

    def on_test_batch_begin(self, batch, logs=None):
        """Does nothing: the second thread begins each step."""

    def on_test_batch_end(self, batch, logs=None):
        self._each_step(super().on_test_batch_begin, super().on_test_batch_end, batch, logs)

    def on_predict_batch_begin(self, batch, logs=None):
        """Does nothing: the second thread begins each step."""

    def on_predict_batch_end(self, batch, logs=None):
        self._each_step(super().on_predict_batch_begin, super().on_predict_batch_end, batch, logs)

    def on_epoch_end(self, epoch, logs=None):
        self.wait()
        super().on_epoch_end(epoch, logs)

    def on_train_end(self, logs=None):
        self.wait()
        super().on_train_end(logs)

    def on_test_begin(self, logs=None):
        self.wait()
        super().on_test_begin(logs)

    def on_test_end(self, logs=None):
        self.wait()
        super().on_test_end(logs)

    def on_predict_end(self, logs=None):
        self.wait()
        super().on_predict_end(logs)

    def wait(self) -> None:
        """Waits for the callbacks of all steps so far, and raises what one of them raised."""
        self._stop()
        self._raise_error()

    def close(self) -> None:
        """Ends the thread; calls that have not begun are dropped."""
        self._ended = True
        self._stop()

    def _each_step(self, begin: Callable, end: Callable, last: int, logs: StepLogs) -> None:
        self._raise_error()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="ipu-callbacks", daemon=True)
            self._thread.start()
        # Keras tells of an execution by the index of its last step.
        first = last + 1 - len(logs.steps) // logs.num_replicas
        for index, step_logs in enumerate(logs.steps):
            self._calls.put((begin, end, first + index // logs.num_replicas, step_logs))

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            # The calls that are left are still taken off, up to the `None` that ends the loop.
            if self._ended:
                continue
            begin, end, step, logs = call
            try:
                begin(step)
                end(step, logs)
            except BaseException as error:  # raised again on the caller's thread
                self._error = error
                self._ended = True

    def _stop(self) -> None:
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()
            self._thread = None

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
