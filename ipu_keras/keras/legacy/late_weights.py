"""Legacy Sequential models, whose weights cannot be had before the model has run."""

from ipu_keras.keras.legacy.legacy_model import LegacyModel


class LateWeights(LegacyModel):
    """A legacy model that has no trainable variables before `fit`, `evaluate` or `predict`."""

    @property
    def trainable_variables(self):
        """The trainable variables, as in Keras; a ValueError before the model has run."""
        _check_has_run(self)
        return super().trainable_variables

    @property
    def trainable_weights(self):
        """The trainable weights, as in Keras; a ValueError before the model has run."""
        _check_has_run(self)
        return super().trainable_weights

    def summary(self, *args, **kwargs):
        """Prints the summary of Keras, also before the model has run.

        Args:
            *args: Arguments of `keras.Model.summary`, in its order.
            **kwargs: Arguments of `keras.Model.summary` by name.
        """
        with self._ipu.called_by_program():  # which lets Keras count the weights
            super().summary(*args, **kwargs)


def _check_has_run(model: LateWeights) -> None:
    on_ipu = model._ipu
    if not (on_ipu.has_run or on_ipu.is_running or on_ipu.is_called_by_program):
        raise ValueError(
            f"Weights for model {model.name} have not yet been created. The list of trainable "
            f"variables of {type(model).__name__} can be had after `fit`, `evaluate` or "
            "`predict` has run."
        )
