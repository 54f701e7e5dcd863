"""How Keras trains: its trainer, the loop over data, the compiled loss and metrics."""

from typing import Any

import keras

from ipu_keras.internals.forms import Class, Function, PrivateName

_TRAINER = PrivateName(
    "keras.src.backend.tensorflow.trainer",
    "TensorFlowTrainer",
    Class(
        "distribute_strategy",
        members={
            "_get_metrics_result_or_logs": Function("self", "logs"),
            "_maybe_symbolic_build": Function("self", keywords=("iterator", "data_batch")),
            "compile_from_config": Function("self", "config"),
            "make_predict_function": Function("self", "force"),
            "make_test_function": Function("self", "force"),
            "make_train_function": Function("self", "force"),
        },
        assigned=(
            "_distribute_strategy",
            "_eval_epoch_iterator",
            "predict_function",
            "test_function",
            "train_function",
        ),
    ),
)
_EPOCH_ITERATOR = PrivateName(
    "keras.src.backend.tensorflow.trainer",
    "TFEpochIterator",
    Class(
        "num_batches",
        members={"__init__": Function("self", "distribute_strategy")},
        assigned=(
            "_distributed_dataset",
            "_num_batches",
            "data_adapter",
            "steps_per_epoch",
            "steps_per_execution",
        ),
    ),
)
_COMPILE_METRICS = PrivateName(
    "keras.src.trainers.compile_utils",
    "CompileMetrics",
    Class("metrics", members={"result": Function("self")}, assigned=("built",)),
)
_PYTHONIFY_LOGS = PrivateName("keras.src.utils.python_utils", "pythonify_logs", Function("logs"))
_MODEL = PrivateName(
    "keras",
    "Model",
    Class(
        members={
            "_compute_loss": Function(
                "self", "x", "y", "y_pred", keywords=("sample_weight", "training")
            ),
            "_symbolic_build": Function("self", keywords=("data_batch",)),
        },
        assigned=("_call_has_training_arg", "_compile_loss", "_compile_metrics", "_loss_tracker"),
    ),
)
_LOSS_SCALE = PrivateName(
    "keras.optimizers",
    "LossScaleOptimizer",
    Class(
        "check_finite",
        "scale_loss",
        members={"_stateful_handle_finite_grads": Function("self", "grads", "trainable_variables")},
    ),
)

# The base of Keras's models that trains them, and of our extension.
TensorFlowTrainer: Any = _TRAINER.get()

# Keras's iterator over the data of one call of `fit`; the extension makes its own instance.
TFEpochIterator: Any = _EPOCH_ITERATOR.get()

# The metric in which `compile` gathers those that it was given.
CompileMetrics: Any = _COMPILE_METRICS.get()


def compiled_metrics(model: keras.Model) -> Any:
    """Returns the `CompileMetrics` of a compiled model; `None` if it was given no metrics."""
    _MODEL.get()
    return model._compile_metrics


def compiled_loss(model: keras.Model) -> Any:
    """Returns what computes the loss of a compiled model; `None` if it was given no loss."""
    _MODEL.get()
    return model._compile_loss


def compute_loss(model: keras.Model, x: Any, y: Any, y_pred: Any, **options: Any) -> Any:
    """Computes the loss as `train_step` does: users' `compute_loss` may not take `training`."""
    _MODEL.get()
    return model._compute_loss(x, y, y_pred, **options)


def symbolic_build(model: keras.Model, data: Any) -> None:
    """Builds what a compiled model needs for data that is known by its specs alone."""
    _MODEL.get()
    model._symbolic_build(data_batch=data)


def loss_tracker(model: keras.Model) -> keras.Metric:
    """Returns the metric in which a compiled model averages its loss."""
    _MODEL.get()
    return model._loss_tracker


def takes_training(model: keras.Model) -> bool:
    """Whether the `call` of a model has an argument `training`."""
    _MODEL.get()
    return model._call_has_training_arg


def plain_logs(logs: Any) -> dict[str, Any]:
    """Returns logs with Python's own numbers, which `evaluate` of Keras 3.12 leaves to others."""
    return _PYTHONIFY_LOGS.get()(logs)


def has_strategy(model: keras.Model) -> bool:
    """Whether a model was made in a strategy's scope; otherwise it uses the one that is entered."""
    return model._distribute_strategy is not None


def set_strategy(model: keras.Model, strategy: Any) -> None:
    """Ties a model to a strategy, as if it had been made in its scope."""
    model._distribute_strategy = strategy


def set_validation_iterator(model: keras.Model, iterator: Any) -> None:
    """Gives `fit` the iterator over its validation data, which it otherwise makes itself."""
    model._eval_epoch_iterator = iterator


def forget_validation_iterator(model: keras.Model) -> None:
    """Takes back `set_validation_iterator`; a `fit` that raises would leave it to the next call."""
    if getattr(model, "_eval_epoch_iterator", None) is not None:
        del model._eval_epoch_iterator


def loss_scale_methods() -> tuple[str, ...]:
    """Names the methods by which a `LossScaleOptimizer` treats its scale."""
    _LOSS_SCALE.get()
    return ("scale_loss", "check_finite", "_stateful_handle_finite_grads")
