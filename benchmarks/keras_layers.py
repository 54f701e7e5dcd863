"""A model around each layer of `keras.layers`, to train it and to predict with it.

A test checks that no layer is missing.
"""

import inspect
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from keras import layers

# What `dir(keras.layers)` has besides layers, and those that cannot be called here.
LEFT_OUT: Mapping[str, str] = {
    **dict.fromkeys(("Layer", "Wrapper"), "has no call of its own"),
    **dict.fromkeys(("Input", "InputLayer", "InputSpec"), "says what a model takes"),
    **dict.fromkeys(("deserialize", "get", "serialize"), "reads and writes configurations"),
    **dict.fromkeys(("FlaxLayer", "JaxLayer"), "needs JAX"),
    "TorchModuleWrapper": "needs PyTorch",
}

_BATCH = 4
_FLAT = tf.TensorSpec((_BATCH, 12))
_LINE = tf.TensorSpec((_BATCH, 10, 6))
_IMAGE = tf.TensorSpec((_BATCH, 16, 16, 3))
_SPACE = tf.TensorSpec((_BATCH, 8, 8, 8, 2))
_NUMBERS = tf.TensorSpec((_BATCH, 10), tf.int32)
_BY_RANK = {"1D": _LINE, "2D": _IMAGE, "3D": _SPACE}
_LABELLED = {"images": _IMAGE, "labels": tf.TensorSpec((_BATCH, 5))}
_BOXES = {
    "boxes": tf.TensorSpec((_BATCH, 3, 4)),
    "labels": tf.TensorSpec((_BATCH, 3), tf.int32),
}


@dataclass(frozen=True)
class Case:
    """A layer and what it takes.

    Args:
        make: Makes the layer.
        specs: Of its inputs, a structure.
        call: Calls it, if not with its inputs alone: takes the layer, the inputs, and whether
            it trains.
    """

    make: Callable[[], Any]
    specs: Any
    call: Callable[[Any, Any, bool], Any] | None = None

    def model(self) -> keras.Model:
        """A compiled model of the layer, and of one weight that all inputs are scaled with."""
        model = _Around(self.make(), self.call)
        model.compile(keras.optimizers.SGD(0.1))
        return model


class _Around(keras.Model):
    """Has a gradient for all that a layer takes and returns; predicts what the layer returns."""

    def __init__(self, layer: Any, call: Callable[[Any, Any, bool], Any] | None) -> None:
        super().__init__(name="model")
        self.layer = layer
        self._call = call
        self._takes_training = (
            not isinstance(layer, keras.layers.Layer) or layer._call_has_training_arg
        )
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, inputs: Any, training: bool = False) -> Any:
        inputs = tf.nest.map_structure(self._scaled, inputs)
        if self._call is not None:
            return self._call(self.layer, inputs, training)
        if self._takes_training:
            return self.layer(inputs, training=training)
        return self.layer(inputs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> Any:
        results = [tf.reduce_mean(tf.cast(each, tf.float32)) for each in tf.nest.flatten(y_pred)]
        return self.scale * tf.add_n(results)

    def _scaled(self, tensor: tf.Tensor) -> tf.Tensor:
        return tensor * self.scale if tensor.dtype.is_floating else tensor


def _of_texts(layer: Any, inputs: tf.Tensor, training: bool) -> Any:
    """An IPU is fed numbers, of which the host may make texts."""
    return layer(tf.strings.as_string(inputs))


def _of_padded_texts(layer: Any, inputs: tf.Tensor, training: bool) -> Any:
    """An IPU returns shapes that it knows, but Keras forgets how long its results are."""
    result = layer(tf.strings.as_string(inputs))
    return tf.ensure_shape(result, (_BATCH, 4))


def _saved() -> Any:
    folder = tempfile.mkdtemp()
    keras.Sequential([keras.Input((12,)), layers.Dense(3)]).export(folder, verbose=False)
    return layers.TFSMLayer(folder, call_endpoint="serve")


def _normalization() -> Any:
    layer = layers.Normalization(mean=0.5, variance=2.0)
    layer.build(_FLAT.shape)  # within a trace, Keras keeps tensors of the trace
    return layer


# Of the layers that take a line, an image or a space with channels, by the end of their name.
_SPATIAL: Mapping[str, Callable[[type], Any]] = {
    **{
        f"{kind}{pooling}Pooling": (lambda make: make(2))
        for kind in ("Adaptive", "")
        for pooling in ("Average", "Max")
    },
    **dict.fromkeys(("GlobalAveragePooling", "GlobalMaxPooling"), lambda make: make()),
    **dict.fromkeys(("Conv", "SeparableConv"), lambda make: make(4, 3)),
    "DepthwiseConv": lambda make: make(3),
    **dict.fromkeys(("Cropping", "UpSampling", "ZeroPadding"), lambda make: make()),
    "SpatialDropout": lambda make: make(0.5),
}
_ON_IMAGES: Mapping[str, Mapping[str, Any]] = {
    "AugMix": {},
    "AutoContrast": {},
    "CenterCrop": {"height": 8, "width": 8},
    "ContrastLimitedAdaptiveHistogramEqualization": {},
    "Equalization": {},
    # Each of its operations is one of all augmentations, which are traced anew for it.
    "RandAugment": {"num_ops": 1},
    "RandomBrightness": {"factor": 0.2},
    "RandomColorDegeneration": {"factor": 0.5},
    "RandomColorJitter": {"brightness_factor": 0.2, "hue_factor": 0.1},
    "RandomContrast": {"factor": 0.5},
    "RandomCrop": {"height": 8, "width": 8},
    "RandomElasticTransform": {},
    "RandomErasing": {},
    "RandomFlip": {},
    "RandomGaussianBlur": {},
    "RandomGrayscale": {},
    "RandomHue": {"factor": 0.2},
    "RandomInvert": {},
    "RandomPerspective": {},
    "RandomPosterization": {"factor": 4},
    "RandomRotation": {"factor": 0.2},
    "RandomSaturation": {"factor": 0.5},
    "RandomSharpness": {"factor": 0.5},
    "RandomShear": {"x_factor": 0.2, "y_factor": 0.2},
    "RandomTranslation": {"height_factor": 0.2, "width_factor": 0.2},
    "RandomZoom": {"height_factor": 0.2},
    "Rescaling": {"scale": 0.5},
    "Resizing": {"height": 8, "width": 8},
    "Solarization": {},
}
_ON_FLAT: Mapping[str, tuple[Any, ...]] = {
    "Activation": ("gelu",),
    "ActivityRegularization": (0.1, 0.1),
    "AlphaDropout": (0.5,),
    "BatchNormalization": (),
    "Dense": (5,),
    "Discretization": ([-0.5, 0.0, 0.5],),
    "Dropout": (0.5,),
    "ELU": (),
    "EinsumDense": ("ab,bc->ac", 5),
    "Flatten": (),
    "GaussianDropout": (0.5,),
    "GaussianNoise": (0.5,),
    "GroupNormalization": (4,),
    "Identity": (),
    "Lambda": (tf.sin,),
    "LayerNormalization": (),
    "LeakyReLU": (),
    "Masking": (),
    "PReLU": (),
    "RMSNormalization": (),
    "ReLU": (),
    "RepeatVector": (3,),
    "Reshape": ((3, 4),),
    "Softmax": (),
    "UnitNormalization": (),
}
_OF_SEVERAL = ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract")


def _cell(cell: Any, inputs: Any, training: bool) -> Any:
    states = cell.get_initial_state(batch_size=_BATCH)
    return cell(inputs, states, training=training)


def _cases() -> dict[str, Case]:
    found = {
        f"{name}{rank}": Case(lambda make=make, each=each: make(each), spec)
        for name, make in _SPATIAL.items()
        for rank, spec in _BY_RANK.items()
        if (each := getattr(layers, f"{name}{rank}", None)) is not None
    }
    for rank, spec in _BY_RANK.items():
        transposed = getattr(layers, f"Conv{rank}Transpose")
        found[f"Conv{rank}Transpose"] = Case(lambda each=transposed: each(4, 3, strides=2), spec)
        steps = tf.TensorSpec((_BATCH, 2, *spec.shape[1:]))
        recurrent = getattr(layers, f"ConvLSTM{rank}")
        found[f"ConvLSTM{rank}"] = Case(lambda each=recurrent: each(2, 3), steps)
    for name, options in _ON_IMAGES.items():
        each = getattr(layers, name)
        found[name] = Case(lambda each=each, options=options: each(**options), _IMAGE)
    for name, arguments in _ON_FLAT.items():
        each = getattr(layers, name)
        found[name] = Case(lambda each=each, given=arguments: each(*given), _FLAT)
    for name in _OF_SEVERAL:
        found[name] = Case(getattr(layers, name), [_FLAT, _FLAT])
        function = getattr(layers, name.lower())
        found[name.lower()] = Case(lambda f=function: layers.Lambda(f), [_FLAT, _FLAT])
    for name in ("GRU", "LSTM", "SimpleRNN"):
        found[name] = Case(lambda name=name: getattr(layers, name)(4), _LINE)
        cell = getattr(layers, f"{name}Cell")
        found[f"{name}Cell"] = Case(lambda each=cell: each(4), _FLAT, _cell)
    return {**found, **_OTHERS}


def _attended(layer: Any, inputs: Any, training: bool) -> Any:
    return layer(*inputs, training=training)


_OTHERS: dict[str, Case] = {
    "AdditiveAttention": Case(layers.AdditiveAttention, [_LINE, _LINE]),
    "Attention": Case(layers.Attention, [_LINE, _LINE]),
    "Bidirectional": Case(lambda: layers.Bidirectional(layers.LSTM(4)), _LINE),
    "CategoryEncoding": Case(lambda: layers.CategoryEncoding(7), _NUMBERS),
    "CategoryEncoding count": Case(
        lambda: layers.CategoryEncoding(7, output_mode="count"), _NUMBERS
    ),
    "CategoryEncoding one_hot": Case(
        lambda: layers.CategoryEncoding(7, output_mode="one_hot"), _NUMBERS
    ),
    "CutMix": Case(layers.CutMix, _LABELLED),
    "Dot": Case(lambda: layers.Dot(axes=1), [_FLAT, _FLAT]),
    "dot": Case(lambda: layers.Lambda(lambda x: layers.dot(x, axes=1)), [_FLAT, _FLAT]),
    "Embedding": Case(lambda: layers.Embedding(20, 6), _NUMBERS),
    "GroupQueryAttention": Case(
        lambda: layers.GroupQueryAttention(4, 4, 2), [_LINE, _LINE], _attended
    ),
    "HashedCrossing": Case(
        lambda: layers.HashedCrossing(5),
        (_NUMBERS, _NUMBERS),
        lambda layer, inputs, training: layer(tuple(each[:, 0] for each in inputs)),
    ),
    "Hashing": Case(lambda: layers.Hashing(5), _NUMBERS),
    "IntegerLookup": Case(lambda: layers.IntegerLookup(vocabulary=[3, 5, 7]), _NUMBERS),
    "MaxNumBoundingBoxes": Case(
        lambda: layers.MaxNumBoundingBoxes(2, bounding_box_format="xyxy"),
        {"images": _IMAGE, "bounding_boxes": _BOXES},
    ),
    "MelSpectrogram": Case(
        lambda: layers.MelSpectrogram(
            num_mel_bins=8, fft_length=64, sequence_stride=32, min_freq=0.0
        ),
        tf.TensorSpec((_BATCH, 256)),
    ),
    "MixUp": Case(layers.MixUp, _LABELLED),
    "MultiHeadAttention": Case(lambda: layers.MultiHeadAttention(2, 4), [_LINE, _LINE], _attended),
    "Normalization": Case(_normalization, _FLAT),
    "Permute": Case(lambda: layers.Permute((2, 1)), _LINE),
    "Pipeline": Case(
        lambda: layers.Pipeline([layers.RandomFlip(), layers.RandomContrast(0.5)]), _IMAGE
    ),
    "RNN": Case(lambda: layers.RNN(layers.GRUCell(4)), _LINE),
    "ReversibleEmbedding": Case(lambda: layers.ReversibleEmbedding(20, 6), _NUMBERS),
    "STFTSpectrogram": Case(
        lambda: layers.STFTSpectrogram(frame_length=32, frame_step=16, fft_length=32),
        tf.TensorSpec((_BATCH, 256, 1)),
    ),
    "SpectralNormalization": Case(lambda: layers.SpectralNormalization(layers.Dense(5)), _FLAT),
    "StackedRNNCells": Case(
        lambda: layers.StackedRNNCells([layers.GRUCell(4), layers.LSTMCell(3)]), _FLAT, _cell
    ),
    "StringLookup": Case(
        lambda: layers.StringLookup(vocabulary=["3", "5", "7"]), _NUMBERS, _of_texts
    ),
    "TFSMLayer": Case(_saved, _FLAT),
    "TextVectorization": Case(
        lambda: layers.TextVectorization(vocabulary=["3", "5"], output_sequence_length=4),
        tf.TensorSpec((_BATCH,), tf.int32),
        _of_padded_texts,
    ),
    "TimeDistributed": Case(lambda: layers.TimeDistributed(layers.Dense(3)), _LINE),
}

CASES: Mapping[str, Case] = dict(sorted(_cases().items(), key=lambda case: case[0].lower()))


def missing() -> list[str]:
    """Names of `keras.layers` that are neither modelled nor left out; other names of one count."""
    public = {name: getattr(layers, name) for name in dir(layers) if not name.startswith("_")}
    known = {
        public[name] for name in (*(case.split()[0] for case in CASES), *LEFT_OUT) if name in public
    }
    return [
        name
        for name, each in public.items()
        if (inspect.isclass(each) or callable(each)) and each not in known
    ]
