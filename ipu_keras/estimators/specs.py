"""What model functions say of their models, besides what only IPUs have."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf


class ModeKeys:
    """What a model function is called for.

    - `TRAIN`: training.
    - `EVAL`: evaluation.
    - `PREDICT`: predictions.
    """

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


class EstimatorSpec(NamedTuple):
    """A model as a model function describes it, with names of TensorFlow 1's estimators.

    Args:
        mode: A `ModeKeys`: what the model function was called for.
        predictions: A tensor of `(batch, ...)`, or a dict of them; needed for predictions.
        loss: A scalar; needed for training and evaluation.
        train_op: The operation, or tensor, that updates the weights; needed for training.
        eval_metric_ops: A dict from names to pairs of a metric's value and the tensor that updates
            it, both computed on the IPU.
        export_outputs: A dict from names of signatures to `tf.estimator.export.ExportOutput`.
            Defaults to the predictions.
        training_chief_hooks: Hooks of the first worker while it trains.
        training_hooks: Hooks while the model is trained.
        scaffold: A `tf.compat.v1.train.Scaffold` for the session.
        evaluation_hooks: Hooks while the model is evaluated.
        prediction_hooks: Hooks while it predicts.

    Example:

    >>> EstimatorSpec(ModeKeys.PREDICT, predictions=tf.constant([1.0])).mode
    'infer'
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, tuple] | None = None
    export_outputs: Mapping[str, Any] | None = None
    training_chief_hooks: Sequence[Any] | None = None
    training_hooks: Sequence[Any] | None = None
    scaffold: Any = None
    evaluation_hooks: Sequence[Any] | None = None
    prediction_hooks: Sequence[Any] | None = None


class WarmStartSettings(NamedTuple):
    """Says which variables begin with values of another model.

    Args:
        ckpt_to_initialize_from: Path of a checkpoint, or of a folder with checkpoints.
        vars_to_warm_start: A regular expression of names of trainable variables, a list of
            expressions for all variables, a list of variables, or `None`.
        var_name_to_vocab_info: A dict from names of variables to `tf.compat.v1.train.VocabInfo`.
        var_name_to_prev_var_name: A dict from names of variables to their names in the checkpoint,
            where these are others.

    Example:

    >>> WarmStartSettings("/models/first", ".*dense.*").vars_to_warm_start
    '.*dense.*'
    """

    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Mapping[str, Any] | None = None
    var_name_to_prev_var_name: Mapping[str, str] | None = None


def warm_start_settings(given: Any) -> WarmStartSettings | None:
    """Returns what a user gave as `warm_start_from`: settings, a path, or None."""
    if given is None or isinstance(given, WarmStartSettings):
        return given
    try:
        path = tf.io.gfile.join(given)
    except TypeError:
        raise TypeError(
            "`warm_start_from` must be the path of a checkpoint or of a SavedModel, or a "
            f"WarmStartSettings. Received: warm_start_from={given!r}"
        ) from None
    if tf.io.gfile.exists(tf.io.gfile.join(path, "saved_model.pb")):
        path = tf.io.gfile.join(path, "variables", "variables")
    return WarmStartSettings(path)


def hooks_of(spec: Any, mode: str) -> list[Any]:
    """Returns the hooks that a model function gave for what it was called for."""
    names: Mapping[str, Sequence[str]] = {
        ModeKeys.TRAIN: ("training_hooks", "training_chief_hooks"),
        ModeKeys.EVAL: ("evaluation_hooks",),
        ModeKeys.PREDICT: ("prediction_hooks",),
    }
    return [hook for name in names[mode] for hook in getattr(spec, name, None) or ()]


def pairs_of(metrics: Any, source: str) -> dict[str, tuple[Any, Any]]:
    """Returns metrics as pairs of a value and its update, or raises a `TypeError`.

    Args:
        metrics: What a user gave, or a user's function returned.
        source: What errors call it.
    """
    if not isinstance(metrics, Mapping):
        raise TypeError(f"{source} must be a dict of metrics. Received: {metrics!r}")
    for name, pair in metrics.items():
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(
                f"{source} must be a dict from names to pairs (value, update_op), as "
                f"`tf.compat.v1.metrics` returns them. Received: {name!r}: {pair!r}"
            )
    return {name: (pair[0], pair[1]) for name, pair in metrics.items()}
