"""Multi-head attention over padded sequences that computes little of the padding."""

import keras
import tensorflow as tf

from ipu_keras.keras.layers.weights import add_weight
from ipu_keras.ops.argument_checks import (
    check_flag,
    check_share,
    converted,
    positive_integer,
)
from ipu_keras.ops.packed_sequences import Chunk, ChunkSizes, map_chunks, pack, unpack

# The default of Keras's LayerNormalization.
_EPSILON = 1e-3


@keras.saving.register_keras_serializable(package="ipu_addons")
class EffectiveTransformer(keras.layers.Layer):
    """Multi-head attention whose queries, keys and values are computed of no padding.

    The attention of A. Vaswani et al., "Attention is all you need", 2017: queries of the "from"
    sequences attend to keys and values of the "to" sequences. If both are the same, it is
    self-attention. Of each sequence only the tokens before its length count.

    An IPU program has one size for all batches. Tokens are packed into a buffer for
    `sequences_per_iter` full sequences, of which queries, keys and values are computed: choose it
    as the batch size times the share of tokens that are no padding. The attention itself, and the
    output, which is one dense layer of all places of a sequence, work on `max_batch_size` rows with
    padding. Rows whose tokens do not fit into the buffer follow in a
    further iteration, so results never depend on these sizes, but time does. A report counts one
    iteration for every `max_batch_size` rows, and says that it depends on data.

    Args:
        output_layer_size: Size of the outputs.
        max_batch_size: The most rows of the batch in an iteration.
        use_scale: Whether the attention scores are multiplied by a learned number, besides
            `1 / sqrt(attention_head_size)`. Defaults to `False`.
        num_attention_heads: Number of attention heads. Defaults to `1`.
        attention_head_size: Size of the query, key and value of a head. Defaults to
            `output_layer_size // num_attention_heads`.
        sequences_per_iter: How many full sequences the tokens of an iteration could be, at most
            `max_batch_size`. Defaults to `max_batch_size`.
        qkv_activation: Activation of queries, keys and values. Defaults to none.
        attention_dropout_prob: Share of the attention's weights that are dropped in training.
            Defaults to `0`.
        output_activation: Activation of the outputs. Defaults to none.
        output_dropout_prob: Share of the outputs that are dropped in training. Defaults to `0`.
        layer_norm_output: Whether the outputs are normalized in the end. Defaults to `False`.
        embedding_initializer: Initializer of the kernels of queries, keys and values. Defaults
            to `"glorot_uniform"`.
        embedding_bias_initializer: Initializer of the biases of queries, keys and values.
            Defaults to `"zeros"`.
        output_initializer: Initializer of the output's kernel. Defaults to `"glorot_uniform"`.
        output_bias_initializer: Initializer of the output's bias. Defaults to `"zeros"`.
        **kwargs: Further arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        inputs: A list of tensors: from sequences `(batch, from_length, features)`, or
            `(batch, from_length)` for one feature; their lengths `(batch,)`, integers; to
            sequences and their lengths in the same way; and optionally a mask for heads,
            `(batch, heads)` or `(batch, from_length, heads)`, which what each head found is
            multiplied by.
        training: Whether dropout drops anything. Defaults to `True`.

    Output:
        A tuple of two tensors:

        - The outputs, a row for each sequence, `(batch, output_layer_size)`. They are computed of
          the contexts of all places of a sequence, one after the other.
        - The context, a row for each place of a from sequence, sequence after sequence: what the
          heads found, one beside the other,
          `(batch * from_length, num_attention_heads * attention_head_size)`.

        The context is zero where the from sequences have padding, and where a sequence has nothing
        to attend to; the output is then that of zeros.

    Raises:
        TypeError: Sequences or a mask are not of numbers, or lengths are not integers.
        ValueError: An argument is out of its range, or `inputs` does not have the tensors above.

    Example:

    >>> layer = EffectiveTransformer(8, max_batch_size=4, sequences_per_iter=2)
    >>> x, lengths = tf.ones((4, 6, 3)), tf.constant([6, 1, 0, 5])
    >>> outputs, context = layer([x, lengths, x, lengths])  # 12 tokens: one iteration
    >>> outputs.shape
    TensorShape([4, 8])
    >>> context.shape
    TensorShape([24, 8])
    """

    def __init__(
        self,
        output_layer_size,
        max_batch_size,
        use_scale=False,
        num_attention_heads=1,
        attention_head_size=None,
        sequences_per_iter=None,
        qkv_activation=None,
        attention_dropout_prob=0.0,
        output_activation=None,
        output_dropout_prob=0.0,
        layer_norm_output=False,
        embedding_initializer="glorot_uniform",
        embedding_bias_initializer="zeros",
        output_initializer="glorot_uniform",
        output_bias_initializer="zeros",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.output_layer_size = positive_integer("output_layer_size", output_layer_size)
        self.max_batch_size = positive_integer("max_batch_size", max_batch_size)
        self.use_scale = check_flag("use_scale", use_scale)
        self.num_attention_heads = positive_integer("num_attention_heads", num_attention_heads)
        if attention_head_size is None:
            attention_head_size = self.output_layer_size // self.num_attention_heads
        if sequences_per_iter is None:
            sequences_per_iter = self.max_batch_size
        self.attention_head_size = positive_integer("attention_head_size", attention_head_size)
        self.sequences_per_iter = positive_integer("sequences_per_iter", sequences_per_iter)
        if self.sequences_per_iter > self.max_batch_size:
            raise ValueError(
                "`sequences_per_iter` must be less than or equal to `max_batch_size`. Received: "
                f"sequences_per_iter={sequences_per_iter}, max_batch_size={max_batch_size}"
            )
        activation, initializer = keras.activations.get, keras.initializers.get
        self.qkv_activation = converted("qkv_activation", activation, qkv_activation)
        self.attention_dropout_prob = check_share("attention_dropout_prob", attention_dropout_prob)
        self.output_activation = converted("output_activation", activation, output_activation)
        self.output_dropout_prob = check_share("output_dropout_prob", output_dropout_prob)
        self.layer_norm_output = check_flag("layer_norm_output", layer_norm_output)
        self.embedding_initializer = converted(
            "embedding_initializer", initializer, embedding_initializer
        )
        self.embedding_bias_initializer = converted(
            "embedding_bias_initializer", initializer, embedding_bias_initializer
        )
        self.output_initializer = converted("output_initializer", initializer, output_initializer)
        self.output_bias_initializer = converted(
            "output_bias_initializer", initializer, output_bias_initializer
        )
        if self.attention_dropout_prob or self.output_dropout_prob:
            self.seed_generator = keras.random.SeedGenerator()

    def build(self, input_shapes):
        _check_inputs(input_shapes, self.num_attention_heads)
        features = {"query": input_shapes[0], "key": input_shapes[2], "value": input_shapes[2]}
        units = self._context_size
        self._parameters = {}
        for name, shape in features.items():
            size = shape[2] if len(shape) == 3 else 1
            self._add_dense(name, (size, units), "embedding")
        places = input_shapes[0][1]
        self._add_dense("output", (places * units, self.output_layer_size), "output")
        if self.use_scale:
            self._add("scale", (), "ones")
        if self.layer_norm_output:
            self._add("gamma", (self.output_layer_size,), "ones")
            self._add("beta", (self.output_layer_size,), "zeros")

    def _add_dense(self, name, shape, argument):
        kinds = {"kernel": (f"{argument}_initializer", shape)}
        kinds["bias"] = (f"{argument}_bias_initializer", shape[1:])
        for kind, (initializer, of_kind) in kinds.items():
            self._add(f"{name}_{kind}", of_kind, getattr(self, initializer), initializer)

    def _add(self, name, shape, initializer, argument="initializer"):
        self._parameters[name] = add_weight(self, argument, initializer, name=name, shape=shape)

    def call(self, inputs, training=True):
        _check_inputs([tuple(tensor.shape) for tensor in inputs], self.num_attention_heads)
        _check_types(inputs)
        from_sequences, from_lengths, to_sequences, to_lengths, *q_mask = inputs
        rows = [_with_features(from_sequences), _with_features(to_sequences)]
        lengths = [
            tf.clip_by_value(tf.reshape(tf.cast(given, tf.int32), [-1]), 0, row.shape[1])
            for given, row in zip((from_lengths, to_lengths), rows, strict=True)
        ]
        if q_mask:
            rows.append(_by_query(tf.cast(q_mask[0], rows[0].dtype)))
        drops = training and (self.attention_dropout_prob or self.output_dropout_prob)
        seed = tf.cast(self.seed_generator.next(), tf.int32) if drops else None
        max_tokens = tuple(self.sequences_per_iter * row.shape[1] for row in rows[:2])
        sizes = [self.output_layer_size, rows[0].shape[1] * self._context_size]
        results = map_chunks(
            lambda chunk: self._results(chunk, seed),
            rows,
            lengths,
            [tf.convert_to_tensor(variable) for variable in self._parameters.values()],
            ChunkSizes(max_rows=self.max_batch_size, max_tokens=max_tokens),
            tf.TensorSpec((sum(sizes),), rows[0].dtype),
        )
        outputs, context = tf.split(results, sizes, axis=1)
        return outputs, tf.reshape(context, (-1, self._context_size))

    def _results(self, chunk: Chunk, seed):
        """Returns outputs beside context for a chunk's rows; queries and others are packed."""
        weights = dict(zip(self._parameters, chunk.parameters, strict=True))
        (from_rows, to_rows, *masks), (from_lengths, to_lengths) = chunk.rows, chunk.lengths
        from_length, to_length = from_rows.shape[1], to_rows.shape[1]
        num_tokens = self.sequences_per_iter * from_length
        from_tokens = pack(from_rows, from_lengths, num_tokens)
        to_tokens = pack(to_rows, to_lengths, self.sequences_per_iter * to_length)
        query = self._heads(weights, "query", from_tokens, from_lengths, from_length)
        key = self._heads(weights, "key", to_tokens, to_lengths, to_length)
        value = self._heads(weights, "value", to_tokens, to_lengths, to_length)
        # The chunk's first row makes the seed its own, and the same when the gradient computes
        # it again.
        seeds = None if seed is None else tf.stack([seed[0] + chunk.first_row, seed[1]])
        found = self._attend(weights, query, key, value, to_lengths, seeds)
        if masks:
            found *= masks[0][..., tf.newaxis]
        # Queries of padding are zeros, which attend to something as well.
        is_token = tf.sequence_mask(from_lengths, from_length, found.dtype)
        found *= is_token[..., tf.newaxis, tf.newaxis]
        context = tf.reshape(found, (-1, from_length * self._context_size))
        return tf.concat([self._output(weights, context, seeds), context], axis=1)

    def _heads(self, weights, name, tokens, lengths, length):
        """Returns queries, keys or values: `(rows, length, heads, head size)`."""
        dense = tf.matmul(tokens, weights[f"{name}_kernel"]) + weights[f"{name}_bias"]
        rows = unpack(self.qkv_activation(dense), lengths, length)
        return tf.reshape(rows, (-1, length, self.num_attention_heads, self.attention_head_size))

    def _attend(self, weights, query, key, value, to_lengths, seeds):
        """Returns what the heads find: `(rows, from length, heads, head size)`."""
        # Scaled before the product, whose sums could otherwise exceed float16.
        query *= self.attention_head_size**-0.5
        if self.use_scale:
            query *= weights["scale"]
        scores = tf.einsum("bfhd,bthd->bhft", query, key)
        mask = tf.sequence_mask(to_lengths, key.shape[1])[:, tf.newaxis, tf.newaxis]
        shares = tf.nn.softmax(tf.where(mask, scores, scores.dtype.min))
        # In a sequence without tokens all scores are masked, and softmax gives them equal shares.
        shares = tf.where(mask, shares, tf.zeros([], shares.dtype))
        shares = _dropped(shares, self.attention_dropout_prob, seeds)
        return tf.einsum("bhft,bthd->bfhd", shares, value)

    def _output(self, weights, context, seeds):
        """Returns the outputs of sequences from their contexts: `(rows, output size)`."""
        dense = tf.matmul(context, weights["output_kernel"]) + weights["output_bias"]
        output = self.output_activation(dense)
        output = _dropped(output, self.output_dropout_prob, None if seeds is None else seeds + 1)
        if not self.layer_norm_output:
            return output
        mean, variance = tf.nn.moments(tf.cast(output, tf.float32), axes=[-1], keepdims=True)
        normal = (tf.cast(output, tf.float32) - mean) * tf.math.rsqrt(variance + _EPSILON)
        return tf.cast(normal, output.dtype) * weights["gamma"] + weights["beta"]

    def compute_output_shape(self, input_shapes):
        _check_inputs(input_shapes, self.num_attention_heads)
        batch, length = input_shapes[0][:2]
        places = None if batch is None else batch * length
        return (batch, self.output_layer_size), (places, self._context_size)

    @property
    def _context_size(self):
        return self.num_attention_heads * self.attention_head_size

    def get_config(self):
        return {
            **super().get_config(),
            "output_layer_size": self.output_layer_size,
            "max_batch_size": self.max_batch_size,
            "use_scale": self.use_scale,
            "num_attention_heads": self.num_attention_heads,
            "attention_head_size": self.attention_head_size,
            "sequences_per_iter": self.sequences_per_iter,
            "qkv_activation": keras.activations.serialize(self.qkv_activation),
            "attention_dropout_prob": self.attention_dropout_prob,
            "output_activation": keras.activations.serialize(self.output_activation),
            "output_dropout_prob": self.output_dropout_prob,
            "layer_norm_output": self.layer_norm_output,
            "embedding_initializer": keras.initializers.serialize(self.embedding_initializer),
            "embedding_bias_initializer": keras.initializers.serialize(
                self.embedding_bias_initializer
            ),
            "output_initializer": keras.initializers.serialize(self.output_initializer),
            "output_bias_initializer": keras.initializers.serialize(self.output_bias_initializer),
        }


def _with_features(sequences):
    return sequences[..., tf.newaxis] if sequences.shape.rank == 2 else sequences


def _by_query(mask):
    """Returns a mask of heads as `(batch, from length or 1, heads)`."""
    return mask[:, tf.newaxis] if mask.shape.rank == 2 else mask


def _dropped(values, share, seeds):
    """Returns values, a share of which is dropped, the same for the same seeds."""
    if seeds is None or not share:
        return values
    drawn = tf.random.stateless_uniform(tf.shape(values), seeds)
    kept = tf.where(drawn >= share, tf.cast(1 / (1 - share), values.dtype), 0)
    return values * kept


def _check_inputs(shapes, num_heads):
    """Refuses inputs that are not two sets of sequences with their lengths, and maybe a mask."""
    is_listed = isinstance(shapes, list | tuple) and all(
        hasattr(each, "__len__") for each in shapes
    )
    if (
        not is_listed
        or len(shapes) not in (4, 5)
        or any(len(shapes[k]) not in (2, 3) for k in (0, 2))
    ):
        raise ValueError(
            "`inputs` must be a list of from sequences, their lengths, to sequences and their "
            "lengths, and optionally a mask for heads; sequences have the shape (batch, length, "
            f"features) or (batch, length). Received: {_shapes(shapes)}"
        )
    sizes = [size for k in (0, 2) for size in shapes[k][1:]]
    if None in sizes:
        raise ValueError(
            "Sequences of `inputs` must be padded to a fixed length, as IPU programs are static. "
            f"Received: {_shapes(shapes)}"
        )
    batch, from_length = shapes[0][:2]
    fits = {"from_sequence_lengths": _fits(shapes[1], (batch,), (batch, 1))}
    fits["to_sequences"] = _fits(shapes[2][:1], (batch,))
    fits["to_sequence_lengths"] = _fits(shapes[3], (batch,), (batch, 1))
    if len(shapes) == 5:
        fits["q_mask"] = _fits(shapes[4], (batch, num_heads), (batch, from_length, num_heads))
    for name, is_fit in fits.items():
        if not is_fit:
            raise ValueError(
                f"`{name}` in `inputs` must belong to the {batch} from sequences: lengths have the "
                "shape (batch,), a mask of heads has the shape (batch, heads) or (batch, "
                f"from_length, heads), with {num_heads} heads. Received: {_shapes(shapes)}"
            )


def _fits(shape, *expected):
    """Whether a shape may be one of others, where `None` may be any size."""
    return any(
        len(shape) == len(sizes)
        and all(None in pair or pair[0] == pair[1] for pair in zip(shape, sizes, strict=True))
        for sizes in expected
    )


def _shapes(shapes):
    return f"tensors of the shapes {list(shapes) if isinstance(shapes, tuple) else shapes}"


def _check_types(inputs):
    """Refuses sequences and masks that are not numbers, and lengths that are not integers."""
    names = ("from_sequences", "from_sequence_lengths", "to_sequences", "to_sequence_lengths")
    for name, tensor in zip((*names, "q_mask"), inputs, strict=False):
        dtype = tf.as_dtype(tensor.dtype)
        if name.endswith("lengths"):
            fits, wanted = dtype.is_integer, "of integers, such as tf.int32"
        elif name == "q_mask":
            fits, wanted = dtype.is_floating or dtype.is_integer or dtype.is_bool, "of numbers"
        else:
            fits, wanted = dtype.is_floating, "of a floating point type, such as tf.float32"
        if not fits:
            raise TypeError(
                f"`{name}` in `inputs` must be {wanted}; cast it first. "
                f"Received: a tensor of {dtype.name}"
            )
