"""The loop of `predict`, over executions that return the outputs of all their steps."""

from typing import Any

import keras
import numpy as np
from keras import tree

from ipu_keras.internals.keras.training import TFEpochIterator
from ipu_keras.keras.extensions.async_callbacks import AsyncCallbackList, StepLogs


def predict_feed(
    model: keras.Model, epoch_iterator: TFEpochIterator, callbacks: keras.callbacks.CallbackList
) -> Any:
    """Predicts all batches, as NumPy arrays `(samples, ...)` in the model's output structure.

    Keras's own loop reads single batches from its iterator and joins tensors; here the iterator
    gives feeds, and an execution returns the outputs of all its steps.
    """
    model.make_predict_function()
    model.stop_predicting = False
    executions = []
    callbacks.on_predict_begin()
    for first, last, feed in epoch_iterator:
        callbacks.on_predict_batch_begin(first)
        outputs = model.predict_function(feed)
        executions.append(outputs)
        callbacks.on_predict_batch_end(last, _logs(outputs, callbacks))
        if model.stop_predicting:
            break
    callbacks.on_predict_end()
    return tree.map_structure(_joined, *executions)


def _logs(outputs: Any, callbacks: keras.callbacks.CallbackList) -> dict[str, Any]:
    if isinstance(callbacks, AsyncCallbackList):
        return StepLogs({"outputs": outputs})
    return {"outputs": tree.map_structure(_merged, outputs)}


def _merged(stacked: np.ndarray) -> np.ndarray:
    return stacked.reshape(-1, *stacked.shape[2:])


def _joined(*executions: np.ndarray) -> np.ndarray:
    return np.concatenate([_merged(outputs) for outputs in executions])
