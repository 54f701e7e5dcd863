"""Models and functions for TensorFlow Serving, as `ipu.serving` of later releases has it.

IPU software puts an executable of IPUs into a SavedModel, with an operation that runs it. Here the
SavedModel has the computation in TensorFlow's operations, with the same signature: a server needs
nothing of this package, and computes on its host.
"""

import inspect
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.functions.loop_bodies import as_list, checked_function
from ipu_keras.ops.argument_checks import positive_integer
from ipu_keras.pipelining_ops import PipelineSchedule, _mapping, _stages
from ipu_keras.settings.arguments import checked_switch, received

_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


def export_single_step(
    predict_step: Callable[..., Any],
    export_dir: str | os.PathLike,
    iterations: int,
    predict_step_signature: Sequence[tf.TensorSpec] | None = None,
    input_dataset: tf.data.Dataset | None = None,
    output_names: Sequence[str] | str | None = None,
    preprocessing_step: Callable[..., Any] | None = None,
    preprocessing_step_signature: Sequence[tf.TensorSpec] | None = None,
    postprocessing_step: Callable[..., Any] | None = None,
    postprocessing_step_signature: Sequence[tf.TensorSpec] | None = None,
    purge_export_dir: bool = False,
    *,
    input_signature: Sequence[tf.TensorSpec] | None = None,
) -> Any:
    """Writes a function as a SavedModel for TensorFlow Serving.

    Args:
        predict_step: The function that is computed for one batch.
        export_dir: A directory, which is made if need be.
        iterations: How many batches an IPU computes before it returns to the host. It changes no
            result.
        predict_step_signature: Specs of the arguments of `predict_step`, of fully defined shapes;
            a name of a spec is what the server calls the input, by default that of the argument.
        input_dataset: In place of a signature: a dataset with elements like the arguments.
        output_names: What the server calls the outputs; by default `"output_0"` and so on, or
            the keys of a dictionary that is returned.
        preprocessing_step: A function from the server's inputs to the arguments of
            `predict_step`.
        preprocessing_step_signature: Specs of the server's inputs, if there is such a step.
        postprocessing_step: A function from the results of `predict_step` to the outputs.
        postprocessing_step_signature: Specs of those results, which are checked.
        purge_export_dir: Whether to delete what is in `export_dir` before.
        input_signature: The name that `predict_step_signature` has in the first releases.

    Returns:
        The exported function, of which the server's outputs are the results.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: There is no signature, or more than one; a shape is not fully defined, there
            are not as many names as outputs, or `export_dir` has files.

    Example:

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> double = export_single_step(lambda x: 2.0 * x, folder, 8, [tf.TensorSpec((2,), name="x")])
    >>> loaded = tf.saved_model.load(folder).signatures["serving_default"]
    >>> loaded(x=tf.constant([1.0, 3.0]))["output_0"].numpy().tolist()
    [2.0, 6.0]
    """
    checked_function("predict_step", predict_step)
    positive_integer("iterations", iterations)
    specs = _specs_of_step(predict_step_signature, input_dataset, input_signature)
    return _export(
        predict_step,
        specs,
        export_dir,
        output_names,
        (preprocessing_step, preprocessing_step_signature),
        (postprocessing_step, postprocessing_step_signature),
        purge_export_dir,
    )


def export_pipeline(
    computational_stages: Sequence[Callable[..., Any]],
    export_dir: str | os.PathLike,
    iterations: int,
    inputs: Sequence[Any] | None = None,
    device_mapping: Sequence[int] | None = None,
    pipeline_schedule: PipelineSchedule | None = None,
    poplar_options: Sequence[Any] | None = None,
    name: str | None = None,
    predict_step_signature: Sequence[tf.TensorSpec] | None = None,
    input_dataset: tf.data.Dataset | None = None,
    output_names: Sequence[str] | str | None = None,
    preprocessing_step: Callable[..., Any] | None = None,
    preprocessing_step_signature: Sequence[tf.TensorSpec] | None = None,
    postprocessing_step: Callable[..., Any] | None = None,
    postprocessing_step_signature: Sequence[tf.TensorSpec] | None = None,
    purge_export_dir: bool = False,
    *,
    input_signature: Sequence[tf.TensorSpec] | None = None,
) -> Any:
    """Writes the stages of a pipeline as a SavedModel for TensorFlow Serving.

    Args:
        computational_stages: Two functions or more, as `pipelining_ops.pipeline` takes them.
        export_dir: A directory, which is made if need be.
        iterations: How many batches an IPU computes before it returns to the host. It changes no
            result.
        inputs: Values that the first stage takes before those of a batch. They are exported.
        device_mapping: The IPU of each stage. It changes no result.
        pipeline_schedule: The order in which stages run. It changes no result.
        poplar_options: Poplar options for each stage. They change no result.
        name: Name scope of the exported operations.
        predict_step_signature: Specs of what the first stage takes after `inputs`, with names as
            in `export_single_step`.
        input_dataset: In place of a signature: a dataset with elements like these arguments.
        output_names: What the server calls the outputs, as in `export_single_step`.
        preprocessing_step: A function from the server's inputs to the arguments of the first
            stage.
        preprocessing_step_signature: Specs of the server's inputs, if there is such a step.
        postprocessing_step: A function from the results of the last stage to the outputs.
        postprocessing_step_signature: Specs of those results, which are checked.
        purge_export_dir: Whether to delete what is in `export_dir` before.
        input_signature: The name that `predict_step_signature` has in the first releases.

    Returns:
        The exported function, of which the server's outputs are the results.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: An argument is one that `export_single_step` refuses, or the stages and their
            IPUs do not fit.
    """
    stages = _stages(computational_stages)
    _mapping(device_mapping, len(stages))
    positive_integer("iterations", iterations)
    if pipeline_schedule is not None and not isinstance(pipeline_schedule, PipelineSchedule):
        raise TypeError(
            "`pipeline_schedule` must be a PipelineSchedule. "
            f"Received: {received('pipeline_schedule', pipeline_schedule)}"
        )
    if poplar_options is not None and len(poplar_options) != len(stages):
        raise ValueError(
            f"`poplar_options` must have an entry for each of the {len(stages)} stages. "
            f"Received: {received('poplar_options', poplar_options)}"
        )
    first = [tf.convert_to_tensor(value) for value in inputs or ()]

    def through_stages(*batch: Any, **named: Any) -> Any:
        with tf.name_scope(name or "pipeline"):
            values = stages[0](*first, *batch, **named)
            for stage in stages[1:]:
                values = stage(*as_list(values))
            return values

    names = _parameters(stages[0])[len(first) :]
    return _export(
        through_stages,
        _specs_of_step(predict_step_signature, input_dataset, input_signature),
        export_dir,
        output_names,
        (preprocessing_step, preprocessing_step_signature),
        (postprocessing_step, postprocessing_step_signature),
        purge_export_dir,
        names,
    )


def export_keras(
    model: tf.keras.Model,
    export_dir: str | os.PathLike,
    batch_size: int | None = None,
    output_names: Sequence[str] | str | None = None,
    preprocessing_step: Callable[..., Any] | None = None,
    preprocessing_step_signature: Sequence[tf.TensorSpec] | None = None,
    postprocessing_step: Callable[..., Any] | None = None,
    postprocessing_step_signature: Sequence[tf.TensorSpec] | None = None,
    purge_export_dir: bool = False,
) -> Any:
    """Writes a Keras model as a SavedModel for TensorFlow Serving.

    Args:
        model: A functional or sequential model, whose inputs are known. It is called as for
            prediction.
        export_dir: A directory, which is made if need be.
        batch_size: Batch size of the server's inputs; needed if the model's have none.
        output_names: What the server calls the outputs; by default the names of the model's
            outputs.
        preprocessing_step: A function from the server's inputs to those of the model.
        preprocessing_step_signature: Specs of the server's inputs, if there is such a step.
        postprocessing_step: A function from the results of the model to the outputs.
        postprocessing_step_signature: Specs of those results, which are checked.
        purge_export_dir: Whether to delete what is in `export_dir` before.

    Returns:
        The exported function, of which the server's outputs are the results.

    Raises:
        TypeError: An argument has a wrong type, or `model` is no Keras model.
        ValueError: An argument is one that `export_single_step` refuses, or the inputs of the model
            have no batch size.

    Example:

    >>> import tempfile
    >>> from keras import Input, Sequential, layers
    >>> model = Sequential([Input((3,)), layers.Dense(1, name="scores")])
    >>> folder = tempfile.mkdtemp()
    >>> export_keras(model, folder, batch_size=2)(tf.ones((2, 3)))["scores"].shape
    TensorShape([2, 1])
    """
    if not isinstance(model, tf.keras.Model):
        raise TypeError(f"`model` must be a Keras model. Received: {received('model', model)}")
    if batch_size is not None:
        positive_integer("batch_size", batch_size)
    if not getattr(model, "inputs", None):
        raise ValueError(
            "`model` must have inputs that are known: make it of `keras.Input`s, or call it on "
            f"data first. Received: {received('model', model)}"
        )
    specs = [
        tf.TensorSpec((batch_size or tensor.shape[0], *tensor.shape[1:]), tensor.dtype, tensor.name)
        for tensor in model.inputs
    ]
    if any(spec.shape[0] is None for spec in specs):
        raise ValueError(
            "`batch_size` is needed for a model whose inputs have none, as programs of IPUs are "
            f"static. Received: batch_size=None for inputs of shape {specs[0].shape}"
        )
    is_sequence = isinstance(model, tf.keras.Sequential)
    structure = model.inputs[0] if is_sequence else model.input
    names = [model.layers[-1].name] if is_sequence else model.output_names

    def predict(*inputs: tf.Tensor) -> Any:
        results = model(tf.nest.pack_sequence_as(structure, inputs), training=False)
        if isinstance(results, Mapping) or len(set(names)) < len(names):
            return results
        return dict(zip(names, tf.nest.flatten(results), strict=True))

    return _export(
        predict,
        specs,
        export_dir,
        output_names,
        (preprocessing_step, preprocessing_step_signature),
        (postprocessing_step, postprocessing_step_signature),
        purge_export_dir,
        tracked=model,
    )


def _specs_of_step(signature: Any, dataset: Any, older: Any) -> Any:
    """Returns the specs of a step's arguments: a list, or a dictionary by name."""
    given = {
        "predict_step_signature": signature,
        "input_signature": older,
        "input_dataset": dataset,
    }
    found = {name: value for name, value in given.items() if value is not None}
    if len(found) > 1:
        raise ValueError(
            "Give one of `predict_step_signature` and `input_dataset`. "
            f"Received: {', '.join(found)}"
        )
    if dataset is None:
        return signature if older is None else older
    if not isinstance(dataset, tf.data.Dataset | tf.compat.v1.data.Dataset):
        raise TypeError(
            "`input_dataset` must be a tf.data.Dataset. "
            f"Received: {received('input_dataset', dataset)}"
        )
    element = dataset.element_spec
    return element if isinstance(element, Mapping) else list(as_list(element))


def _export(
    step: Callable[..., Any],
    specs: Any,
    export_dir: str | os.PathLike,
    output_names: Any,
    preprocessing: tuple[Callable[..., Any] | None, Any],
    postprocessing: tuple[Callable[..., Any] | None, Any],
    purge_export_dir: bool,
    names: Sequence[str] | None = None,
    tracked: Any = None,
) -> Any:
    (before, specs_before), (after, specs_after) = preprocessing, postprocessing
    for argument, function in (("preprocessing_step", before), ("postprocessing_step", after)):
        if function is not None:
            checked_function(argument, function)
    taken = "predict_step_signature"
    if before is not None:
        taken, specs, names = "preprocessing_step_signature", specs_before, None
        specs = specs if specs is not None else getattr(before, "input_signature", None)
    first = step if before is None else before
    specs = specs if specs is not None else getattr(first, "input_signature", None)
    given = _checked_specs(taken, specs, first, names)
    by_name = isinstance(specs, Mapping)

    def computed(*inputs: tf.Tensor) -> Any:
        values = dict(zip(specs, inputs, strict=True)) if by_name else inputs
        if before is not None:
            values = _called(before, values)
        results = _called(step, values)
        if after is None:
            return results
        _check_given("postprocessing_step_signature", specs_after, as_list(results))
        return _called(after, results)

    def served(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return _named(computed(*inputs), output_names)

    _prepare(export_dir, checked_switch("purge_export_dir", purge_export_dir))
    function = tf.function(served, input_signature=given)
    # In no scope of a device: a server has no IPU.
    with tf.device(None):
        concrete = function.get_concrete_function()
    exported = tf.Module()
    # TensorFlow saves only variables that the exported object refers to.
    exported.serve, exported.tracked = function, [concrete.graph.variables, tracked]
    tf.saved_model.save(exported, os.fspath(export_dir), signatures={_SIGNATURE: concrete})
    return function


def _called(function: Callable[..., Any], values: Any) -> Any:
    return function(**values) if isinstance(values, Mapping) else function(*as_list(values))


def _checked_specs(
    argument: str, specs: Any, function: Callable[..., Any], names: Sequence[str] | None
) -> list[tf.TensorSpec]:
    """Returns the specs of a server's inputs, each with a name."""
    if specs is None:
        raise ValueError(
            f"`{argument}` is needed, or `input_dataset` for the predict step: a server's inputs "
            f"have types and shapes. Received: {argument}=None"
        )
    if not isinstance(specs, list | tuple | Mapping):
        raise TypeError(
            f"`{argument}` must be a list or tuple of tf.TensorSpec. "
            f"Received: {received(argument, specs)}"
        )
    names = list(specs) if isinstance(specs, Mapping) else names or _parameters(function)
    made = []
    for index, spec in enumerate(specs.values() if isinstance(specs, Mapping) else specs):
        if not isinstance(spec, tf.TensorSpec):
            raise TypeError(
                f"`{argument}` must be a list or tuple of tf.TensorSpec. "
                f"Received: {spec!r} at index {index}"
            )
        if not spec.shape.is_fully_defined() and argument == "predict_step_signature":
            raise ValueError(
                f"`{argument}` must have fully defined shapes, as programs of IPUs are static. "
                f"Received: shape {spec.shape} at index {index}"
            )
        name = names[index] if index < len(names) else f"input_{index}"
        made.append(tf.TensorSpec(spec.shape, spec.dtype, spec.name or name))
    return made


def _check_given(argument: str, specs: Any, values: Sequence[Any]) -> None:
    if specs is None:
        return
    fits = len(specs) == len(values) and all(
        spec.dtype == value.dtype and spec.shape.is_compatible_with(value.shape)
        for spec, value in zip(specs, values, strict=True)
    )
    if not fits:
        raise ValueError(
            f"`{argument}` must fit what the predict step returns. "
            f"Received: {received(argument, specs)} for {list(values)}"
        )


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Returns the names of a function's positional parameters; none if they are unknown."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in another language
        return []
    return [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _named(outputs: Any, names: Any) -> dict[str, tf.Tensor]:
    """Returns outputs by name, as signatures have them."""
    if isinstance(outputs, Mapping) and names is None:
        return dict(outputs)
    values = list(outputs.values()) if isinstance(outputs, Mapping) else as_list(outputs)
    if names is None:
        names = [f"output_{index}" for index in range(len(values))]
    names = [names] if isinstance(names, str) else list(names)
    if len(names) != len(values):
        raise ValueError(
            f"`output_names` must have a name for each of the {len(values)} outputs. "
            f"Received: output_names={names}"
        )
    return dict(zip(names, values, strict=True))


def _prepare(export_dir: str | os.PathLike, purge: bool) -> None:
    """Checks that the directory is empty, or clears it."""
    path = os.fspath(export_dir)
    if os.path.isdir(path) and os.listdir(path):
        if not purge:
            raise ValueError(
                "`export_dir` must be an empty directory, or one that does not exist; "
                "`purge_export_dir=True` deletes what is in it. "
                f"Received: export_dir={path!r}, which has files"
            )
        shutil.rmtree(path)
    elif os.path.exists(path) and not os.path.isdir(path):
        raise ValueError(f"`export_dir` must be a directory. Received: the file {path!r}")
