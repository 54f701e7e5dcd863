"""Changes how the name scopes that Keras opens for layers are entered."""

from collections.abc import Callable
from typing import Any

from ipu_keras.hooks.installation import install
from ipu_keras.internals.keras.backend import name_scope


def surround_name_scopes(enter: Callable[[Any, Callable[[Any], Any]], Any]) -> None:
    """Lets another function enter Keras's name scopes: it takes the scope and its `__enter__`.

    Keras offers no hook there: the scope is opened in the middle of a layer's `__call__`.
    """

    def wrapper(original: Callable) -> Callable:
        def __enter__(self):
            return enter(self, original)

        return __enter__

    install(name_scope(), "__enter__", wrapper)
