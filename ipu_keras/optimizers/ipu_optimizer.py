"""The base of all wrappers, which passes everything on to the optimizer that it wraps."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.optimizers import Optimizer
from ipu_keras.settings.arguments import noted


class IpuOptimizer(Optimizer):
    """An optimizer that does what another one does; for wrappers to override parts of it.

    The state is that of the wrapped optimizer, and so are checkpoints.

    Args:
        opt: The optimizer to wrap.
        name: Prefix of the operations that the wrapper makes itself; `None` for the name of its
            class.
        argument: Name of `opt` in errors, if a subclass calls it otherwise.

    Raises:
        ValueError: `opt` is not a `tf.compat.v1.train.Optimizer`; a Keras optimizer is none.

    Example:

    >>> class Clipping(IpuOptimizer):
    ...     def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    ...         clipped = [(tf.clip_by_value(g, -1.0, 1.0), v) for g, v in grads_and_vars]
    ...         return super().apply_gradients(clipped, global_step, name)
    >>> weight = tf.Variable(3.0)
    >>> optimizer = Clipping(tf.compat.v1.train.GradientDescentOptimizer(0.5))
    >>> _ = optimizer.apply_gradients([(tf.constant(10.0), weight)])
    >>> float(weight)
    2.5
    """

    def __init__(
        self,
        opt: tf.compat.v1.train.Optimizer,
        name: str | None = None,
        *,
        argument: str = "opt",
    ):
        if not isinstance(opt, tf.compat.v1.train.Optimizer):
            raise noted(
                ValueError(
                    "Should use optimizer in keras.ipu.optimizers (in the Keras package) to "
                    "wrap V2 optimizers"
                ),
                "This one wraps subclasses of tf.compat.v1.train.Optimizer, and Keras models "
                "accumulate and add gradients of replicas without a wrapper (see "
                f"`Model.set_gradient_accumulation_options`). Received: {argument}={opt!r}",
            )
        super().__init__(use_locking=False, name=name or type(self).__name__)
        self._opt = opt

    @property
    def wrapped(self) -> tf.compat.v1.train.Optimizer:
        """The optimizer that this one wraps."""
        return self._opt

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> list[tuple]:
        """Computes gradients with the wrapped optimizer.

        Args:
            loss: The tensor to minimize; a callable that returns it, in eager mode.
            var_list: The variables to train; `None` for all trainable ones of the graph.
            **kwargs: Further arguments of the wrapped optimizer's method.

        Returns:
            Pairs of a gradient, or `None`, and its variable.
        """
        return self._opt.compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple],
        global_step: Any = None,
        name: str | None = None,
    ) -> Any:
        """Updates variables with the wrapped optimizer.

        Args:
            grads_and_vars: Pairs of a gradient and its variable, as `compute_gradients` returns.
            global_step: A variable to add 1 to after the update; `None` for none.
            name: Name of the returned operation.

        Returns:
            The operation that does it; `None` in eager mode, where it is done.

        Raises:
            ValueError: There is no gradient for any variable.
        """
        return self._opt.apply_gradients(grads_and_vars, global_step, name)

    def get_name(self) -> str:
        """Returns the name of the wrapped optimizer."""
        return self._opt.get_name()

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Returns state of the wrapped optimizer for a variable.

        Args:
            *args: Arguments of the wrapped optimizer's method.
            **kwargs: Arguments of the wrapped optimizer's method by name.

        Returns:
            A variable; `None` if there is none.
        """
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """Returns the names of the wrapped optimizer's state that each variable has.

        Args:
            *args: Arguments of the wrapped optimizer's method.
            **kwargs: Arguments of the wrapped optimizer's method by name.
        """
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list:
        """Returns all state of the wrapped optimizer."""
        return self._opt.variables()

    # For TensorFlow's checkpoints of objects, a wrapper is the optimizer that it wraps: if both
    # had the same slots, they would raise an error.

    def _trackable_children(self, *args: Any, **kwargs: Any) -> dict:
        return self._opt._trackable_children(*args, **kwargs)

    def _lookup_dependency(self, *args: Any, **kwargs: Any) -> Any:
        return self._opt._lookup_dependency(*args, **kwargs)

    def _create_or_restore_slot_variable(
        self, slot_variable_position: Any, slot_name: str, variable: Any
    ) -> None:
        self._opt._create_or_restore_slot_variable(slot_variable_position, slot_name, variable)

    @property
    def _deferred_dependencies(self) -> dict:
        self._opt._maybe_initialize_trackable()
        return self._opt._deferred_dependencies
