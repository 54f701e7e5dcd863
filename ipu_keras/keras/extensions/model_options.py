"""The methods of models that set the options of `ipu_keras.keras.extensions.options`."""

import dataclasses
from typing import Any

import keras

from ipu_keras.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_keras.keras.extensions import options


class ModelOptions:
    """What a model made in an `IPUStrategy`'s scope can be told about the IPU.

    Options are checked when they are set; what is refused changes nothing.
    """

    _ipu_options = options.ExtensionOptions()

    # Of Keras's trainer.
    train_function: Any
    test_function: Any
    predict_function: Any

    def set_asynchronous_callbacks(self, asynchronous: bool = False) -> None:
        """Chooses when the callbacks of batches run.

        Args:
            asynchronous: `False`: after each execution, with the results of
                its last step. `True`: once per step, on a second thread.
        """
        self._ipu_set(asynchronous_callbacks=bool(asynchronous))
        # They were made to return the logs of the last step or of all.
        self.train_function = self.test_function = self.predict_function = None

    def set_infeed_queue_options(self, **kwargs) -> None:
        """Sets options of the infeeds that `fit`, `evaluate` and `predict` make.

        Args:
            **kwargs: `prefetch_depth`, the executions whose data is prepared
                ahead, 1 to 255, `None` for the default; `feed_name`. The other
                arguments of `IPUInfeedQueue` take their defaults only.

        Raises:
            ValueError: A key is set by Keras itself, or a value cannot be
                honoured.
            TypeError: An infeed queue has no such argument.
        """
        depth, name = options.check_infeed_options(kwargs)
        self._ipu_set(prefetch_depth=depth, infeed_name=name)

    def set_outfeed_queue_options(self, **kwargs) -> None:
        """Checks options of the outfeeds; they have no effect, of which a warning tells.

        Args:
            **kwargs: `buffer_depth`, `feed_name`.

        Raises:
            ValueError: A key cannot be used with Keras, or a value cannot be
                honoured.
            TypeError: An outfeed queue has no such argument.
        """
        options.check_outfeed_options(kwargs)

    def set_gradient_accumulation_options(
        self,
        gradient_accumulation_steps_per_replica: int | None = None,
        gradient_accumulation_reduction_method="sum",
        **gradient_accumulation_optimizer_kwargs,
    ) -> None:
        """Checks the options of gradient accumulation, which this release does not have.

        Args:
            gradient_accumulation_steps_per_replica: Steps per weight update;
                `None` or 1 for none.
            gradient_accumulation_reduction_method: `"sum"`, `"mean"` or
                `"running_mean"`.
            **gradient_accumulation_optimizer_kwargs: Forwarded arguments.

        Raises:
            ValueError: An argument is not valid.
            NotImplementedError: More than one step is asked for.
        """
        options.check_accumulation_steps(gradient_accumulation_steps_per_replica)
        GradientAccumulationReductionMethod.parse(gradient_accumulation_reduction_method)
        options.check_accumulation_kwargs(gradient_accumulation_optimizer_kwargs)
        if (gradient_accumulation_steps_per_replica or 1) > 1:
            options.check_minimize(getattr(self, "optimizer", None), keras.optimizers.Optimizer)
            raise NotImplementedError(
                "Gradient accumulation is not available in this release. Received: "
                "gradient_accumulation_steps_per_replica="
                f"{gradient_accumulation_steps_per_replica}. Use larger batches instead."
            )

    def set_pipelining_options(
        self,
        gradient_accumulation_steps_per_replica: int | None = None,
        device_mapping: list[int] | None = None,
        accumulate_outfeed: bool | None = None,
        gradient_accumulation_reduction_method="sum",
        **pipelining_kwargs,
    ) -> None:
        """Checks the options of pipelining, which this release does not have.

        Args:
            gradient_accumulation_steps_per_replica: Steps per weight update.
            device_mapping: The IPU of each stage.
            accumulate_outfeed: Whether metrics are averaged on the device.
            gradient_accumulation_reduction_method: `"sum"`, `"mean"` or
                `"running_mean"`.
            **pipelining_kwargs: Forwarded to the pipeline.

        Raises:
            ValueError: An argument is not valid.
            NotImplementedError: All arguments are.
        """
        options.check_accumulation_steps(gradient_accumulation_steps_per_replica)
        options.check_device_mapping(device_mapping)
        GradientAccumulationReductionMethod.parse(gradient_accumulation_reduction_method)
        options.check_pipelining_kwargs(pipelining_kwargs)
        options.check_minimize(getattr(self, "optimizer", None), keras.optimizers.Optimizer)
        raise NotImplementedError(
            "Pipelined models are not available in this release. Received: pipelining options of "
            f"{type(self).__name__}. Run the model on one IPU without them."
        )

    def _ipu_set(self, **changes) -> None:
        self._ipu_options = dataclasses.replace(self._ipu_options, **changes)
