"""Operations of pipelines, and the choices about how these run."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.cost import depth_message, overlap
from ipu_keras.functions.graph_programs import (
    GraphWork,
    current_step_results,
    is_program_allowed,
    put_into_graph,
)
from ipu_keras.functions.loop_bodies import call_with_element, checked_function, tensors_of
from ipu_keras.functions.pipelines import PipelineStep, Trained, check_captures
from ipu_keras.functions.place import current_place
from ipu_keras.internals.tensorflow.decorators import as_autograph_does, left_by_autograph
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue, check_infeed
from ipu_keras.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_keras.machine.system import SYSTEM
from ipu_keras.optimizers.accumulator_options import DTypeChoice, dtype_choice, dtype_for
from ipu_keras.optimizers.cross_replica_optimizer import without_exchange
from ipu_keras.optimizers.pipeline_arguments import checked_choices, warn_of_idle
from ipu_keras.program import Accumulation, Pipeline
from ipu_keras.settings.arguments import (
    MOST,
    checked_switch,
    converted,
    integer_in,
    name_or_none,
    noted,
    positive_integer,
)
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_keras.settings.pipeline_choices import PipelineSchedule as PipelineSchedule
from ipu_keras.settings.pipeline_choices import PipelineStageOptions as PipelineStageOptions
from ipu_keras.settings.pipeline_choices import RecomputationMode as RecomputationMode
from ipu_keras.tracing.poplar_operation import RECOMPUTATION_CHECKPOINT, poplar_operation


class OptimizerFunctionOutput:
    """What the optimizer function of a pipeline returns.

    Args:
        opt: A `tf.compat.v1.train.Optimizer`, which computes the gradients and updates weights.
        loss: The tensor that it minimizes.
        compute_gradients_args: Positional arguments of `opt.compute_gradients` after the loss.
        compute_gradients_kwargs: Keyword arguments of `opt.compute_gradients`.
        apply_gradients_args: Positional arguments of `opt.apply_gradients` after the gradients.
        apply_gradients_kwargs: Keyword arguments of `opt.apply_gradients`.

    Raises:
        TypeError: `opt` is no such optimizer, or arguments are no list or no dict.
    """

    def __init__(
        self,
        opt: tf.compat.v1.train.Optimizer,
        loss: tf.Tensor,
        compute_gradients_args: Sequence[Any] | None = None,
        compute_gradients_kwargs: dict[str, Any] | None = None,
        apply_gradients_args: Sequence[Any] | None = None,
        apply_gradients_kwargs: dict[str, Any] | None = None,
    ):
        if not isinstance(opt, tf.compat.v1.train.Optimizer):
            raise TypeError(
                "`opt` must be an optimizer of TensorFlow 1, a tf.compat.v1.train.Optimizer. "
                f"Received: opt={opt!r}"
            )
        self.opt = opt
        self.loss = loss
        self.compute_gradients_args = _sequence("compute_gradients_args", compute_gradients_args)
        self.compute_gradients_kwargs = _dict("compute_gradients_kwargs", compute_gradients_kwargs)
        self.apply_gradients_args = _sequence("apply_gradients_args", apply_gradients_args)
        self.apply_gradients_kwargs = _dict("apply_gradients_kwargs", apply_gradients_kwargs)


@left_by_autograph
def pipeline(
    computational_stages: Sequence[Callable[..., Any]],
    gradient_accumulation_count: Any = None,
    gradient_accumulation_dtype: DTypeChoice = None,
    repeat_count: int = 1,
    batch_serialization_iterations: int = 1,
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    outfeed_queue: IPUOutfeedQueue | None = None,
    optimizer_function: Callable[..., OptimizerFunctionOutput] | None = None,
    device_mapping: Sequence[int] | None = None,
    pipeline_schedule: PipelineSchedule | None = None,
    recomputation_mode: RecomputationMode | None = None,
    forward_propagation_stages_poplar_options: Sequence[PipelineStageOptions] | None = None,
    backward_propagation_stages_poplar_options: Sequence[PipelineStageOptions] | None = None,
    weight_update_poplar_options: PipelineStageOptions | None = None,
    offload_weight_update_variables: bool | None = None,
    replicated_optimizer_state_sharding: bool = False,
    offload_activations: bool | None = None,
    offload_gradient_accumulation_buffers: bool | None = None,
    replicated_weight_sharding: bool | None = None,
    offload_weights: bool | None = None,
    continuous_weight_updates: bool = False,
    outfeed_loss: bool = False,
    accumulate_outfeed: bool = False,
    accumulate_outfeed_dtype: DTypeChoice = None,
    outfeed_mask: Sequence[bool] | None = None,
    name: str | None = None,
    *,
    reduction_method: Any = GradientAccumulationReductionMethod.SUM,
) -> tf.Operation:
    """Runs a function in stages, each on an IPU, which pass batches on to each other.

    Numerically it is the accumulation of gradients: every execution of the pipeline adds those of
    `gradient_accumulation_count` batches, and then updates weights once. What the stages, their
    schedule and the options below cost on an IPU is what `ipu_keras.last_report` says.

    Replicas average gradients if the optimizer is wrapped in a `CrossReplicaOptimizer`; else each
    trains weights of its own, of which the host reads those of replica 0.

    Args:
        computational_stages: Two functions or more. The first takes `inputs` and then the parts of
            an element of the infeed, each other what the one before returns; the values of a dict
            by name.
        gradient_accumulation_count: How many batches pass the stages in an execution, an integer
            or a tensor whose value is known.
        gradient_accumulation_dtype: The type of accumulated gradients, which the optimizer gets:
            `None` for that of each variable, a dtype, or a function from a variable to one.
        repeat_count: How many executions there are.
        batch_serialization_iterations: Parts in which a batch is computed, each an element of the
            infeed; with `PipelineSchedule.Sequential` and all stages on one IPU.
        inputs: Tensors that are the same for all batches, such as a learning rate.
        infeed_queue: Elements for the first stage.
        outfeed_queue: Gets what the last stage returns, as a list or a dict; needed if it returns
            anything.
        optimizer_function: A function that takes what the last stage returns, values of a dict by
            name, and returns an `OptimizerFunctionOutput`. Without it, nothing is trained.
        device_mapping: The IPU of each stage. Defaults to one after the other. Stages that use the
            same variables must be on one IPU.
        pipeline_schedule: The order in which stages run. Defaults to `PipelineSchedule.Grouped`.
        recomputation_mode: How activations are recomputed. Defaults to `RecomputationMode.Auto`.
        forward_propagation_stages_poplar_options: Poplar options for each stage.
        backward_propagation_stages_poplar_options: Poplar options for the gradients of each stage.
        weight_update_poplar_options: Poplar options for the weight update.
        offload_weight_update_variables: Whether variables that only the weight update needs are in
            remote memory.
        replicated_optimizer_state_sharding: Whether each replica has a part of those variables.
        offload_activations: Whether activations that wait are in remote memory.
        offload_gradient_accumulation_buffers: Whether accumulated gradients are in remote memory.
        replicated_weight_sharding: Whether each replica has a part of the weights.
        offload_weights: Whether those parts of weights are in remote memory.
        continuous_weight_updates: Not implemented, as in IPU software.
        outfeed_loss: Whether the loss is sent to `outfeed_queue`, instead of what the last stage
            returns.
        accumulate_outfeed: Whether what is sent is added up, and sent once in an execution.
        accumulate_outfeed_dtype: The type of these sums, given as `gradient_accumulation_dtype`.
        outfeed_mask: For each result of the last stage, whether it is left out.
        name: Name of the program in reports.
        reduction_method: How the gradients of the batches are reduced to one, a
            `GradientAccumulationReductionMethod` or its name; an argument of later releases.

    Returns:
        The operation that runs the pipeline.

    Raises:
        TypeError: An argument, or what a function returns, is of a wrong type.
        ValueError: There are fewer than two stages, arguments do not go together, or a stage uses
            a tensor that is not passed to it; or replicas whose optimizer is no
            `CrossReplicaOptimizer` are to share parts of variables.
        NotImplementedError: The schedule cannot train stages that share an IPU, or
            `continuous_weight_updates`.
        tf.errors.FailedPreconditionError: When it is run, `gradient_accumulation_count` is no
            multiple of what the schedule takes at a time.

    Example:

    >>> from ipu_keras import config, ipu_strategy
    >>> config.reset_ipu_configuration()
    >>> system = config.IPUConfig()
    >>> system.auto_select_ipus = 2
    >>> system.configure_ipu_system()
    >>> numbers = tf.data.Dataset.range(4).map(lambda k: tf.cast(k, tf.float32))
    >>> infeed, outfeed = IPUInfeedQueue(numbers), IPUOutfeedQueue()
    >>> infeed.initializer
    >>> @tf.function
    ... def run():
    ...     stages = [lambda x: x + 1.0, lambda x: x * x]
    ...     pipeline(stages, 4, infeed_queue=infeed, outfeed_queue=outfeed)
    >>> ipu_strategy.IPUStrategy().run(run)
    >>> outfeed.dequeue()[0].numpy().tolist()
    [1.0, 4.0, 9.0, 16.0]
    """
    stages = _stages(computational_stages)
    mapping = _mapping(device_mapping, len(stages))
    forward_options = forward_propagation_stages_poplar_options
    backward_options = backward_propagation_stages_poplar_options
    choices = checked_choices(
        {
            "backward_propagation_stages_poplar_options": backward_options,
            "continuous_weight_updates": continuous_weight_updates,
            "forward_propagation_stages_poplar_options": forward_options,
            "offload_activations": offload_activations,
            "offload_gradient_accumulation_buffers": offload_gradient_accumulation_buffers,
            "offload_weight_update_variables": offload_weight_update_variables,
            "offload_weights": offload_weights,
            "pipeline_schedule": pipeline_schedule,
            "recomputation_mode": recomputation_mode,
            "replicated_optimizer_state_sharding": replicated_optimizer_state_sharding,
            "replicated_weight_sharding": replicated_weight_sharding,
            "weight_update_poplar_options": weight_update_poplar_options,
        }
    )
    layout = Pipeline(device_mapping=mapping, **choices)
    reduction = GradientAccumulationReductionMethod.parse("reduction_method", reduction_method)
    warn_of_idle(layout)
    trains = optimizer_function is not None
    if trains:
        checked_function("optimizer_function", optimizer_function)
    count = _count(gradient_accumulation_count)
    serial = _serialization(batch_serialization_iterations, layout)
    num_batches = _num_batches(count, serial, repeat_count)
    check_infeed(infeed_queue)
    _check_outfeed(outfeed_queue, outfeed_loss, outfeed_mask, accumulate_outfeed, trains)
    step = overlap(layout.schedule, mapping, training=trains)
    _check_place()
    place = current_place()
    given = tensors_of("inputs", inputs)
    gradient_dtype = dtype_choice("gradient_accumulation_dtype", gradient_accumulation_dtype)
    num_replicas = place.num_replicas(layout.num_ipus)

    def train(results: Any, variables: Sequence[Any]) -> Trained:
        assert optimizer_function is not None
        return _trained(
            optimizer_function, results, variables, gradient_dtype, layout, num_replicas
        )

    def outfeed(results: Any, loss: Any) -> Any:
        if outfeed_loss:
            return loss
        return _unmasked(results, outfeed_mask)

    batch = PipelineStep(
        stages=stages,
        inputs=given,
        train=train if trains else None,
        enqueue=None if outfeed_queue is None else outfeed_queue.enqueue,
        outfeed=outfeed,
    )
    element_spec = None if infeed_queue is None else infeed_queue._iterator.element_spec

    def traced_step(*tensors: tf.Tensor) -> list[tf.Tensor]:
        batch(tf.nest.pack_sequence_as(element_spec, tensors) if tensors else ())
        check_captures(tf.compat.v1.get_default_graph(), given)
        return []

    def check() -> None:
        _check_depth(count, step)
        batch.check_shared_variables(mapping)

    put_into_graph(
        GraphWork(
            name=name_or_none("name", name) or "pipeline",
            is_named=name is not None,
            step=traced_step,
            num_steps=num_batches,
            infeed=None if infeed_queue is None else infeed_queue._elements,
            accumulation=Accumulation(count=count * serial, reduction=reduction),
            trains=trains,
            pipeline=layout,
            sums=_sums(accumulate_outfeed, accumulate_outfeed_dtype),
            check=check,
        ),
        place,
        num_replicas,
    )
    return tf.compat.v1.get_default_graph().get_operations()[-1]


def recomputation_checkpoint(tensors: Any, name: str | None = None) -> Any:
    """Marks activations that stay in memory where others are computed again.

    A stage that recomputes starts from what enters it, and at the last moment has all its
    activations at once. With checkpoints it starts from the one before, so no more than the
    activations between two of them are there together. Values and gradients stay as they are;
    only the cost model sees the difference.

    It has an effect if `IPUConfig.allow_recompute` is set, and none with
    `RecomputationMode.RecomputeThenBackpropagate`, which needs all activations at once anyhow,
    within a loop, or on what a stage ends with.

    Args:
        tensors: A tensor or a structure of tensors.
        name: Name of the operation.

    Returns:
        The same tensors in the same structure.

    Raises:
        TypeError: A value cannot be made a tensor.
        ValueError: TensorFlow raises this one for some of these values.

    Example:

    >>> recomputation_checkpoint({"features": tf.constant([1.0, 2.0])})["features"].numpy()
    array([1., 2.], dtype=float32)
    """
    with poplar_operation(RECOMPUTATION_CHECKPOINT):
        return tf.nest.map_structure(
            lambda tensor: _checkpoint(tensor, name), tensors, expand_composites=True
        )


def _checkpoint(tensor: Any, name: str | None) -> tf.Tensor:
    # XLA removes an identity, and with it the mark; it keeps a reshape to the same shape.
    tensor = converted("tensors", tf.convert_to_tensor, tensor)
    return tf.reshape(tensor, tf.shape(tensor), name=name)


def _trained(
    optimizer_function: Callable[..., OptimizerFunctionOutput],
    results: Any,
    variables: Sequence[Any],
    dtype: DTypeChoice,
    layout: Pipeline,
    num_replicas: int,
) -> Trained:
    made = call_with_element("optimizer", optimizer_function, (), results)
    if not isinstance(made, OptimizerFunctionOutput):
        raise noted(
            TypeError(
                "`optimizer_function` needs to return an instance of OptimizerFunctionOutput."
            ),
            f"Received: {made!r}",
        )
    optimizer, averages = without_exchange(made.opt)
    step = current_step_results()
    assert step is not None, "optimizers are asked for gradients while a step is traced"
    total = num_replicas * SYSTEM.joint_world.size
    step.own_updates = total > 1 and not averages
    if step.own_updates:
        _check_nothing_is_shared(layout, made.opt)
    named = dict(made.compute_gradients_kwargs)
    if not made.compute_gradients_args and named.get("var_list") is None:
        # A function that was traced eagerly has no collections of variables.
        graph = tf.compat.v1.get_default_graph()
        has_some = graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
        named["var_list"] = None if has_some else variables
    found = made.opt.compute_gradients(made.loss, *made.compute_gradients_args, **named)
    pairs = [
        (tf.cast(tf.convert_to_tensor(gradient), dtype_for(variable, dtype)), variable)
        for gradient, variable in found
        if gradient is not None
    ]
    if not pairs:
        raise ValueError(
            "No gradients provided for any variable: the loss depends on none that is trainable. "
            f"Received: {[variable.name for _, variable in found]}"
        )
    if averages and total > 1:
        # The host adds the gradients of all replicas, also of those in other processes.
        pairs = [(gradient / total, variable) for gradient, variable in pairs]

    def apply(updates: Sequence[tuple]) -> Any:
        return optimizer.apply_gradients(
            updates, *made.apply_gradients_args, **made.apply_gradients_kwargs
        )

    return Trained(made.loss, pairs, apply)


def _check_nothing_is_shared(layout: Pipeline, optimizer: Any) -> None:
    for name in ("replicated_optimizer_state_sharding", "replicated_weight_sharding"):
        if getattr(layout, name):
            raise ValueError(
                f"With `{name}` each replica has a part of variables that are the same in all of "
                "them, but replicas that do not exchange gradients have variables of their own. "
                f"Wrap the optimizer in a CrossReplicaOptimizer. Received: {optimizer!r}"
            )


def _unmasked(results: Any, mask: Sequence[bool] | None) -> Any:
    if mask is None:
        return results
    if isinstance(results, dict):
        raise ValueError(
            "`outfeed_mask` is for results of the last stage that are in a list. Leave out of its "
            f"dict what is not to be sent. Received: outfeed_mask={list(mask)} for {results!r}"
        )
    if len(mask) != len(results):
        raise ValueError(
            "`outfeed_mask` must have an entry for each result of the last stage. Received: "
            f"outfeed_mask={list(mask)} for {len(results)} results"
        )
    return [result for result, left_out in zip(results, mask, strict=True) if not left_out]


def _stages(stages: Any) -> list[Callable]:
    if not isinstance(stages, list | tuple):
        raise noted(
            TypeError("computational_stages argument needs to be a list or a tuple."),
            f"Received: computational_stages={stages!r}",
        )
    if len(stages) < 2:
        raise noted(
            ValueError("Pipeline requires at least two computational stages."),
            "Use `loops.repeat` for a single function. Received: computational_stages of "
            f"length {len(stages)}",
        )
    for stage in stages:
        checked_function("computational_stages", stage)
    return list(map(as_autograph_does, stages))


def _mapping(device_mapping: Any, num_stages: int) -> tuple[int, ...]:
    if device_mapping is None:
        return tuple(range(num_stages))
    if not isinstance(device_mapping, list | tuple):
        raise noted(
            TypeError("device_mapping argument needs to be a list or a tuple."),
            f"Received: device_mapping={device_mapping!r}",
        )
    if len(device_mapping) != num_stages:
        raise noted(
            ValueError(
                f"Each stage must be mapped to an IPU: {len(device_mapping)} mappings != "
                f"{num_stages} stages"
            ),
            f"Received: device_mapping={list(device_mapping)}",
        )
    numbers = [integer_in(ipu) for ipu in device_mapping]
    if any(number is None or number < 0 for number in numbers):
        raise noted(
            ValueError("Expected `device_mapping` to be a list of integers."),
            f"Each is the IPU of a stage, from 0. Received: device_mapping={list(device_mapping)}",
        )
    return tuple(number for number in numbers if number is not None)


def _count(count: Any) -> int:
    if count is None:
        raise noted(
            ValueError("gradient_accumulation_count must be specified."),
            "It is how many batches pass the stages for a weight update. Received: "
            "gradient_accumulation_count=None",
        )
    value = tf.get_static_value(count) if tf.is_tensor(count) else count
    if tf.is_tensor(count) and value is None:
        raise ValueError(
            "`gradient_accumulation_count` must be known when the pipeline is compiled. "
            f"Received: the tensor {count!r}"
        )
    number = integer_in(value)
    if number is None or number < 1:
        raise noted(
            ValueError("gradient_accumulation_count must be >= 0."),
            f"It must be a positive integer. Received: gradient_accumulation_count={count!r}",
        )
    return positive_integer("gradient_accumulation_count", number)


def _num_batches(count: int, serial: int, repeats: Any) -> int:
    total = count * serial * positive_integer("repeat_count", repeats)
    if total > MOST:
        raise ValueError(
            f"A pipeline counts at most {MOST} batches. Received: "
            f"gradient_accumulation_count={count}, batch_serialization_iterations={serial}, "
            f"repeat_count={repeats}"
        )
    return total


def _serialization(iterations: Any, layout: Pipeline) -> int:
    count = positive_integer("batch_serialization_iterations", iterations)
    if count > 1 and layout.schedule is not PipelineSchedule.Sequential:
        raise noted(
            NotImplementedError(
                "Batch serialization is only supported with the `Sequential` schedule."
            ),
            f"Received: batch_serialization_iterations={count} with {layout.schedule}",
        )
    if count > 1 and len(set(layout.device_mapping)) > 1:
        raise noted(
            NotImplementedError(
                "When using batch serialization, all computational stages need to be mapped to "
                "a single device."
            ),
            f"Received: device_mapping={list(layout.device_mapping)}",
        )
    return count


def _check_outfeed(
    queue: IPUOutfeedQueue | None, loss: Any, mask: Any, accumulates: Any, trains: bool
) -> None:
    loss = checked_switch("outfeed_loss", loss)
    accumulates = checked_switch("accumulate_outfeed", accumulates)
    if queue is not None and not isinstance(queue, IPUOutfeedQueue):
        raise TypeError(
            "`outfeed_queue` must be an IPUOutfeedQueue. "
            f"Received: outfeed_queue={queue!r} of type {type(queue).__name__}"
        )
    if loss and mask is not None:
        raise noted(
            ValueError("Only one of `outfeed_loss` and `outfeed_mask` can be set."),
            f"Received: outfeed_mask={mask!r}",
        )
    if mask is not None and not isinstance(mask, list | tuple):
        raise TypeError(f"`outfeed_mask` must be a list. Received: outfeed_mask={mask!r}")
    for argument, is_set in (("outfeed_mask", mask is not None), ("outfeed_loss", bool(loss))):
        if is_set and not trains:
            raise ValueError(f"An optimizer_function must be provided when {argument} is set.")
    if (loss or accumulates) and queue is None:
        which = "outfeed_loss" if loss else "accumulate_outfeed"
        raise ValueError(f"An outfeed_queue must be provided when {which} is True.")
    if accumulates and queue is not None and queue._mode is not IPUOutfeedMode.ALL:
        raise noted(
            ValueError("To accumulate the outfeed, it must be in IPUOutfeedMode ALL."),
            f"Received: {queue._mode}",
        )


def _check_depth(count: int, step: int) -> None:
    if count % step:
        raise tf.errors.FailedPreconditionError(
            None,
            None,
            f"The pipeline depth of the pipeline must be a multiple of {step}, but it is {count}. "
            + depth_message(step, count),
        )


def _check_place() -> None:
    if not is_program_allowed():
        raise RuntimeError(
            "A pipeline is a program of its own: call `pipeline` in the function that "
            "`ipu_compiler.compile` or `strategy.run` is given, and not within a loop, a branch or "
            "another pipeline."
        )


def _sums(accumulates: Any, dtype: Any) -> Callable[[tf.Tensor], tf.DType] | None:
    choice = dtype_choice("accumulate_outfeed_dtype", dtype)
    return (lambda tensor: dtype_for(tensor, choice)) if accumulates else None


def _sequence(name: str, value: Any) -> list[Any]:
    if value is not None and not isinstance(value, list | tuple):
        raise TypeError(f"`{name}` must be a list or a tuple. Received: {name}={value!r}")
    return list(value or ())


def _dict(name: str, value: Any) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise TypeError(f"`{name}` must be a dict. Received: {name}={value!r}")
    return dict(value or {})
