"""Writes the models of estimators as SavedModels, for whoever has no IPU."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from ipu_keras.estimators.specs import ModeKeys
from ipu_keras.internals.keras.backend import number_names_anew
from ipu_keras.internals.tensorflow.saved_models import outputs_for_mode, signatures_of

_V1 = tf.compat.v1
# Whoever loads a SavedModel looks for these: `tf.saved_model.TRAINING` and, since TensorFlow 1.13,
# its own names.
_TAGS = {ModeKeys.TRAIN: "train", ModeKeys.EVAL: "eval", ModeKeys.PREDICT: "serve"}
# The collection in which loaders of training graphs look for the operation that trains.
_TRAIN_OP = "saved_model_train_op"


class ExportedModel(NamedTuple):
    """A model in a graph that is written.

    Args:
        predictions: A tensor, or a dict of tensors.
        loss: A scalar, for training and evaluation.
        train_op: What trains the model.
        metrics: A dict of pairs of a value and its update.
        export_outputs: What the user says of the signatures.
    """

    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    metrics: Any = None
    export_outputs: Any = None


def write(
    folder: str,
    receivers: Mapping[str, Callable[[], Any]],
    model: Callable[[str, Any, Any], ExportedModel],
    checkpoint: str,
    *,
    assets_extra: Mapping[str, str],
    as_text: bool,
    strip_default_attrs: bool,
) -> str:
    """Writes graphs of a model with the variables of a checkpoint; returns the new folder.

    Args:
        folder: Where the new folder is made.
        receivers: Functions from nothing to receivers, by `ModeKeys`.
        model: Makes the model for a mode, features and labels in the graph that is open.
    """
    unknown = [mode for mode in receivers if mode not in _TAGS]
    missing = [mode for mode, function in receivers.items() if function is None]
    if unknown or missing or not receivers:
        raise ValueError(
            "A function that returns an input receiver must be given for one or more of the modes "
            f"{sorted(_TAGS)}. Received: {dict(receivers)}"
        )
    final = _unused(folder)
    # Whoever watches the folder takes what has a number as its name.
    partial = os.path.join(os.path.dirname(final), f"temp-{os.path.basename(final)}")
    builder = _V1.saved_model.Builder(partial)
    has_variables = False
    for mode in _TAGS:
        if mode not in receivers:
            continue
        with tf.Graph().as_default(), _V1.Session() as session:
            signatures = _signatures(mode, receivers[mode], model)
            _V1.train.Saver(sharded=True).restore(session, checkpoint)
            session.run([_V1.local_variables_initializer(), _V1.tables_initializer()])
            named = {
                "signature_def_map": signatures,
                "main_op": _V1.tables_initializer(),
                "strip_default_attrs": strip_default_attrs,
            }
            if has_variables:
                builder.add_meta_graph([_TAGS[mode]], **named)
            else:
                builder.add_meta_graph_and_variables(session, [_TAGS[mode]], **named)
                has_variables = True
    builder.save(as_text)
    for name, source in assets_extra.items():
        target = os.path.join(partial, "assets.extra", name)
        tf.io.gfile.makedirs(os.path.dirname(target))
        tf.io.gfile.copy(source, target)
    tf.io.gfile.rename(partial, final)
    return final


def _signatures(
    mode: str, receiver_fn: Callable[[], Any], model: Callable[[str, Any, Any], ExportedModel]
) -> Any:
    """Builds the graph of a mode; returns its signatures."""
    number_names_anew()
    with _V1.variable_scope(_V1.get_variable_scope(), use_resource=True):
        _V1.train.create_global_step()
    receiver = receiver_fn()
    made = model(mode, receiver.features, getattr(receiver, "labels", None))
    if mode == ModeKeys.TRAIN and made.train_op is not None:
        _V1.add_to_collection(_TRAIN_OP, made.train_op)
    outputs = outputs_for_mode(mode, made.export_outputs, made.predictions, made.loss, made.metrics)
    return signatures_of(
        receiver.receiver_tensors,
        outputs,
        getattr(receiver, "receiver_tensors_alternatives", None),
        serving_only=mode == ModeKeys.PREDICT,
    )


def _unused(folder: str) -> str:
    """Returns the path of a new folder, which is called by the time in seconds."""
    number = int(time.time())
    while tf.io.gfile.exists(os.path.join(folder, str(number))):
        number += 1
    return os.path.join(folder, str(number))
