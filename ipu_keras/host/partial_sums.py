"""Has convolutions and matrix products of halves add up in halves, as `partialsType` can ask for.

An AMP unit of an IPU adds up the products of 16 input channels in float32, in one pass, and
writes the sum back as a half if partial sums are to be halves. A kernel of TensorFlow's executor
and a function that XLA's programs call (`_cext/partial_sums.pxi`) do so for one kind of
convolution, of which all others, their gradients and matrix products are cases. The functions here
make them that: what is transposed and reshaped has whatever shape it is called with, as
definitions of functions, which `ipu_keras.host.halves` writes anew, do not know it.
"""

import contextlib
import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf

from ipu_keras.host.operation_kinds import CONVOLUTIONS
from ipu_keras.host.random_rounding import call_that_adds_up
from ipu_keras.internals.tensorflow.operations import definition_of, types_of
from ipu_keras.internals.tensorflow.parallel_for import create_operation
from ipu_keras.program import Pipeline, PipelineChoices
from ipu_keras.settings.pipeline_choices import PipelineStageOptions
from ipu_keras.tracing.frontend_attributes import PARTIALS_TYPE, attributed, attributes_in
from ipu_keras.tracing.layers import LayerNames, LayerPlace

_PRODUCTS = frozenset({"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "MatMul"})

# By kind, the family that options of Poplar's are for.
FAMILIES = {**dict.fromkeys(_PRODUCTS, "dot"), **dict.fromkeys(CONVOLUTIONS, "convolution")}

# Poplar's option, and the text of calls of pipelines that says what their stages have of it.
_TYPE, _STAGES = "partialsType", "IPU_PARTIALS_OF_STAGES"

# Convolutions here have as many dimensions as TensorFlow's have at most.
_SPATIAL = 3

_Adding = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


@dataclass(frozen=True)
class PartialsScope:
    """What is said around an operation of the type of its partial sums.

    Args:
        named: The type that the innermost scope names, `"half"` or `"float"`; empty without one.
        stages: What `text_of_stages` says of the pipeline that it is in; empty if it is in none.
        place: The stage, and whether it is of the gradients or of the weight update, as far as
            names of calls around it tell.
    """

    named: str = ""
    stages: str = ""
    place: LayerPlace = field(default_factory=LayerPlace)


class PartialTypes:
    """Knows which convolutions and products of halves have partial sums of halves.

    Args:
        half_partials: The families that have, where nothing else says so.
    """

    def __init__(self, half_partials: frozenset[str]):
        self._half_partials = half_partials
        self._names = LayerNames(())

    def scope_of(self, node: Any, around: PartialsScope) -> PartialsScope:
        """Returns what is said of a node of a definition, and so around what it calls."""
        texts = attributes_in(node)
        named = texts.get(PARTIALS_TYPE, around.named)
        stages = texts.get(_STAGES, around.stages)
        if not stages:
            return PartialsScope(named)
        own = self._names.place(node.name)
        place = replace(
            around.place,
            stage=around.place.stage if own.stage is None else own.stage,
            backward=around.place.backward or own.backward,
            weight_update=around.place.weight_update or own.weight_update,
        )
        return PartialsScope(named, stages, place)

    def are_halves(self, node: Any, scope: PartialsScope) -> bool:
        """Whether a node has partial sums, and they are halves if it computes with halves."""
        # `Einsum` of one tensor moves its numbers, or adds them up without an AMP unit.
        if node.op not in FAMILIES or (node.op == "Einsum" and node.attr["N"].i != 2):
            return False
        family = FAMILIES[node.op]
        configured = "half" if family in self._half_partials else "float"
        options = _choices_in(scope.stages).options_of(family, scope.place) if scope.stages else {}
        return (scope.named or options.get(_TYPE, configured)) == "half"


def text_of_stages(pipeline: Pipeline | None) -> str:
    """Returns the types of partial sums that parts of a pipeline name, empty if none does."""
    if pipeline is None:
        return ""
    update = pipeline.weight_update_options or PipelineStageOptions()
    every = [pipeline.forward_options, pipeline.backward_options, [update]]
    types = [[_types_in(options) for options in part] for part in every]
    return json.dumps(types) if any(found for part in types for found in part) else ""


def _types_in(options: PipelineStageOptions) -> dict[str, dict[str, str]]:
    given = {
        "convolution_options": options.convolution_options,
        "matmul_options": options.matmul_options,
    }
    return {name: {_TYPE: own[_TYPE]} for name, own in given.items() if own and _TYPE in own}


@functools.cache
def _choices_in(text: str) -> PipelineChoices:
    forward, backward, (update,) = (
        tuple(PipelineStageOptions(**options) for options in part) for part in json.loads(text)
    )
    return PipelineChoices(
        forward_options=forward, backward_options=backward, weight_update_options=update
    )


def in_stages(graph: Any, pipeline: Pipeline | None) -> contextlib.AbstractContextManager[None]:
    """While this is open, what a graph calls has the types of partial sums of a pipeline."""
    text = text_of_stages(pipeline)
    return attributed(graph, _STAGES, text) if text else contextlib.nullcontext()


def function_in_passes(node: Any, in_xla: bool) -> Any:
    """Traces what takes the place of a convolution or product of halves.

    Args:
        node: The `NodeDef` of the convolution or product.
        in_xla: Whether XLA's programs call it.

    Returns:
        A `tf.ConcreteFunction` that takes what the node does, halves as float32, then the key of
        the function that the node is in and the node's own number (`own_number_of_partials`). It
        returns halves in float32.
    """
    attributes = {name: value for name, value in node.attr.items() if name[0] != "_"}
    own = type(node)(op=node.op, attr=attributes)

    def run(*given: tf.Tensor) -> tf.Tensor:
        *inputs, key, number = given
        add_up = functools.partial(_added_up, key=key, own=number, in_xla=in_xla)
        if node.op in _PRODUCTS:
            return _product(_equation(own), inputs, add_up)
        return _convolved(own, inputs, add_up)

    specs = [tf.TensorSpec(None, dtype) for dtype in (*_types(own), tf.int64, tf.int64)]
    # Not on the device, nor in the graph, of what is around.
    with tf.init_scope(), tf.device(None):
        return tf.function(run, autograph=False).get_concrete_function(*specs)


def _types(node: Any) -> list[tf.DType]:
    """Returns the types of a node's inputs, halves as float32."""
    arguments = definition_of(node.op).input_arg
    dtypes = [tf.as_dtype(found) for each in arguments for found in types_of(each, node)]
    return [tf.float32 if dtype == tf.float16 else dtype for dtype in dtypes]


def _added_up(
    images: tf.Tensor,
    filters: tf.Tensor,
    geometry: tf.Tensor,
    *,
    key: tf.Tensor,
    own: tf.Tensor,
    in_xla: bool,
) -> tf.Tensor:
    """Calls what adds up; see `_rounding.partial_sums` for shapes."""
    given = [images, filters, geometry, key, own]
    if in_xla:
        return call_that_adds_up(given)
    return create_operation("IpuPartialSums", given, [tf.float32], {}).outputs[0]


# --- Products ----------------------------------------------------------------


def _equation(node: Any) -> str:
    """Returns what a product computes, in Einstein's notation."""
    if node.op == "Einsum":
        return node.attr["equation"].s.decode()
    if node.op == "MatMul":
        first, second, before = "transpose_a", "transpose_b", ""
    else:
        first, second, before = "adj_x", "adj_y", "..."
    left = "ki" if node.attr[first].b else "ik"
    right = "jk" if node.attr[second].b else "kj"
    return f"{before}{left},{before}{right}->{before}ij"


@dataclass(frozen=True)
class _Labels:
    """How a product in Einstein's notation is one of stacks of matrices.

    Args:
        left: The labels of the left operand, those of the stack, of its rows and of what is added
            up, in this order.
        right: Those of the right one: of the stack, of what is added up and of its columns.
        result: Those of the stack, of rows and of columns.
        num_summed: The number of dimensions that are added up.
        num_stacked: The number of dimensions of the stack, besides those of an ellipsis.
        stacks_ellipsis: Whether both operands have an ellipsis, which is then of the stack.
    """

    left: str
    right: str
    result: str
    num_summed: int
    num_stacked: int
    stacks_ellipsis: bool

    @classmethod
    def of(cls, left: str, right: str, result: str) -> "_Labels":
        """Example:

        >>> _Labels.of("...ab", "bc", "...ac").right, _Labels.of("abk", "kab", "ba").left
        ('bc', 'abk')
        """
        in_left, in_right, named = (_names(text) for text in (left, right, result))
        both = [name for name in in_left if name in in_right]
        stacked = "".join(name for name in both if name in named)
        summed = "".join(name for name in both if name not in named)
        rows = "".join(name for name in in_left if name in named and name not in in_right)
        columns = "".join(name for name in in_right if name in named and name not in in_left)
        of_left, of_right = ("..." if "..." in text else "" for text in (left, right))
        shared = of_left and of_right
        if shared:
            return cls(
                f"...{stacked}{rows}{summed}",
                f"...{stacked}{summed}{columns}",
                f"...{stacked}{rows}{columns}",
                len(summed),
                len(stacked),
                True,
            )
        return cls(
            f"{stacked}{of_left}{rows}{summed}",
            f"{stacked}{summed}{of_right}{columns}",
            f"{stacked}{of_left}{rows}{of_right}{columns}",
            len(summed),
            len(stacked),
            False,
        )


def _names(labels: str) -> list[str]:
    return list(dict.fromkeys(labels.replace(".", "")))


def _product(equation: str, inputs: Sequence[tf.Tensor], add_up: _Adding) -> tf.Tensor:
    """Multiplies two tensors, by a single place of a convolution for each row of a matrix."""
    left, right = inputs
    equation = equation.replace(" ", "")
    operands, result = equation.split("->")
    of_left, of_right = operands.split(",")
    labels = _Labels.of(of_left, of_right, result)
    left = _arranged(f"{of_left}->{labels.left}", left)
    right = _arranged(f"{of_right}->{labels.right}", right)
    # Sizes, by what they are of.
    sizes_of_left, sizes_of_right = tf.shape(left), tf.shape(right)
    if labels.stacks_ellipsis:
        num_columns = len(labels.right) - 3 - labels.num_stacked - labels.num_summed
        num_rows = len(labels.left) - 3 - labels.num_stacked - labels.num_summed
        split = tf.size(sizes_of_left) - num_rows - labels.num_summed
        split_of_right = tf.size(sizes_of_right) - num_columns - labels.num_summed
        stacked = tf.broadcast_dynamic_shape(sizes_of_left[:split], sizes_of_right[:split_of_right])
        left = tf.broadcast_to(left, tf.concat([stacked, sizes_of_left[split:]], 0))
        right = tf.broadcast_to(right, tf.concat([stacked, sizes_of_right[split_of_right:]], 0))
    else:
        split = split_of_right = labels.num_stacked
        stacked = sizes_of_left[:split]
    end_of_rows = tf.size(sizes_of_left) - labels.num_summed
    start_of_columns = split_of_right + labels.num_summed
    rows, summed = sizes_of_left[split:end_of_rows], sizes_of_left[end_of_rows:]
    columns = sizes_of_right[start_of_columns:]
    count, num_rows, num_summed, num_columns = (
        tf.reduce_prod(sizes) for sizes in (stacked, rows, summed, columns)
    )
    ones = [1] * _SPATIAL
    images = tf.reshape(left, tf.stack([count, num_rows, *ones, num_summed]))
    filters = tf.reshape(right, tf.stack([count, *ones, num_summed, num_columns]))
    geometry = tf.constant([1] * (4 * _SPATIAL) + [0] * _SPATIAL, tf.int64)
    found = add_up(images, filters, geometry)
    found = tf.reshape(found, tf.concat([stacked, rows, columns], 0))
    return _arranged(f"{labels.result}->{result}", found)


def _arranged(equation: str, tensor: tf.Tensor) -> tf.Tensor:
    """Moves dimensions, and adds up those that only this tensor has."""
    given, wanted = equation.split("->")
    return tensor if given == wanted else tf.raw_ops.Einsum(inputs=[tensor], equation=equation)


# --- Convolutions ------------------------------------------------------------


@dataclass(frozen=True)
class _Window:
    """How a convolution moves over its image, all of which are `[3]` of int64.

    Args:
        image: The sizes of the image.
        result: The sizes of the result.
        stride: How far apart results are in the image.
        dilation: How far apart what a result is made of is in the image.
        before: The number of zeros before the image.
    """

    image: tf.Tensor
    result: tf.Tensor
    stride: tf.Tensor
    dilation: tf.Tensor
    before: tf.Tensor

    @classmethod
    def of(cls, node: Any, image: tf.Tensor, window: tf.Tensor) -> "_Window":
        """Returns that of a node for sizes of an image and of filters, `[2]` or `[3]` each."""
        num_dimensions = 3 if "3D" in node.op else 2
        of_channels = 1 if _has_channels_first(node) else num_dimensions + 1
        spatial = [k for k in range(1, num_dimensions + 2) if k != of_channels]

        def attribute(name: str) -> tf.Tensor:
            every = node.attr[name].list.i or [1] * (num_dimensions + 2)
            return _in_three(tf.constant([every[k] for k in spatial], tf.int64), 1)

        stride, dilation = attribute("strides"), attribute("dilations")
        image, window = _in_three(image, 1), _in_three(window, 1)
        reach = (window - 1) * dilation + 1
        padding = node.attr["padding"].s
        if padding == b"SAME":
            result = (image + stride - 1) // stride
            before = tf.maximum((result - 1) * stride + reach - image, 0) // 2
            return cls(image, result, stride, dilation, before)
        explicit = node.attr["explicit_paddings"].list.i if padding == b"EXPLICIT" else ()
        pairs = [explicit[2 * k : 2 * k + 2] if explicit else (0, 0) for k in spatial]
        before, after = (
            _in_three(tf.constant(each, tf.int64), 0) for each in zip(*pairs, strict=True)
        )
        result = tf.maximum(image + before + after - reach + stride, 0) // stride
        return cls(image, result, stride, dilation, before)


def _in_three(sizes: tf.Tensor, missing: int) -> tf.Tensor:
    """Puts a dimension before the two of an image; that of a volume has all three."""
    sizes = tf.cast(sizes, tf.int64)
    return tf.pad(sizes, [[_SPATIAL - tf.size(sizes), 0]], constant_values=missing)


def _has_channels_first(node: Any) -> bool:
    return node.attr["data_format"].s.startswith(b"NC")


def _convolved(node: Any, inputs: Sequence[tf.Tensor], add_up: _Adding) -> tf.Tensor:
    """Computes a convolution, or one of its gradients, by a convolution in passes."""
    if node.op.endswith(("BackpropInput", "BackpropInputV2")):
        return _gradient_of_image(node, inputs, add_up)
    if "BackpropFilter" in node.op:
        return _gradient_of_filters(node, inputs, add_up)
    images, filters = inputs
    parts = _Parts.of(node, tf.shape(_channels_last(node, images)), tf.shape(filters))
    found = add_up(
        parts.of_images(_channels_last(node, images)),
        parts.of_filters(filters),
        _geometry(
            parts.window.result, parts.window.stride, parts.window.dilation, 1, parts.window.before
        ),
    )
    return _as_in(node, parts.together(found))


@dataclass(frozen=True)
class _Parts:
    """A convolution whose groups of channels are apart, and which has three dimensions.

    Args:
        window: Strides, dilations and zeros, and sizes of image and result.
        sizes: Sizes of its images, with channels last, int32.
        sizes_of_filters: Sizes of its filters, int32.
        channels: The number of input channels of a group.
        groups: The number of groups.
    """

    window: _Window
    sizes: tf.Tensor
    sizes_of_filters: tf.Tensor
    channels: tf.Tensor
    groups: tf.Tensor

    @classmethod
    def of(cls, node: Any, sizes: tf.Tensor, sizes_of_filters: tf.Tensor) -> "_Parts":
        window = _Window.of(node, sizes[1:-1], sizes_of_filters[:-2])
        # Each channel of a depthwise convolution is a group of its own.
        channels = tf.constant(1) if "Depthwise" in node.op else sizes_of_filters[-2]
        return cls(window, sizes, sizes_of_filters, channels, sizes[-1] // channels)

    def of_images(self, images: tf.Tensor) -> tf.Tensor:
        """Images, or what has their places, as `[groups, batch, s0, s1, s2, channels]`."""
        sizes = tf.shape(images)
        apart = tf.concat(
            [
                sizes[:1],
                tf.cast(_in_three(sizes[1:-1], 1), tf.int32),
                tf.stack([self.groups, sizes[-1] // self.groups]),
            ],
            0,
        )
        return tf.transpose(tf.reshape(images, apart), [4, 0, 1, 2, 3, 5])

    def of_filters(self, filters: tf.Tensor) -> tf.Tensor:
        """Filters as `[groups, w0, w1, w2, channels, features]`."""
        apart = tf.concat(
            [
                tf.cast(_in_three(self.sizes_of_filters[:-2], 1), tf.int32),
                tf.stack([self.channels, self.groups, -1]),
            ],
            0,
        )
        return tf.transpose(tf.reshape(filters, apart), [4, 0, 1, 2, 3, 5])

    def together(self, found: tf.Tensor) -> tf.Tensor:
        """The inverse of `of_images`, for as many dimensions as the convolution has."""
        sizes = tf.shape(found)
        num_dimensions = tf.size(self.sizes) - 2
        whole = tf.concat([sizes[1:2], sizes[5 - num_dimensions : 5], sizes[:1] * sizes[5:]], 0)
        return tf.reshape(tf.transpose(found, [1, 2, 3, 4, 0, 5]), whole)


def _gradient_of_image(node: Any, inputs: Sequence[tf.Tensor], add_up: _Adding) -> tf.Tensor:
    """Convolves the gradient, spread by the strides, with the filters turned around."""
    sizes, filters, gradient = inputs
    sizes = _last_of(node, tf.cast(sizes, tf.int32))
    parts = _Parts.of(node, sizes, tf.shape(filters))
    window = parts.window
    turned = tf.reverse(parts.of_filters(filters), [1, 2, 3])
    reach = (tf.shape(turned, tf.int64)[1:4] - 1) * window.dilation
    found = add_up(
        parts.of_images(_channels_last(node, gradient)),
        tf.transpose(turned, [0, 1, 2, 3, 5, 4]),
        _geometry(window.image, 1, window.dilation, window.stride, reach - window.before),
    )
    return _as_in(node, parts.together(found))


def _gradient_of_filters(node: Any, inputs: Sequence[tf.Tensor], add_up: _Adding) -> tf.Tensor:
    """Convolves the images with the gradient: the batch is what passes go over."""
    images, sizes, gradient = inputs
    images = _channels_last(node, images)
    parts = _Parts.of(node, tf.shape(images), sizes)
    window = parts.window
    found = add_up(
        tf.transpose(parts.of_images(images), [0, 5, 2, 3, 4, 1]),
        tf.transpose(parts.of_images(_channels_last(node, gradient)), [0, 2, 3, 4, 1, 5]),
        _geometry(_in_three(sizes[:-2], 1), window.dilation, window.stride, 1, window.before),
    )
    return tf.reshape(tf.transpose(found, [2, 3, 4, 1, 0, 5]), sizes)


def _geometry(*each: Any) -> tf.Tensor:
    """Joins sizes, strides, dilations, spreads and zeros, one number or one for each dimension."""
    return tf.concat([tf.broadcast_to(tf.cast(one, tf.int64), [_SPATIAL]) for one in each], 0)


def _channels_last(node: Any, images: tf.Tensor) -> tf.Tensor:
    if not _has_channels_first(node):
        return images
    num_dimensions = 3 if "3D" in node.op else 2
    return tf.transpose(images, [0, *range(2, num_dimensions + 2), 1])


def _last_of(node: Any, sizes: tf.Tensor) -> tf.Tensor:
    if not _has_channels_first(node):
        return sizes
    return tf.concat([sizes[:1], sizes[2:], sizes[1:2]], 0)


def _as_in(node: Any, images: tf.Tensor) -> tf.Tensor:
    """The inverse of `_channels_last`."""
    if not _has_channels_first(node):
        return images
    num_dimensions = 3 if "3D" in node.op else 2
    return tf.transpose(images, [0, num_dimensions + 1, *range(1, num_dimensions + 1)])
