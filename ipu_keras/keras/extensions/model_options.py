"""The methods of models that set their options on the IPU."""

from typing import Any

import keras

from ipu_keras.keras.extensions import option_checks
from ipu_keras.keras.extensions.accumulation_options import (
    accumulation_options,
    check_minimize,
    warn_of_no_effect,
)
from ipu_keras.keras.extensions.pipelining_options import pipelining_options
from ipu_keras.settings.arguments import checked_switch


class ModelOptions:
    """Methods by which a model made in an `IPUStrategy`'s scope is told how to run on the IPU.

    Options are checked when they are set; a call that is refused changes nothing.
    """

    _ipu: Any  # the extension defines it

    def set_asynchronous_callbacks(self, asynchronous: bool = False) -> None:
        """Chooses when the callbacks of batches run.

        Args:
            asynchronous: `False` calls them after each execution, with the results of its last
                step; `True` once per step, on a second thread.

        Raises:
            TypeError: `asynchronous` is not a boolean.
        """
        self._ipu.set(asynchronous_callbacks=checked_switch("asynchronous", asynchronous))

    def set_infeed_queue_options(self, **kwargs) -> None:
        """Sets options of the infeeds that `fit`, `evaluate` and `predict` make.

        Args:
            **kwargs: `prefetch_depth` is the number of executions whose data is prepared ahead,
                from 1 to 255, or `None` for the default; `feed_name` is the infeeds' name in
                errors. The other arguments of `IPUInfeedQueue` take their defaults only.

        Raises:
            ValueError: A key is set by Keras itself, or a value cannot be honoured.
            TypeError: An infeed queue has no such argument.
        """
        depth, name = option_checks.check_infeed_options(kwargs)
        self._ipu.set(prefetch_depth=depth, infeed_name=name)

    def set_outfeed_queue_options(self, **kwargs) -> None:
        """Checks options of the outfeeds, and uses none of them.

        Has no effect: results of an execution are handed over as soon as it ends, without a buffer,
        which a warning says.

        Args:
            **kwargs: `buffer_depth`, a positive integer, and `feed_name`, a text.

        Raises:
            ValueError: A key cannot be used with Keras, or a value cannot be honoured.
            TypeError: An outfeed queue has no such argument.
        """
        option_checks.check_outfeed_options(kwargs)

    def set_gradient_accumulation_options(
        self,
        gradient_accumulation_steps_per_replica: int | None = None,
        gradient_accumulation_reduction_method="sum",
        **gradient_accumulation_optimizer_kwargs,
    ) -> None:
        """Sets how a model that is not pipelined accumulates gradients in training.

        Args:
            gradient_accumulation_steps_per_replica: Steps per weight update; `None` or 1 for no
                accumulation. Saved with the model.
            gradient_accumulation_reduction_method: `"sum"`, `"mean"`, `"running_mean"` or a
                `GradientAccumulationReductionMethod`. Saved with the model.
            **gradient_accumulation_optimizer_kwargs: The arguments `dtype`, `name`,
                `offload_weight_update_variables` and `replicated_optimizer_state_sharding` of
                `GradientAccumulationOptimizerV2`. All but the first have no effect without a
                pipeline, which gives a warning. Not saved.

        Raises:
            ValueError: An argument is not valid, or the optimizer overrides `minimize`.
            TypeError: The optimizer has no such argument, or a value has the wrong type.
        """
        accumulation = accumulation_options(
            gradient_accumulation_steps_per_replica,
            gradient_accumulation_reduction_method,
            gradient_accumulation_optimizer_kwargs,
        )
        if (accumulation.steps_per_replica or 1) > 1:
            check_minimize(getattr(self, "optimizer", None), keras.optimizers.Optimizer)
        warn_of_no_effect(accumulation)
        self._ipu.set(accumulation=accumulation)

    def set_pipelining_options(
        self,
        gradient_accumulation_steps_per_replica: int | None = None,
        device_mapping: list[int] | None = None,
        accumulate_outfeed: bool | None = None,
        gradient_accumulation_reduction_method="sum",
        **pipelining_kwargs,
    ) -> None:
        """Sets how a pipelined model runs, that is, one whose layers have pipeline stages.

        Args:
            gradient_accumulation_steps_per_replica: Steps per weight update, which training
                needs; `evaluate` and `predict` ignore it. Saved with the model, as all arguments
                but `pipelining_kwargs` are.
            device_mapping: The IPU of each stage; `None` gives each stage an IPU of its own, in
                order.
            accumulate_outfeed: Whether metrics reach the host once for all accumulated steps, or
                in `evaluate` once for those of an execution; callbacks run as often. The final
                metrics are the same.
            gradient_accumulation_reduction_method: `"sum"`, `"mean"`, `"running_mean"` or a
                `GradientAccumulationReductionMethod`.
            **pipelining_kwargs: Arguments of `pipelining_ops.pipeline`. Not saved.

        Raises:
            ValueError: An argument is not valid, or the optimizer overrides `minimize`.
            TypeError: `pipeline` has no such argument, or a value has the wrong type.
            NotImplementedError: `continuous_weight_updates` is set, which hardware lacks too.
        """
        pipelining = pipelining_options(
            gradient_accumulation_steps_per_replica,
            device_mapping,
            accumulate_outfeed,
            gradient_accumulation_reduction_method,
            pipelining_kwargs,
        )
        check_minimize(getattr(self, "optimizer", None), keras.optimizers.Optimizer)
        self._ipu.set(pipelining=pipelining)
