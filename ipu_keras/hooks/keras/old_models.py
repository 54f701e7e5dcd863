"""How TensorFlow's old Keras makes models, which TensorFlow keeps for itself."""

from collections.abc import Callable
from typing import Any

from ipu_keras.hooks.installation import install
from ipu_keras.internals.keras.models import old_model_class


def ask_before_old_models(ask: Callable[[], None]) -> None:
    """Has a function called before each model of `tensorflow.python.keras` is made.

    Args:
        ask: Raises if there must be none.
    """

    def wrapper(original: Callable) -> Callable:
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            ask()
            return original(cls, *args, **kwargs)

        return __new__

    install(old_model_class(), "__new__", wrapper)
