"""Small Keras models made at random: a seed is a model, the same one every time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import keras
from keras import layers

Shape = tuple[int, ...]

ACTIVATIONS = [
    *("relu", "tanh", "sigmoid", "gelu", "elu", "selu", "softplus", "softsign", "silu", "linear"),
    *("leaky_relu", "hard_sigmoid", "exponential", "relu6", "mish", "celu", "log_sigmoid"),
    *("hard_silu", "softmax", "log_softmax", "tanh_shrink", "soft_shrink", "squareplus"),
]


@dataclass
class Node:
    """A layer of a model.

    Attributes:
        kind: The name of its class in `keras.layers`.
        options: What it is constructed with.
        inputs: Positions of the nodes whose outputs it takes; 0 is the input.
    """

    kind: str
    options: dict = field(default_factory=dict)
    inputs: list[int] = field(default_factory=list)

    def __str__(self):
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.kind}({options}) <- {self.inputs}"


@dataclass
class RandomModel:
    """A model by its layers.

    Attributes:
        input_shape: Without the batch.
        vocabulary: For inputs that are integers below it; else None.
        nodes: In the order of their calls; the last one's output is the model's.
        noisy: Whether layers draw random numbers.
        has_state: Whether layers keep what training does not learn by gradients.
        sequential: Whether it is built as a `keras.Sequential`.
        masked: Whether zeros of its input, of all that belongs to a step, are masked.
        nested: First node and the one behind the last of those that are a model of their own.
        shared: Whether a layer before the last one is called twice.
        side: Size of a second input, which the last layer takes too; both are then a dict.
        second: Whether there is a second output of one number; both are then a dict.
        places: By name of layer, the node that it belongs to, of the model that was built last.
    """

    input_shape: Shape
    vocabulary: int | None
    nodes: list[Node]
    noisy: bool
    has_state: bool
    sequential: bool
    masked: bool = False
    nested: tuple[int, int] | None = None
    shared: bool = False
    side: int | None = None
    second: bool = False
    places: dict[str, int] = field(default_factory=dict)

    def build(self) -> keras.Model:
        """Makes it anew; the scope and the seed are the caller's."""
        dtype = "float32" if self.vocabulary is None else "int32"
        made = [_make(node) for node in self.nodes]
        self.places.clear()
        self.places.update((layer.name, position) for position, layer in enumerate(made))
        inputs = keras.Input(self.input_shape, dtype=dtype, name="main" if self.side else None)
        if self.masked and self.vocabulary is not None:
            made[0].mask_zero = made[0].supports_masking = True
        if self.sequential and not self.has_extras:
            return keras.Sequential([inputs, *made])
        outputs = [self._placed(0, layers.Masking())(inputs) if self._has_masking else inputs]
        for position, (node, layer) in enumerate(zip(self.nodes[:-1], made, strict=False)):
            if self.nested and self.nested[0] <= position < self.nested[1]:
                outputs.append(outputs[-1])
                if position == self.nested[1] - 1:
                    whole = keras.Sequential(made[self.nested[0] : self.nested[1]])
                    outputs[-1] = whole(outputs[-1])
                continue
            taken = [outputs[position] for position in node.inputs]
            if node.kind == "MultiHeadAttention":
                outputs.append(layer(taken[0], taken[0]))
            else:
                outputs.append(layer(taken[0] if len(taken) == 1 else taken))
        return self._with_ends(inputs, outputs[-1], made[-1])

    @property
    def has_extras(self) -> bool:
        """Whether there is more than a chain of layers."""
        return bool(self._has_masking or self.nested or self.shared or self.side or self.second)

    @property
    def _has_masking(self) -> bool:
        return self.masked and self.vocabulary is None

    def _with_ends(self, inputs, values, last: keras.Layer) -> keras.Model:
        """Makes the model, given what its last layer takes."""
        end = len(self.nodes) - 1
        given = inputs
        if self.shared:
            twice = self._placed(end, layers.Dense(values.shape[-1], "tanh"))
            values = twice(twice(values))
        if self.side:
            side = keras.Input((self.side,), name="side")
            given = {"main": inputs, "side": side}
            narrow = self._placed(end, layers.Dense(2, "tanh"))(side)
            values = self._placed(end, layers.Concatenate())([values, narrow])
        returned = last(values)
        if self.second:
            second = self._placed(end, layers.Dense(1, dtype="float32"))
            returned = {"first": returned, "second": second(values)}
        return keras.Model(given, returned)

    def _placed(self, position: int, layer: keras.Layer) -> keras.Layer:
        self.places[layer.name] = position
        return layer


def extend(model: RandomModel, random: Random) -> None:
    """Gives a model, by chance, more than a chain of layers.

    Args:
        model: The model.
        random: Another one than the model's, so that a seed means the same chain as ever.
    """
    model.masked = random.random() < 0.3 and _has_steps(model)
    model.shared = random.random() < 0.2
    model.side = random.randint(1, 3) if random.random() < 0.2 else None
    model.second = random.random() < 0.2
    chain = 0
    while chain < len(model.nodes) - 1 and _is_plain(model, chain):
        chain += 1
    if chain and random.random() < 0.3:
        start = random.randrange(chain)
        model.nested = start, random.randint(start + 1, chain)


def _has_steps(model: RandomModel) -> bool:
    return model.vocabulary is not None or len(model.input_shape) == 2


def _is_plain(model: RandomModel, position: int) -> bool:
    """Whether a node takes the one before it alone, and none further on takes that one."""
    later = [taken for node in model.nodes[position + 1 :] for taken in node.inputs]
    is_chained = model.nodes[position].inputs == [position] and position not in later
    return is_chained and _is_of_sequential(model.nodes[position])


def _make(node: Node) -> keras.Layer:
    options = {
        name: _make(value) if isinstance(value, Node) else value
        for name, value in node.options.items()
    }
    if node.kind == "Bidirectional" or node.kind == "TimeDistributed":
        return getattr(layers, node.kind)(options.pop("layer"), **options)
    return getattr(layers, node.kind)(**options)


def random_model(random: Random, num_outputs: int, last_activation: str | None) -> RandomModel:
    """A model of 1 to 6 layers and one that makes its outputs.

    Args:
        random: What it is drawn with.
        num_outputs: Units of its last layer.
        last_activation: Its last layer's.
    """
    return _Drawn(random).model(num_outputs, last_activation)


class _Drawn:
    """A model while it is drawn: its nodes, and the shape of the last one's output."""

    def __init__(self, random: Random):
        self.random = random
        self.nodes: list[Node] = []
        self.shape: Shape = ()
        self.noisy = self.has_state = False

    def model(self, num_outputs: int, last_activation: str | None) -> RandomModel:
        rank = self.random.choice([1, 1, 2, 2, 2, 3, 3, 3, 4])
        vocabulary = self.random.randint(3, 30) if self.random.random() < 0.15 else None
        if vocabulary is None:
            input_shape = tuple(self.random.randint(3, 8) for _ in range(rank))
            self.shape = input_shape
        else:
            input_shape = (self.random.randint(2, 6),)
            self.shape = input_shape
            units = self.random.randint(2, 6)
            self.add("Embedding", (*self.shape, units), input_dim=vocabulary, output_dim=units)
        for _ in range(self.random.randint(1, 6)):
            self.random.choice(_LAYERS[len(self.shape)])(self)
        if len(self.shape) > 1:
            self.random.choice(_ENDS[len(self.shape)])(self)
        self.add("Dense", (num_outputs,), units=num_outputs, activation=last_activation)
        return RandomModel(
            input_shape,
            vocabulary,
            self.nodes,
            self.noisy,
            self.has_state,
            sequential=all(_is_of_sequential(node) for node in self.nodes)
            and self.nodes_are_a_chain()
            and self.random.random() < 0.5,
        )

    def nodes_are_a_chain(self) -> bool:
        return all(node.inputs == [position] for position, node in enumerate(self.nodes))

    def add(self, kind: str, shape: Shape, _inputs: list[int] | None = None, **options) -> None:
        inputs = [len(self.nodes)] if _inputs is None else _inputs
        self.nodes.append(Node(kind, options, inputs))
        self.shape = shape

    def activation(self) -> str | None:
        return self.random.choice([None, "relu", "relu", "tanh", self.random.choice(ACTIVATIONS)])

    def weights(self) -> dict:
        """Options of a layer with a kernel, most of which have their defaults."""
        options: dict = {}
        if self.random.random() < 0.2:
            options["use_bias"] = False
        if self.random.random() < 0.1:
            options["kernel_regularizer"] = self.random.choice(["l1", "l2"])
        if self.random.random() < 0.1:
            options["kernel_constraint"] = self.random.choice(["max_norm", "unit_norm"])
        if self.random.random() < 0.2:
            options["kernel_initializer"] = self.random.choice(
                ["he_normal", "lecun_uniform", "orthogonal", "random_normal", "truncated_normal"]
            )
        return options


def _is_of_sequential(node: Node) -> bool:
    return node.kind != "MultiHeadAttention"


def _size(given: int, kernel: int, stride: int, padding: str) -> int:
    if padding == "same":
        return -(-given // stride)
    return (given - kernel) // stride + 1


def _dense(drawn: _Drawn) -> None:
    units = drawn.random.randint(1, 9)
    options = drawn.weights()
    shape = (*drawn.shape[:-1], units)
    drawn.add("Dense", shape, units=units, activation=drawn.activation(), **options)


def _window(drawn: _Drawn, limit: int = 3) -> tuple[int, int, str]:
    kernel = drawn.random.randint(1, min(limit, *drawn.shape[:-1]))
    stride = drawn.random.choice([1, 1, 2])
    return kernel, stride, drawn.random.choice(["valid", "same"])


def _convolution(drawn: _Drawn) -> None:
    rank = len(drawn.shape) - 1
    kernel, stride, padding = _window(drawn)
    dilation = 2 if stride == 1 and padding == "same" and drawn.random.random() < 0.2 else 1
    filters, groups = drawn.random.randint(1, 6), 1
    if drawn.shape[-1] % 2 == 0 and drawn.random.random() < 0.2:
        filters, groups = 2 * filters, 2
    sizes = [_size(size, kernel, stride, padding) for size in drawn.shape[:-1]]
    drawn.add(
        f"Conv{rank}D",
        (*sizes, filters),
        filters=filters,
        kernel_size=kernel,
        strides=stride,
        padding=padding,
        dilation_rate=dilation,
        groups=groups,
        activation=drawn.activation(),
        **drawn.weights(),
    )


def _causal_convolution(drawn: _Drawn) -> None:
    filters = drawn.random.randint(1, 6)
    shape = (drawn.shape[0], filters)
    drawn.add("Conv1D", shape, filters=filters, kernel_size=2, padding="causal")


def _depthwise_convolution(drawn: _Drawn) -> None:
    rank = len(drawn.shape) - 1
    kernel, stride, padding = _window(drawn)
    multiplier = drawn.random.randint(1, 2)
    sizes = [_size(size, kernel, stride, padding) for size in drawn.shape[:-1]]
    drawn.add(
        f"DepthwiseConv{rank}D",
        (*sizes, drawn.shape[-1] * multiplier),
        kernel_size=kernel,
        strides=stride,
        padding=padding,
        depth_multiplier=multiplier,
        activation=drawn.activation(),
    )


def _separable_convolution(drawn: _Drawn) -> None:
    rank = len(drawn.shape) - 1
    filters = drawn.random.randint(1, 6)
    shape = (*drawn.shape[:-1], filters)
    drawn.add(
        f"SeparableConv{rank}D",
        shape,
        filters=filters,
        kernel_size=drawn.random.randint(1, 3),
        padding="same",
        activation=drawn.activation(),
    )


def _transposed_convolution(drawn: _Drawn) -> None:
    rank = len(drawn.shape) - 1
    filters, stride = drawn.random.randint(1, 4), drawn.random.randint(1, 2)
    sizes = [size * stride for size in drawn.shape[:-1]]
    drawn.add(
        f"Conv{rank}DTranspose",
        (*sizes, filters),
        filters=filters,
        kernel_size=drawn.random.randint(1, 3),
        strides=stride,
        padding="same",
        activation=drawn.activation(),
    )


def _pooling(drawn: _Drawn) -> None:
    rank = len(drawn.shape) - 1
    kernel, stride, padding = _window(drawn)
    sizes = [_size(size, kernel, stride, padding) for size in drawn.shape[:-1]]
    kind = f"{drawn.random.choice(['Max', 'Average'])}Pooling{rank}D"
    options = {"pool_size": kernel, "strides": stride, "padding": padding}
    drawn.add(kind, (*sizes, drawn.shape[-1]), **options)


def _batch_normalization(drawn: _Drawn) -> None:
    drawn.has_state = True
    options = {"momentum": 0.9} if drawn.random.random() < 0.5 else {}
    if drawn.random.random() < 0.2:
        options["scale"] = False
    drawn.add("BatchNormalization", drawn.shape, **options)


def _normalization(drawn: _Drawn) -> None:
    kinds = ["LayerNormalization", "UnitNormalization", "RMSNormalization"]
    kind = drawn.random.choice([*kinds, "GroupNormalization"])
    if kind == "GroupNormalization" and len(drawn.shape) > 1:
        divisors = [n for n in (1, 2, 3) if drawn.shape[-1] % n == 0]
        drawn.add(kind, drawn.shape, groups=drawn.random.choice(divisors))
    else:
        drawn.add(drawn.random.choice(kinds), drawn.shape)


def _activation(drawn: _Drawn) -> None:
    if drawn.random.random() < 0.3:
        kind = drawn.random.choice(["LeakyReLU", "PReLU", "ELU", "ReLU", "Softmax"])
        drawn.add(kind, drawn.shape)
        return
    drawn.add("Activation", drawn.shape, activation=drawn.random.choice(ACTIVATIONS))


def _noise(drawn: _Drawn) -> None:
    drawn.noisy = True
    options: dict = {"rate": drawn.random.choice([0.1, 0.3, 0.5])}
    kind = drawn.random.choice(["Dropout", "Dropout", "GaussianDropout", "AlphaDropout"])
    if drawn.random.random() < 0.2:
        kind, options = "GaussianNoise", {"stddev": 0.1}
    elif 1 < len(drawn.shape) < 5 and drawn.random.random() < 0.3:
        kind = f"SpatialDropout{len(drawn.shape) - 1}D"
    drawn.add(kind, drawn.shape, **options)


def _recurrent(drawn: _Drawn) -> None:
    units = drawn.random.randint(1, 5)
    sequences = drawn.random.random() < 0.6
    options: dict = {"units": units, "return_sequences": sequences}
    if drawn.random.random() < 0.2:
        options["go_backwards"] = True
    if drawn.random.random() < 0.2:
        options["unroll"] = True
    if drawn.random.random() < 0.15:
        options["dropout"] = 0.2
        drawn.noisy = True
    kind = drawn.random.choice(["LSTM", "GRU", "SimpleRNN"])
    if kind == "GRU" and drawn.random.random() < 0.2:
        options["reset_after"] = False
    width = units
    node = Node(kind, options)
    if drawn.random.random() < 0.2:
        options.pop("go_backwards", None)
        mode = drawn.random.choice(["concat", "sum", "ave", "mul"])
        width = 2 * units if mode == "concat" else units
        node = Node("Bidirectional", {"layer": node, "merge_mode": mode})
    shape = (drawn.shape[0], width) if sequences else (width,)
    drawn.add(node.kind, shape, **node.options)


def _time_distributed(drawn: _Drawn) -> None:
    units = drawn.random.randint(1, 5)
    layer = Node("Dense", {"units": units})
    drawn.add("TimeDistributed", (drawn.shape[0], units), layer=layer)


def _attention(drawn: _Drawn) -> None:
    options: dict = {"num_heads": drawn.random.randint(1, 2), "key_dim": drawn.random.randint(1, 4)}
    # The gradient of a key's bias is nothing but rounding, of which optimizers make whole steps.
    options["use_bias"] = False
    if drawn.random.random() < 0.2:
        options["dropout"] = 0.2
        drawn.noisy = True
    drawn.add("MultiHeadAttention", drawn.shape, **options)


def _residual(drawn: _Drawn) -> None:
    """A layer that keeps the shape, and its input and output merged."""
    before, shape = len(drawn.nodes), drawn.shape
    inner = drawn.random.choice([_activation, _normalization, _same_dense, _noise])
    inner(drawn)
    kind = drawn.random.choice(["Add", "Multiply", "Maximum", "Average", "Subtract", "Concatenate"])
    if drawn.shape != shape:
        return
    if kind == "Concatenate":
        shape = (*shape[:-1], 2 * shape[-1])
    drawn.add(kind, shape, [before, len(drawn.nodes)])


def _same_dense(drawn: _Drawn) -> None:
    units = drawn.shape[-1]
    drawn.add("Dense", drawn.shape, units=units, activation=drawn.activation())


def _einsum_dense(drawn: _Drawn) -> None:
    units = drawn.random.randint(1, 5)
    drawn.add(
        "EinsumDense",
        (drawn.shape[0], units),
        equation="btf,fu->btu",
        output_shape=(drawn.shape[0], units),
        bias_axes="u",
    )


def _flatten(drawn: _Drawn) -> None:
    size = 1
    for extent in drawn.shape:
        size *= extent
    drawn.add("Flatten", (size,))


def _global_pooling(drawn: _Drawn) -> None:
    kind = drawn.random.choice(["Max", "Average"])
    drawn.add(f"Global{kind}Pooling{len(drawn.shape) - 1}D", (drawn.shape[-1],))


def _resizing(drawn: _Drawn) -> None:
    rank = len(drawn.shape) - 1
    kind = drawn.random.choice(["ZeroPadding", "Cropping", "UpSampling"])
    sizes, channels = drawn.shape[:-1], drawn.shape[-1]
    if kind == "ZeroPadding":
        drawn.add(f"{kind}{rank}D", (*(size + 2 for size in sizes), channels), padding=1)
    elif kind == "Cropping" and min(sizes) > 2:
        drawn.add(f"{kind}{rank}D", (*(size - 2 for size in sizes), channels), cropping=1)
    elif kind == "UpSampling" and max(sizes) < 10:
        drawn.add(f"{kind}{rank}D", (*(2 * size for size in sizes), channels), size=2)
    else:
        drawn.add("Permute", drawn.shape[::-1], dims=tuple(range(len(drawn.shape), 0, -1)))


def _repeat(drawn: _Drawn) -> None:
    if drawn.shape[0] <= 12:
        drawn.add("RepeatVector", (3, drawn.shape[0]), n=3)
    else:
        _dense(drawn)


def _rescaling(drawn: _Drawn) -> None:
    drawn.add("Rescaling", drawn.shape, scale=0.5, offset=0.1)


def _regularization(drawn: _Drawn) -> None:
    drawn.add("ActivityRegularization", drawn.shape, l2=0.01)


_Draw = Callable[[_Drawn], None]
_ANY: list[_Draw] = [
    *(_dense, _activation, _activation, _normalization, _batch_normalization),
    *(_noise, _residual, _rescaling, _regularization),
]
_SPATIAL: list[_Draw] = [_convolution] * 4 + [_pooling, _resizing, _transposed_convolution]
_LAYERS: dict[int, list[_Draw]] = {
    1: [_dense, _dense, *_ANY, _repeat],
    2: [
        *(*_ANY, *_SPATIAL, _recurrent, _recurrent, _recurrent, _attention, _einsum_dense),
        *(_time_distributed, _depthwise_convolution, _separable_convolution, _causal_convolution),
    ],
    3: [*_ANY, *_SPATIAL, _depthwise_convolution, _separable_convolution],
    4: [*_ANY, *_SPATIAL],
}
_ENDS: dict[int, list[_Draw]] = {
    2: [_flatten, _global_pooling],
    3: [_flatten, _global_pooling],
    4: [_flatten, _global_pooling],
}
