"""The weights of legacy Sequential models, which cannot be had before the model has run."""

import contextlib
from collections.abc import Iterator

from ipu_keras.keras.legacy.legacy_model import LegacyModel


class LateWeights(LegacyModel):
    """A legacy model that has no trainable variables before `fit`, `evaluate` or `predict`."""

    _ipu_has_run = False

    @property
    def trainable_variables(self):
        """As in Keras, once the model has run.

        Raises:
            ValueError: It has not.
        """
        self._ipu_check_has_run()
        return super().trainable_variables

    @property
    def trainable_weights(self):
        """As in Keras, once the model has run.

        Raises:
            ValueError: It has not.
        """
        self._ipu_check_has_run()
        return super().trainable_weights

    def summary(self, *args, **kwargs):
        """As in Keras.

        Args:
            *args: As in Keras.
            **kwargs: As in Keras.
        """
        with self._ipu_called_by_program():  # it counts the trainable weights that there are
            super().summary(*args, **kwargs)

    def _ipu_check_has_run(self) -> None:
        if not (self._ipu_has_run or self._ipu_run is not None or self._ipu_by_program):
            raise ValueError(
                f"Weights for model {self.name} have not yet been created. The list of trainable "
                f"variables of {type(self).__name__} can be had after `fit`, `evaluate` or "
                "`predict` has run."
            )

    @contextlib.contextmanager
    def _ipu_running(self, *args, **kwargs) -> Iterator[None]:
        with super()._ipu_running(*args, **kwargs):
            yield
        self._ipu_has_run = True
