"""Convolutions of any rank; images have channels last here, and kernels are `(..., in, out)`."""

import functools
import itertools
from collections.abc import Callable, Sequence

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.graph import AI_ONNX
from ipu_keras.popart.operations.operation import operation
from ipu_keras.popart.operations.windows import Windows, checked, halves, spatial_sizes, windows_of


@operation("Conv", images=["x"], kernels=["w"], num_images=1)
def conv(
    x, w, b=None, *, auto_pad, dilations=None, group, kernel_shape=None, pads=None, strides=None
):
    kernel = kernel_of(w, kernel_shape)
    windows = windows_of(
        x, kernel, auto_pad=auto_pad, pads=pads, strides=strides, dilations=dilations
    )
    check_channels(x, w, group)
    return _with_bias(convolved(x, w, windows, group), b, group)


@operation("ConvTranspose", images=["x"], kernels=["w"], num_images=1)
def conv_transpose(
    x,
    w,
    b=None,
    *,
    auto_pad,
    dilations=None,
    group,
    kernel_shape=None,
    output_padding=None,
    output_shape=None,
    pads=None,
    strides=None,
    context,
):
    kernel = kernel_of(w, kernel_shape)
    rank = len(kernel)
    sizes = spatial_sizes(x, rank)
    strides = checked(strides, "strides", rank, 1)
    dilations = checked(dilations, "dilations", rank, 1)
    further = checked(output_padding, "output_padding", rank, 0, least=0)
    if x.shape[-1] != w.shape[-1] or w.shape[-1] % group:
        raise popart_exception(
            f"ConvTranspose takes as many channels as its weights, a multiple of `group`. "
            f"Received: {x.shape[-1]} channels, weights for {w.shape[-1]}, group={group}"
        )
    # The size of the result before anything is cut off.
    full = [
        (size - 1) * stride + (k - 1) * dilation + 1 + more
        for size, stride, k, dilation, more in zip(
            sizes, strides, kernel, dilations, further, strict=True
        )
    ]
    by_size = output_shape is not None and len(output_shape) > 0
    if by_size or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        # Some models give `output_shape` with batch and channels, which ONNX excludes since
        # version 11.
        by_itself = tuple(size * stride for size, stride in zip(sizes, strides, strict=True))
        wanted = checked(output_shape[-rank:], "output_shape", rank, 0) if by_size else by_itself
        # Version 11 changed which half is larger: with auto_pad="NOTSET", earlier versions cut
        # more off the end; from 11 on only "SAME_UPPER" does.
        was_behind = auto_pad == "NOTSET" and context.opsets[AI_ONNX] < 11
        begins, ends = _cut(full, wanted, more_behind=auto_pad == "SAME_UPPER" or was_behind)
    else:
        given = checked(pads if auto_pad == "NOTSET" else None, "pads", 2 * rank, 0, least=0)
        begins, ends = given[:rank], given[rank:]
    ends = tuple(end - more for end, more in zip(ends, further, strict=True))
    spread = _spread(w, dilations)
    parts = zip(_split(x, group), _split(spread, group), strict=True)
    result = [_transposed(one, kernel, strides, begins, ends) for one, kernel in parts]
    return _with_bias(_joined(result), b, group)


def convolved(x: tf.Tensor, w: tf.Tensor, windows: Windows, group: int = 1) -> tf.Tensor:
    """Convolves images `(batch, ..., channels)` with kernels `(..., in, out)` in `group` groups."""
    rank = len(windows.kernel)
    # oneDNN in TensorFlow 2.21 ends the process at a kernel of one element, a bias, and an image of
    # two elements with one pad behind it: its vectors reach behind images.
    if windows.see_pads_alone:
        return _in_groups(_by_taps, x, w, windows, group)
    if rank == 1:
        flat = _with_height(windows)
        return tf.squeeze(convolved(x[:, None], w[None], flat, group), 1)
    if rank == 2:
        return _convolved_2d(x, w, windows, group)
    return _in_groups(_by_taps if _are_dilated(windows) else _convolved_nd, x, w, windows, group)


def kernel_of(w: tf.Tensor, kernel_shape: Sequence[int] | None) -> list[int]:
    """Returns the spatial sizes of a kernel `(..., in, out)`, which `kernel_shape` may repeat."""
    kernel = w.shape.as_list()[:-2]
    if kernel_shape is not None and len(kernel_shape) and list(kernel_shape) != kernel:
        raise popart_exception(
            f"`kernel_shape` must be that of the weights, or left out. Received: "
            f"kernel_shape={list(kernel_shape)}, weights with {kernel}"
        )
    return kernel


def check_channels(x: tf.Tensor, w: tf.Tensor, group: int) -> None:
    """Raises a `popart_exception` unless a kernel fits the channels of images in `group` groups."""
    taken, made = w.shape[-2:]
    if group < 1 or x.shape[-1] != taken * group or made % group:
        raise popart_exception(
            f"The weights take {taken} channels for each group, and the groups must divide their "
            f"results. Received: {x.shape[-1]} channels, group={group}, {made} results"
        )


def _convolved_2d(x: tf.Tensor, w: tf.Tensor, windows: Windows, group: int) -> tf.Tensor:
    if group == 1 and not _are_dilated(windows):
        return _native_2d(x, w, windows)
    # TensorFlow's CPU kernels compute dilated and grouped convolutions, but not their gradients, so
    # these are taken from an equal computation that has them.
    plain: Callable[[tf.Tensor, tf.Tensor, Windows, int], tf.Tensor]
    if _are_dilated(windows):
        plain = functools.partial(_in_groups, _by_taps)
    elif group == x.shape[-1] and len(set(windows.strides)) == 1:
        plain = _depthwise
    else:
        plain = functools.partial(_in_groups, _native_2d)
    return _with_gradients_of(
        lambda x, w: plain(x, w, windows, group),
        lambda x, w: _native_2d(x, w, windows),
    )(x, w)


def _depthwise(x: tf.Tensor, w: tf.Tensor, windows: Windows, group: int) -> tf.Tensor:
    kernel = tf.reshape(w, [*windows.kernel, group, w.shape[-1] // group])
    # If pads are explicit, TensorFlow 2.21 ends the process when it fuses a bias with this.
    padded = tf.pad(x, [(0, 0), *windows.pads, (0, 0)])
    return tf.nn.depthwise_conv2d(padded, kernel, [1, *windows.strides, 1], "VALID")


def _native_2d(x: tf.Tensor, w: tf.Tensor, windows: Windows) -> tf.Tensor:
    return tf.nn.conv2d(x, w, windows.strides, _padding(windows), dilations=windows.dilations)


def _convolved_nd(x: tf.Tensor, w: tf.Tensor, windows: Windows) -> tf.Tensor:
    # TensorFlow has convolutions up to rank 3, and explicit pads up to rank 2.
    if len(windows.kernel) > 3:
        return _by_taps(x, w, windows)
    strides = [1, *windows.strides, 1]
    return tf.nn.conv3d(tf.pad(x, [(0, 0), *windows.pads, (0, 0)]), w, strides, "VALID")


def _by_taps(x: tf.Tensor, w: tf.Tensor, windows: Windows) -> tf.Tensor:
    """Computes a convolution as a sum of matrix products, one for each element of the kernel."""
    padded = tf.pad(x, [(0, 0), *windows.pads, (0, 0)])
    total: tf.Tensor | None = None
    for place in itertools.product(*map(range, windows.kernel)):
        seen = padded[(slice(None), *_seen_at(place, windows))]
        product = tf.tensordot(seen, w[place], 1)
        total = product if total is None else total + product
    return total


def _seen_at(place: Sequence[int], windows: Windows) -> list[slice]:
    """Returns the parts of padded images that one element of the kernel meets."""
    return [
        slice(at * dilation, at * dilation + (count - 1) * stride + 1, stride)
        for at, dilation, count, stride in zip(
            place, windows.dilations, windows.counts, windows.strides, strict=True
        )
    ]


def _in_groups(
    one_group: Callable[[tf.Tensor, tf.Tensor, Windows], tf.Tensor],
    x: tf.Tensor,
    w: tf.Tensor,
    windows: Windows,
    group: int,
) -> tf.Tensor:
    pairs = zip(_split(x, group), _split(w, group), strict=True)
    return _joined([one_group(each, kernel, windows) for each, kernel in pairs])


def _with_gradients_of(
    plain: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    fast: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns the function `fast` with the gradients of `plain`, which computes the same."""

    @tf.custom_gradient
    def computed(x, w):
        def gradients(arriving):
            with tf.GradientTape() as tape:
                tape.watch([x, w])
                result = plain(x, w)
            return tape.gradient(result, [x, w], arriving)

        return fast(x, w), gradients

    return computed


def _transposed(
    x: tf.Tensor,
    w: tf.Tensor,
    strides: Sequence[int],
    begins: Sequence[int],
    ends: Sequence[int],
) -> tf.Tensor:
    """Computes a transposed convolution, and cuts off its ends; negative ends get zeros instead."""
    rank = len(strides)
    if rank == 1:
        flat = _transposed(x[:, None], w[None], (1, *strides), (0, *begins), (0, *ends))
        return tf.squeeze(flat, 1)
    cut = [(max(begin, 0), max(end, 0)) for begin, end in zip(begins, ends, strict=True)]
    full = [
        (size - 1) * stride + extent
        for size, stride, extent in zip(x.shape[1:-1], strides, w.shape[:rank], strict=True)
    ]
    batch = tf.shape(x)[0] if x.shape[0] is None else x.shape[0]
    if rank == 2:
        kept = [size - sum(pads) for size, pads in zip(full, cut, strict=True)]
        shape = [batch, *kept, w.shape[-2]]
        result = tf.nn.conv2d_transpose(x, w, shape, strides, [(0, 0), *cut, (0, 0)])
    elif rank == 3:
        whole = tf.nn.conv3d_transpose(x, w, [batch, *full, w.shape[-2]], strides, "VALID")
        inside = [slice(begin, size - end) for (begin, end), size in zip(cut, full, strict=True)]
        result = whole[(slice(None), *inside)]
    else:
        raise popart_exception(
            f"ConvTranspose takes images of up to 3 axes. Received: {rank}. Use several of them."
        )
    added = [(max(-begin, 0), max(-end, 0)) for begin, end in zip(begins, ends, strict=True)]
    return tf.pad(result, [(0, 0), *added, (0, 0)]) if any(map(any, added)) else result


def _cut(
    full: Sequence[int], wanted: Sequence[int], *, more_behind: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns what to cut off at both ends to get the wanted sizes; negative to add zeros."""
    totals = [size - want for size, want in zip(full, wanted, strict=True)]
    begins, ends = halves([max(total, 0) for total in totals], more_behind=more_behind)
    return begins, tuple(end + min(total, 0) for end, total in zip(ends, totals, strict=True))


def _spread(w: tf.Tensor, dilations: Sequence[int]) -> tf.Tensor:
    """Puts zeros between the elements of a kernel, which does what dilating it does.

    TensorFlow's transposed convolutions take no dilations on a CPU.
    """
    for axis, dilation in enumerate(dilations):
        if dilation > 1:
            shape = w.shape.as_list()
            pads = [(0, 0)] * (len(shape) + 1)
            pads[axis + 1] = (0, dilation - 1)
            wide = tf.pad(tf.expand_dims(w, axis + 1), pads)
            extent = shape[axis] * dilation
            w = tf.reshape(wide, [*shape[:axis], extent, *shape[axis + 1 :]])
            w = tf.gather(w, tf.range(extent - dilation + 1), axis=axis)
    return w


def _with_bias(result: tf.Tensor, bias: tf.Tensor | None, num_groups: int) -> tf.Tensor:
    if bias is None:
        return result
    # TensorFlow fuses `BiasAdd` and an activation behind it with the convolution, but without
    # oneDNN the fused kernel refuses groups.
    return tf.nn.bias_add(result, bias) if num_groups == 1 else result + bias


def _padding(windows: Windows) -> str | list[tuple[int, int]]:
    return [(0, 0), *windows.pads, (0, 0)] if windows.are_padded else "VALID"


def _with_height(windows: Windows) -> Windows:
    return Windows(
        (1, *windows.sizes),
        (1, *windows.kernel),
        (1, *windows.strides),
        (1, *windows.dilations),
        (0, *windows.begins),
        (0, *windows.ends),
    )


def _are_dilated(windows: Windows) -> bool:
    return any(d > 1 and k > 1 for d, k in zip(windows.dilations, windows.kernel, strict=True))


def _split(tensor: tf.Tensor, group: int) -> list[tf.Tensor]:
    return [tensor] if group == 1 else tf.split(tensor, group, axis=-1)


def _joined(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    return parts[0] if len(parts) == 1 else tf.concat(parts, -1)
