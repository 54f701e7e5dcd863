"""Replaces the LSTM over a whole sequence that Keras asks its backend for."""

from collections.abc import Callable
from typing import Any

from ipu_keras.hooks.installation import install
from ipu_keras.internals.keras.backend import backend_module


def offer_lstm(compute: Callable[..., Any]) -> None:
    """Has `compute` stand in for the backend's LSTM over a sequence, unless it returns `None`."""

    def wrapper(original: Callable) -> Callable:
        def lstm(inputs, initial_state_h, initial_state_c, mask, *args, **kwargs):
            computed = None
            if not args and mask is None:
                computed = compute(inputs, initial_state_h, initial_state_c, **kwargs)
            if computed is not None:
                return computed
            return original(inputs, initial_state_h, initial_state_c, mask, *args, **kwargs)

        return lstm

    install(backend_module(), "lstm", wrapper)
