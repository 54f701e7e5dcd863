"""The class that documents call `tensorflow.python.ipu.keras.Sequential`."""

import keras

from ipu_keras.keras.extensions.sequential_extension import SequentialExtension
from ipu_keras.keras.legacy.late_weights import LateWeights
from ipu_keras.keras.legacy.legacy_model import accumulation


class Sequential(LateWeights, keras.Sequential, SequentialExtension):
    """A stack of layers in place of `keras.Sequential`, on one IPU or one for each replica.

    It runs as `Model` of this package does. Its trainable variables can be had after it has run.

    Args:
        layers: List of layers, as `keras.Sequential` takes it.
        gradient_accumulation_count: Batches of each replica for a weight update, as for `Model`.
        gradient_accumulation_dtype: Type of the accumulators, as for `Model`.
        name: Name of the model.

    Raises:
        ValueError: The count is not a positive integer.
        TypeError: The dtype is neither a floating point type nor a function.

    Example:

    >>> import keras, numpy as np
    >>> from ipu_keras.ipu_strategy import IPUStrategy
    >>> with IPUStrategy().scope():
    ...     model = Sequential([keras.layers.Dense(1)], gradient_accumulation_count=4)
    ...     model.compile("sgd", "mse")
    ...     data = np.zeros((16, 4), np.float32), np.zeros((16, 1), np.float32)
    ...     history = model.fit(*data, batch_size=2, verbose=0)
    >>> history.params["steps"], len(model.trainable_variables)
    (2, 2)
    """

    def __init__(
        self,
        layers=None,
        *,
        gradient_accumulation_count: int = 1,
        gradient_accumulation_dtype=None,
        name: str | None = None,
    ):
        options = accumulation(gradient_accumulation_count, gradient_accumulation_dtype)
        keras.Sequential.__init__(self, layers, name=name)
        # No stages, whatever scopes its layers were made in.
        self._ipu.set(accumulation=options, stages=())
