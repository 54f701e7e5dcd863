"""What exported models are fed with and return: `tf.estimator.export`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from ipu_keras.internals.tensorflow.saved_models import (
    ClassificationOutput as ClassificationOutput,
)
from ipu_keras.internals.tensorflow.saved_models import ExportOutput as ExportOutput
from ipu_keras.internals.tensorflow.saved_models import PredictOutput as PredictOutput
from ipu_keras.internals.tensorflow.saved_models import RegressionOutput as RegressionOutput

# Names that TensorFlow 1 gave to single tensors.
_FEATURE = "feature"
_RECEIVER = "input"
_EXAMPLES = "examples"


class _Receiver(NamedTuple):
    features: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: Any = None


class ServingInputReceiver(_Receiver):
    """Features of a served model, and the tensors that are fed for them.

    Args:
        features: A dict of tensors, or a tensor, which the model function gets in a dict, as
            `"feature"`.
        receiver_tensors: A tensor, or a dict of tensors, that are fed.
        receiver_tensors_alternatives: A dict from names to other tensors that may be fed instead.
    """

    __slots__ = ()

    def __new__(
        cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None
    ):
        """Gives single tensors their names."""
        named = features if isinstance(features, Mapping) else {_FEATURE: features}
        fed = _named_receivers(receiver_tensors)
        return super().__new__(cls, named, fed, receiver_tensors_alternatives)


class TensorServingInputReceiver(_Receiver):
    """The one tensor that the model function of a served model gets, and what is fed for it.

    Args:
        features: A tensor of `(batch, ...)`.
        receiver_tensors: A tensor, or a dict of tensors, that are fed.
        receiver_tensors_alternatives: A dict from names to other tensors that may be fed instead.

    Raises:
        ValueError: `features` is a dict.
    """

    __slots__ = ()

    def __new__(
        cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None
    ):
        """Refuses dicts."""
        if isinstance(features, Mapping):
            raise ValueError(
                "`features` must be a tensor; for a dict there is ServingInputReceiver. "
                f"Received: features={features!r}"
            )
        fed = _named_receivers(receiver_tensors)
        return super().__new__(cls, features, fed, receiver_tensors_alternatives)


class SupervisedInputReceiver(NamedTuple):
    """Features and labels of a graph for training or evaluation, and what is fed for them.

    Args:
        features: A tensor, or a dict of tensors.
        labels: A tensor, or a dict of tensors.
        receiver_tensors: A tensor, or a dict of tensors, that are fed.
    """

    features: Any
    labels: Any
    receiver_tensors: Any


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, tf.Tensor], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Makes a function for features that are fed as they are.

    Args:
        features: A dict of tensors, whose types and shapes `(batch, ...)` the fed ones have.
        default_batch_size: The size of a batch. Defaults to any.

    Returns:
        A function that returns a `ServingInputReceiver`.
    """
    specs = {
        name: (tensor.dtype, [default_batch_size, *tensor.shape.as_list()[1:]])
        for name, tensor in features.items()
    }

    def receiver() -> ServingInputReceiver:
        fed = {
            name: tf.compat.v1.placeholder(dtype, shape, name)
            for name, (dtype, shape) in specs.items()
        }
        return ServingInputReceiver(fed, fed)

    return receiver


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Makes a function for features that are fed as serialized `tf.train.Example`.

    Args:
        feature_spec: A dict as `tf.io.parse_example` takes it.
        default_batch_size: The size of a batch. Defaults to any.

    Returns:
        A function that returns a `ServingInputReceiver`.
    """

    def receiver() -> ServingInputReceiver:
        serialized = tf.compat.v1.placeholder(
            tf.string, [default_batch_size], "input_example_tensor"
        )
        features = tf.io.parse_example(serialized, dict(feature_spec))
        return ServingInputReceiver(features, {_EXAMPLES: serialized})

    return receiver


def _named_receivers(tensors: Any) -> Mapping[str, Any]:
    return tensors if isinstance(tensors, Mapping) else {_RECEIVER: tensors}
