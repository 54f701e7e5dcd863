"""The callback that shows in the lines of `fit` and `evaluate` what an IPU would take."""

import math
from itertools import chain, repeat
from typing import Any, NamedTuple

import keras

from ipu_keras.keras.extensions.model_extension import ModelExtension
from ipu_keras.keras.extensions.step_function import StepFunction
from ipu_keras.machine.target import Target
from ipu_keras.profiling.given_options import target_of
from ipu_keras.profiling.models import model_of_executable
from ipu_keras.program.executable import Executable
from ipu_keras.progress import showing

_SPANS = ("step", "epoch")


class _Estimate(NamedTuple):
    """The cost model's figures for one step of a program."""

    cycles: int
    seconds: float


class EstimatedCycles(keras.callbacks.Callback):
    """Adds to the logs of each epoch of `fit`, and of `evaluate`, what it would take on an IPU.

    The numbers are the cost model's. Keras prints them at the end of the line and keeps those of
    `fit` in the `History`, as it does with the loss; `evaluate` returns metrics alone. Other
    callbacks find the numbers in `logs` if they come after this one. Validation within `fit`
    gets none, nor does `predict`, which has no logs; use `last_report` there. They are for the
    programs that ran, with their replicas, stages, accumulation and `steps_per_execution`,
    copies between host and IPU included. Each program is modelled once, after the epoch in which
    it first ran. An epoch for which no data were left gets NaN per step.

    Args:
        per: `"step"` for one batch on each replica, or `"epoch"` for all executions of an epoch
            or of an evaluation.
        target: Name of the hardware, or a `Target`; `None` takes that of the active `IPUConfig`.

    Raises:
        ValueError: `per` or `target` is none of these, or, when `fit` or `evaluate` begins, the
            model was not made in the scope of an `IPUStrategy`.

    Example:

    >>> import keras, numpy as np
    >>> from ipu_keras.ipu_strategy import IPUStrategy
    >>> with IPUStrategy().scope():
    ...     model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse", steps_per_execution=2)
    >>> data = np.zeros((16, 4), np.float32), np.zeros((16, 1), np.float32)
    >>> history = model.fit(*data, 4, verbose=0, callbacks=[EstimatedCycles()])
    >>> sorted(history.history)
    ['ipu_cycles_per_step', 'ipu_ms_per_step', 'loss']
    """

    def __init__(self, *, per: str = "step", target: str | Target | None = None):
        super().__init__()
        if per not in _SPANS:
            raise ValueError(f"`per` must be one of {', '.join(_SPANS)}. Received: per={per!r}")
        self._per = per
        self._options = {} if target is None else {"target": target_of(target)}
        # How often each program had run before this epoch: a step function counts its runs over
        # its whole life, and later epochs may have added programs.
        self._before: tuple[int, ...] = ()
        self._trains = False
        # Searched by identity, and short: one entry for each program that ran.
        self._estimates: list[tuple[Executable, _Estimate]] = []

    def set_model(self, model: Any) -> None:
        """Takes the model, as Keras's callbacks do.

        Raises:
            ValueError: The model was not made in the scope of an `IPUStrategy`.
        """
        if not isinstance(model, ModelExtension):
            raise ValueError(
                "EstimatedCycles is for models that run as programs of an IPU. Make the model in "
                "the scope of an IPUStrategy: `with strategy.scope():`; `ipu_keras.profile` models "
                f"any other. Received: {model.name!r}, of strategy "
                f"{type(model.distribute_strategy).__name__}"
            )
        super().set_model(model)
        # Keras sets the model before each call; one that was interrupted has not ended.
        # Keras sets the model before each call of `fit`, and one that was interrupted has not
        # ended.
        self._trains = False

    def on_train_begin(self, logs=None):
        self._trains = True

    def on_train_end(self, logs=None):
        self._trains = False

    def on_epoch_begin(self, epoch, logs=None):
        self._before = self.model.train_function.num_runs

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs.update(self._estimated(self.model.train_function))

    def on_test_begin(self, logs=None):
        # `fit` tells its callbacks of its validation, too.
        if not self._trains:
            self._before = self.model.test_function.num_runs

    def on_test_end(self, logs=None):
        if logs is not None and not self._trains:
            logs.update(self._estimated(self.model.test_function))

    def _estimated(self, function: StepFunction) -> dict[str, float]:
        """Returns cycles and milliseconds under their names in the logs."""
        cycles, seconds, steps = 0, 0.0, 0
        earlier = chain(self._before, repeat(0))
        runs = zip(function.executables, function.num_runs, earlier, strict=False)
        for executable, now, before in runs:
            if now == before:
                continue  # modelling takes seconds, so only what ran in this epoch
            estimate = self._estimate_of(executable)
            num_steps = (now - before) * executable.program.repeat_count
            cycles += estimate.cycles * num_steps
            seconds += estimate.seconds * num_steps
            steps += num_steps
        names = f"ipu_cycles_per_{self._per}", f"ipu_ms_per_{self._per}"
        count = steps if self._per == "step" else 1
        if count == 0:  # data had ended before the epoch began
            return dict.fromkeys(names, math.nan)
        return dict(zip(names, (round(cycles / count), seconds * 1e3 / count), strict=True))

    def _estimate_of(self, executable: Executable) -> _Estimate:
        for known, estimate in self._estimates:
            if known is executable:
                return estimate
        with showing(f"estimate cycles of {executable.program.title}"):
            model = model_of_executable(executable, **self._options)
        estimate = _Estimate(model.cycles_per_step, model.cycles_per_step / model.target.clock_hz)
        self._estimates.append((executable, estimate))
        return estimate
