"""Optimizers that update weights once for several batches."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.ops.argument_checks import integer_in, received
from ipu_keras.optimizers.accumulator_options import (
    DTypeChoice,
    check_choice,
    dtype_choice,
    dtype_for,
)
from ipu_keras.optimizers.cross_replica_optimizer import CrossReplicaOptimizer, averages
from ipu_keras.optimizers.ipu_optimizer import IpuOptimizer
from ipu_keras.settings.arguments import MOST, noted
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_keras.tracing.accumulations import (
    are_accumulators_hidden,
    note_accumulation,
    note_accumulators,
)

_SUPPORTED_BY_V1 = (
    tf.compat.v1.train.GradientDescentOptimizer,
    tf.compat.v1.train.MomentumOptimizer,
)

# Slots of the wrapper itself. The count of a call of `apply_gradients` belongs to the first
# variable that it trains, so that one optimizer may train several groups of variables in turn.
_ACCUMULATOR = "gradient_accumulator"
_COUNT = "num_accumulated"


class GradientAccumulationOptimizerV2(IpuOptimizer):
    """Adds up the gradients of several batches, and updates weights with their sum.

    The wrapper takes any optimizer. Each time that gradients are applied they are added to
    accumulators; every `num_mini_batches`-th time the wrapped optimizer gets what these hold,
    which is then reset. That is also when `global_step` is counted.

    A wrapped `CrossReplicaOptimizer` averages the accumulated gradients over replicas. The host
    exchanges them each time, as replicas must not wait for each other in a branch; an IPU does
    it when weights are updated, with the same result.

    Args:
        opt: The optimizer to wrap.
        num_mini_batches: How many batches make a weight update.
        offload_weight_update_variables: Whether variables that only the weight update needs
            are kept in remote memory. `True` has no effect: the host has none, which a warning
            says.
        replicated_optimizer_state_sharding: Whether each replica has only a part of those
            variables; `None` if they are offloaded. `True` has no effect: the host keeps them
            once, which a warning says.
        dtype: Type of the accumulators: `None` for that of each variable, a dtype, or a function
            from a variable to one. The wrapped optimizer gets gradients of that type and has to
            cast them if it differs from the variable's, which TensorFlow's own do not.
        name: Prefix of the operations. Defaults to `"GradientAccumulationOptimizerV2"`.
        reduction_method: How gradients become one, a `GradientAccumulationReductionMethod` or
            its name. Defaults to `SUM`.

    Raises:
        ValueError: `opt` is not a `tf.compat.v1.train.Optimizer`, `num_mini_batches` is not
            positive, or `reduction_method` is unknown.
        TypeError: An option has a wrong type.

    Example:

    >>> weight = tf.Variable(3.0)
    >>> stock = tf.compat.v1.train.GradientDescentOptimizer(0.5)
    >>> optimizer = GradientAccumulationOptimizerV2(stock, num_mini_batches=2)
    >>> _ = optimizer.apply_gradients([(tf.constant(1.0), weight)])
    >>> float(weight)
    3.0
    >>> _ = optimizer.apply_gradients([(tf.constant(3.0), weight)])
    >>> float(weight)
    1.0
    """

    def __init__(
        self,
        opt: tf.compat.v1.train.Optimizer,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool | None = False,
        dtype: DTypeChoice = None,
        name: str = "GradientAccumulationOptimizerV2",
        *,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
    ):
        super().__init__(opt, name)
        self._num_mini_batches = _checked_num_mini_batches(num_mini_batches)
        _warn_of_no_effect(
            offload_weight_update_variables=offload_weight_update_variables,
            replicated_optimizer_state_sharding=replicated_optimizer_state_sharding,
        )
        self._dtype = dtype_choice("dtype", dtype)
        self._method = GradientAccumulationReductionMethod.parse(
            "reduction_method", reduction_method
        )

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple],
        global_step: Any = None,
        name: str | None = None,
    ) -> Any:
        """Accumulates gradients, and updates variables if it is time.

        Args:
            grads_and_vars: Pairs of a gradient and its variable, as `compute_gradients` returns.
                Gradients of lookups are made dense.
            global_step: A variable to add 1 to after each weight update; `None` for none.
            name: Name of the returned operation.

        Returns:
            The operation that does it; `None` in eager mode, where it is done.

        Raises:
            ValueError: There is no gradient for any variable, or the wrapped optimizer is one
                of TensorFlow's and cannot take gradients of the accumulators' type.
        """
        given = [(gradient, variable) for gradient, variable in grads_and_vars]
        pairs = [pair for pair in given if pair[0] is not None]
        if not pairs:
            raise ValueError(
                "No gradients provided for any variable. Compute them for variables that the loss "
                f"depends on. Received: grads_and_vars={given!r}"
            )
        with tf.name_scope(name or self._name) as scope:
            return self._accumulate(pairs, global_step, scope)

    def _accumulate(self, pairs: Sequence[tuple], global_step: Any, scope: str) -> Any:
        variables = [variable for _, variable in pairs]
        note_accumulation(self._num_mini_batches)
        accumulators, count = self._state(variables)
        num_before = count.read_value()
        accumulated = [
            self._added(accumulator.read_value(), gradient, num_before)
            for accumulator, (gradient, _) in zip(accumulators, pairs, strict=True)
        ]
        optimizer, updates = self._exchanged(list(zip(accumulated, variables, strict=True)))
        _check_dtypes(optimizer, updates)

        def update() -> Any:
            applied = optimizer.apply_gradients(updates, global_step)
            zeros = [tf.zeros_like(tensor) for tensor in accumulated]
            with tf.control_dependencies([] if applied is None else [applied]):
                return _assigned([*accumulators, count], [*zeros, tf.zeros_like(num_before)])

        def wait() -> Any:
            return _assigned([*accumulators, count], [*accumulated, num_before + 1])

        is_last = tf.equal(num_before, self._num_mini_batches - 1)
        return _conditional(is_last, update, wait, scope)

    def _added(self, accumulated: Any, gradient: Any, num_before: Any) -> Any:
        """Returns what is accumulated with one more gradient, after `num_before` others."""
        gradient = tf.cast(tf.convert_to_tensor(gradient), accumulated.dtype)
        num_before = tf.cast(num_before, accumulated.dtype)
        kept = self._method.kept(accumulated, num_before)
        return kept + self._method.share(gradient, num_before, self._num_mini_batches)

    def _state(self, variables: Sequence[Any]) -> tuple[list, Any]:
        is_hidden = are_accumulators_hidden()
        # Made outside of loops and functions, as TensorFlow makes the state of optimizers.
        make = _in_no_collection if is_hidden else _as_usual
        with tf.init_scope(), tf.variable_creator_scope(make):
            accumulators = [self._own_slot(variable, _ACCUMULATOR) for variable in variables]
            count = self._own_slot(variables[0], _COUNT)
        if is_hidden:
            note_accumulators([*accumulators, count])
        return accumulators, count

    def _own_slot(self, variable: Any, name: str) -> Any:
        if name == _COUNT:
            zeros = tf.zeros([], tf.int32)
        else:
            zeros = tf.zeros(variable.shape, dtype_for(variable, self._dtype))
        return self._get_or_make_slot(variable, zeros, name, f"{self._name}/{name}")

    def _exchanged(self, pairs: list[tuple]) -> tuple[tf.compat.v1.train.Optimizer, list[tuple]]:
        """Returns the optimizer to apply gradients with, after the replicas have exchanged
        these.

        A collective must not be in a branch, so it is done here for wrapped optimizers that
        would do it first thing.
        """
        optimizer = self._opt
        while isinstance(optimizer, IpuOptimizer):
            apply_gradients = type(optimizer).apply_gradients
            if apply_gradients is CrossReplicaOptimizer.apply_gradients:
                pairs = averages(pairs)
            elif apply_gradients is not IpuOptimizer.apply_gradients:
                break
            optimizer = optimizer.wrapped
        return optimizer, pairs

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Returns state for a variable: an accumulator, or what the wrapped optimizer has.

        Args:
            *args: The variable and the name of the state.
            **kwargs: The same arguments by name.

        Returns:
            A variable; `None` if there is none.
        """
        own = tf.compat.v1.train.Optimizer.get_slot(self, *args, **kwargs)
        return super().get_slot(*args, **kwargs) if own is None else own

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """Returns the names of the state that each variable has, accumulators included.

        Args:
            *args: Arguments of the wrapped optimizer's method.
            **kwargs: Arguments of the wrapped optimizer's method by name.
        """
        return sorted({*self._slots, *super().get_slot_names(*args, **kwargs)})

    def variables(self) -> list:
        """Returns all state, accumulators included."""
        return [*super().variables(), *tf.compat.v1.train.Optimizer.variables(self)]

    def _create_or_restore_slot_variable(
        self, slot_variable_position: Any, slot_name: str, variable: Any
    ) -> None:
        given = (slot_variable_position, slot_name, variable)
        if slot_name not in (_ACCUMULATOR, _COUNT):
            super()._create_or_restore_slot_variable(*given)
            return
        if tf.executing_eagerly():
            # Otherwise TensorFlow makes the slot, with the shape and type of the variable.
            self._own_slot(variable, slot_name)
        tf.compat.v1.train.Optimizer._create_or_restore_slot_variable(self, *given)


class GradientAccumulationOptimizer(GradientAccumulationOptimizerV2):
    """Adds up the gradients of several batches, for gradient descent with or without momentum.

    `GradientAccumulationOptimizerV2` does the same for any optimizer.

    Args:
        opt: The optimizer to wrap.
        num_mini_batches: How many batches make a weight update.
        verify_usage: Whether to refuse other optimizers than `GradientDescentOptimizer` and
            `MomentumOptimizer`, for which an IPU may compute wrong results; this package does
            not.
        name: Prefix of the operations. Defaults to `"GradientAccumulationOptimizer"`.

    Raises:
        ValueError: `opt` is not a `tf.compat.v1.train.Optimizer`, or one that is refused, or
            `num_mini_batches` is not positive.
    """

    def __init__(
        self,
        opt: tf.compat.v1.train.Optimizer,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "GradientAccumulationOptimizer",
    ):
        super().__init__(opt, num_mini_batches, name=name)
        if verify_usage:
            _check_supported(opt)


class CrossReplicaGradientAccumulationOptimizerV2(GradientAccumulationOptimizerV2):
    """Adds up the gradients of several batches, and averages the sums over replicas.

    This is `GradientAccumulationOptimizerV2` around a `CrossReplicaOptimizer`: the replicas of an
    IPU system exchange gradients once per weight update.

    Args:
        opt: The optimizer to wrap.
        num_mini_batches: How many batches make a weight update.
        offload_weight_update_variables: `True` has no effect: the host has no remote memory,
            which a warning says.
        replicated_optimizer_state_sharding: `True` has no effect: the host keeps the state once,
            which a warning says.
        dtype: Type of the accumulators, as for `GradientAccumulationOptimizerV2`.
        name: Prefix of the operations. Defaults to
            `"CrossReplicaGradientAccumulationOptimizerV2"`.
        reduction_method: How the gradients of a replica become one. Defaults to `SUM`.

    Raises:
        ValueError: `opt` is not a `tf.compat.v1.train.Optimizer`, `num_mini_batches` is not
            positive, or `reduction_method` is unknown.
        TypeError: An option has a wrong type.
    """

    def __init__(
        self,
        opt: tf.compat.v1.train.Optimizer,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool | None = False,
        dtype: DTypeChoice = None,
        name: str = "CrossReplicaGradientAccumulationOptimizerV2",
        *,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
    ):
        super().__init__(
            CrossReplicaOptimizer(opt),
            num_mini_batches,
            offload_weight_update_variables,
            replicated_optimizer_state_sharding,
            dtype,
            name,
            reduction_method=reduction_method,
        )


class CrossReplicaGradientAccumulationOptimizer(GradientAccumulationOptimizer):
    """Adds up the gradients of several batches, and averages the sums over replicas.

    This is `GradientAccumulationOptimizer` around a `CrossReplicaOptimizer`.

    Args:
        opt: The optimizer to wrap.
        num_mini_batches: How many batches make a weight update.
        verify_usage: Whether to refuse other optimizers than `GradientDescentOptimizer` and
            `MomentumOptimizer`.
        name: Prefix of the operations. Defaults to
            `"CrossReplicaGradientAccumulationOptimizer"`.

    Raises:
        ValueError: `opt` is not a `tf.compat.v1.train.Optimizer`, or one that is refused, or
            `num_mini_batches` is not positive.
    """

    def __init__(
        self,
        opt: tf.compat.v1.train.Optimizer,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "CrossReplicaGradientAccumulationOptimizer",
    ):
        super().__init__(CrossReplicaOptimizer(opt), num_mini_batches, verify_usage, name)


def _as_usual(create: Callable[..., Any], **options: Any) -> Any:
    return create(**options)


def _in_no_collection(create: Callable[..., Any], **options: Any) -> Any:
    """Makes a variable that scripts do not find, which therefore do not initialise it either."""
    return create(**{**options, "collections": []})


def _assigned(variables: Sequence[Any], values: Sequence[Any]) -> tf.Tensor:
    """Assigns values one after the other, and returns something to wait for."""
    done: list[Any] = []
    for variable, value in zip(variables, values, strict=True):
        # The count comes last: a tensor read from a variable without a resource changes with it.
        with tf.control_dependencies(done):
            assignment = variable.assign(value, read_value=False)
        done = [] if assignment is None else [assignment]
    with tf.control_dependencies(done):
        return tf.constant(True)


def _conditional(condition: tf.Tensor, update: Any, wait: Any, name: str) -> Any:
    """Returns a branch as the operation that trains; None in eager mode, where it has run."""
    if tf.executing_eagerly():
        tf.cond(condition, update, wait)
        return None
    train_ops = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
    before = list(train_ops)
    done = tf.group(tf.cond(condition, update, wait), name=name)
    # The wrapped optimizer has added its operation, which is inside the branch and cannot be run.
    train_ops[:] = [*before, done]
    return done


def _checked_num_mini_batches(num_mini_batches: Any) -> int:
    count = integer_in(num_mini_batches)
    if count is None or not 1 <= count <= MOST:
        raise noted(
            ValueError("num_mini_batches must be a positive number."),
            "Pass how many batches make a weight update, an integer from 1 on that fits in 32 "
            f"bits. Received: {received('num_mini_batches', num_mini_batches)}",
        )
    return count


def _check_supported(opt: tf.compat.v1.train.Optimizer) -> None:
    innermost = opt
    while isinstance(innermost, IpuOptimizer):
        innermost = innermost.wrapped
    if not isinstance(innermost, _SUPPORTED_BY_V1):
        raise ValueError(
            "This optimizer supports GradientDescentOptimizer and MomentumOptimizer only. Use "
            "its V2 for others, or pass `verify_usage=False`. "
            f"Received: {type(innermost).__name__}"
        )


def _check_dtypes(optimizer: tf.compat.v1.train.Optimizer, pairs: Sequence[tuple]) -> None:
    """Refuses gradients on which an optimizer of TensorFlow would fail when it runs."""
    if not type(optimizer).__module__.startswith("tensorflow."):
        return
    for gradient, variable in pairs:
        if gradient.dtype != variable.dtype.base_dtype:
            raise ValueError(
                "The accumulated gradients must have the type of the variable for "
                f"{type(optimizer).__name__}. Leave `dtype` out, or wrap that optimizer in a "
                "subclass of IpuOptimizer whose `apply_gradients` casts them. Received: gradients "
                f"of {gradient.dtype.name} for {variable.name!r} of {variable.dtype.name}"
            )


def _warn_of_no_effect(**options: Any) -> None:
    for name, value in options.items():
        check_choice(name, value)
    given = [name for name, value in options.items() if value]
    if given:
        warnings.warn(
            f"{', '.join(given)} of a gradient accumulation optimizer has no effect here: the "
            "host has no remote memory, and reports model it for pipelined Keras models only. Set "
            "it with `set_pipelining_options` of such a model to see what it would cost.",
            stacklevel=3,
        )
