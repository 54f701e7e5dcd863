"""The class that documents call `tensorflow.python.ipu.keras.Model`."""

from ipu_keras.internals.keras.models import Functional
from ipu_keras.keras.extensions.functional_extension import FunctionalExtension
from ipu_keras.keras.legacy.legacy_model import LegacyModel, accumulation


class Model(LegacyModel, Functional, FunctionalExtension):
    """A functional model in place of `keras.Model`, on one IPU or one for each replica.

    `fit`, `evaluate` and `predict` are called in the scope of an `IPUStrategy`, in which the
    model is made too, or to which it moves when it is first used. All steps of an epoch are one
    execution on the device. A step of `fit` is a weight update: `steps_per_epoch`, the progress
    bar and callbacks count these. On a device of several IPUs each has a replica, which takes
    batches of its own, and the gradients of all replicas are added; `steps_per_epoch` counts the
    steps of all. Samples of arrays that fill no batch are dropped, with a warning; `predict`
    takes no labels.

    Stages of `PipelineStage` have no effect on it; `PipelineModel` has stages.

    Args:
        inputs: Inputs of a functional `keras.Model`.
        outputs: Outputs of a functional `keras.Model`.
        gradient_accumulation_count: Batches of each replica for a weight update, whose gradients
            are added. The batches of an epoch must be a multiple of it, times the replicas.
        gradient_accumulation_dtype: Type of the accumulators: `None` for that of each variable,
            a dtype, or a function from a variable to its dtype.
        name: Name of the model.

    Raises:
        ValueError: The count is not a positive integer.
        TypeError: The dtype is neither a floating point type nor a function.

    Example:

    >>> import keras, numpy as np
    >>> from ipu_keras.ipu_strategy import IPUStrategy
    >>> with IPUStrategy().scope():
    ...     inputs = keras.Input((4,))
    ...     outputs = keras.layers.Dense(1)(inputs)
    ...     model = Model(inputs, outputs, gradient_accumulation_count=2)
    ...     model.compile("sgd", "mse")
    ...     data = np.zeros((16, 4), np.float32), np.zeros((16, 1), np.float32)
    ...     history = model.fit(*data, batch_size=2, verbose=0)
    >>> history.params["steps"]
    4
    """

    def __init__(
        self,
        inputs,
        outputs,
        *,
        gradient_accumulation_count: int = 1,
        gradient_accumulation_dtype=None,
        name: str | None = None,
    ):
        options = accumulation(gradient_accumulation_count, gradient_accumulation_dtype)
        Functional.__init__(self, inputs, outputs, name=name)
        # No stages, whatever scopes its layers were called in.
        self._ipu.set(accumulation=options, stages=())
