"""Lists the ways to compute a convolution: a vertex, after transforms of the tensors."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ipu_keras.cost.products import convolution_vertices as vertices
from ipu_keras.cost.products.convolutions import Convolution, ceil_divide, element_bytes
from ipu_keras.machine.target import Target

# Rows of the kernel whose weights fill the matrix unit together (poplibs, ConvPartialnx1).
_HEIGHTS = (1, 2, 4)
# Releases of poplibs: joining groups until they fill the unit, and the vertex for one channel.
_FIRST_THAT_FILLS_UNITS = 1.1
_FIRST_WITH_SLIC = 1.1
_FIRST_WITH_VERTICAL_MAC = 1.4


@dataclass(frozen=True)
class ConvolutionForm:
    """A way to compute a convolution: a vertex, after transforms.

    Args:
        convolution: What the vertex computes, after the transforms.
        copies: The bytes that each transform writes, over all tiles, with the bytes that lie
            together before it.
        kernel_height: Rows of the kernel that the matrix unit takes at once.
    """

    method: str
    convolution: Convolution
    transforms: tuple[str, ...] = ()
    copies: tuple[tuple[float, int], ...] = ()
    kernel_height: int = 1

    @property
    def in_channels(self) -> int:
        """Input channels of one group."""
        return self.convolution.in_channels // self.convolution.groups

    @property
    def out_channels(self) -> int:
        """Output channels of one group."""
        return self.convolution.out_channels // self.convolution.groups

    @property
    def uses_matrix_unit(self) -> bool:
        """Whether the vertex sums in the matrix unit, into interleaved memory."""
        return self.method.startswith(("amp", "slic"))

    def grains(self, target: Target) -> tuple[int, int]:
        """Returns the input and output channels that the vertex takes at once."""
        types = (self.convolution.dtype, self.convolution.partials_dtype)
        if self.method.startswith("amp"):
            in_grain = vertices.channels_per_unit(types[0]) // self.kernel_height
            return in_grain, target.conv_units[types]
        if self.method == "slic":
            # A block of four channels may be of one group, two or four.
            in_grain = 1 << (self.in_channels - 1).bit_length()
            return in_grain, in_grain
        return 1, 1

    def rearranged_bytes(self, target: Target) -> float:
        """Returns the bytes that poplibs' planner takes for rearranged beside those of `copies`."""
        convolution = self.convolution
        pairs = zip((self.in_channels, self.out_channels), self.grains(target), strict=True)
        ins, outs = (ceil_divide(count, grain) * grain / count for count, grain in pairs)
        # It expects operands in one order, and counts the other as if all were rearranged; so it
        # counts zeros of channels for each tensor that gets some.
        copied = {"expand": "iw", "pad channels": "i", "combine groups": "w"}
        copied = {**copied, "flatten to channels": "wo"}
        is_copied = set("".join(copied.get(name, "") for name in self.transforms))
        swaps = "swap operands" in self.transforms
        tensors = {
            "i": (swaps or ins > 1, input_bytes(convolution) * ins),
            "w": (swaps or ins > 1 or outs > 1, weight_bytes(convolution) * ins * outs),
            "o": (swaps or outs > 1, output_bytes(convolution) * outs),
        }
        return sum(n for k, (moves, n) in tensors.items() if moves and k not in is_copied)


def input_bytes(convolution: Convolution) -> int:
    positions = convolution.batch * math.prod(convolution.input_field)
    return positions * convolution.in_channels * element_bytes(convolution.dtype)


def weight_bytes(convolution: Convolution) -> int:
    channels = convolution.in_channels // convolution.groups * convolution.out_channels
    return math.prod(convolution.kernel) * channels * element_bytes(convolution.dtype)


def output_bytes(convolution: Convolution) -> int:
    positions = convolution.batch * math.prod(convolution.field)
    return positions * convolution.out_channels * element_bytes(convolution.dtype)


def _flattened(convolution: Convolution) -> Convolution:
    """Returns the convolution with batch and field as one dimension."""
    # A kernel of one element has no neighbourhood.
    positions = convolution.batch * math.prod(convolution.field)
    return dataclasses.replace(
        convolution,
        batch=1,
        field=(ceil_divide(positions, math.prod(convolution.input_dilations)),),
        kernel=(1,),
        strides=(1,),
        input_dilations=(1,),
        kernel_dilations=(1,),
        padding=(),
    )


def _expanded(form: ConvolutionForm, dimensions: range) -> ConvolutionForm:
    """Returns the form with the kernel's elements along some dimensions as channels."""
    convolution = form.convolution
    kernel = [1 if i in dimensions else size for i, size in enumerate(convolution.kernel)]
    strides = [1 if i in dimensions else s for i, s in enumerate(convolution.strides)]
    dilations = [1 if i in dimensions else d for i, d in enumerate(convolution.kernel_dilations)]
    # Zeros are copied as what they are among.
    padding = [(0, 0) if i in dimensions else p for i, p in enumerate(convolution.padding)]
    # Each element becomes a copy of the input (poplibs expands dimensions). 3 channels fill 3 of
    # the matrix unit's 16 inputs; 7 x 7 x 3 in one fill 147 of 160.
    factor = math.prod(convolution.kernel) // math.prod(kernel)
    expanded = dataclasses.replace(
        convolution,
        kernel=tuple(kernel),
        strides=tuple(strides),
        kernel_dilations=tuple(dilations),
        padding=tuple(padding),
        in_channels=convolution.in_channels * factor,
    )
    # Before the copy, elements along one dimension join a position's channels, so that it can
    # transpose vectors even of a ragged batch (poplin, `getExpandDimsPlan`).
    own = form.in_channels * element_bytes(convolution.dtype)
    joined = (own * convolution.kernel[i] for i in dimensions)
    together = max(own, *joined, key=lambda num_bytes: math.gcd(num_bytes, 8))
    # Weights lose the same dimensions; those of a weight gradient are large.
    num_bytes = input_bytes(expanded) + weight_bytes(expanded)
    copies = (*form.copies, (num_bytes, together))
    return ConvolutionForm(form.method, expanded, (*form.transforms, "expand"), copies)


def _flattened_to_channels(form: ConvolutionForm) -> ConvolutionForm:
    """Returns the form with inputs and outputs along short dimensions of the input as channels."""
    convolution = form.convolution
    # Of such a dimension, nearly all that the kernel meets is padding: each output takes each
    # input, with an element of the kernel of their own (poplibs flattens to output channels).
    short = [i < k and n > 1 for i, k, n in _dimensions(convolution)]
    if not any(short):
        return form
    ins = math.prod(
        i for i, is_short in zip(convolution.input_field, short, strict=True) if is_short
    )
    outs = math.prod(n for n, is_short in zip(convolution.field, short, strict=True) if is_short)

    def others(sizes: tuple, rest: Any) -> tuple:
        return tuple(rest if is_short else n for n, is_short in zip(sizes, short, strict=True))

    flat = dataclasses.replace(
        convolution,
        field=others(convolution.field, 1),
        kernel=others(convolution.kernel, 1),
        strides=others(convolution.strides, 1),
        input_dilations=others(convolution.input_dilations, 1),
        kernel_dilations=others(convolution.kernel_dilations, 1),
        padding=others(convolution.padding, (0, 0)),
        in_channels=convolution.in_channels * ins,
        out_channels=convolution.out_channels * outs,
    )
    size = element_bytes(convolution.dtype)
    copies = (
        *form.copies,
        (weight_bytes(flat), form.in_channels * size),
        (output_bytes(flat), form.out_channels * size),
    )
    return ConvolutionForm(form.method, flat, (*form.transforms, "flatten to channels"), copies)


def _dimensions(convolution: Convolution) -> Iterator[tuple[int, int, int]]:
    """Yields inputs without padding, kernel elements and outputs of each dimension."""
    yield from zip(convolution.input_field, convolution.kernel, convolution.field, strict=True)


def _combined(target: Target, form: ConvolutionForm) -> Iterator[ConvolutionForm]:
    """Yields the form with groups joined until they fill a part of the matrix unit, or all of it.

    Groups of zeros make those whole that are left over (poplin, `combineConvGroups`).
    """
    convolution = form.convolution
    unit = vertices.channels_per_unit(convolution.dtype)
    widths = [unit // height for height in reversed(_HEIGHTS)]
    if target.sdk < _FIRST_THAT_FILLS_UNITS:
        widths = [unit // 4] if form.in_channels <= unit // 8 else []
    for factor in dict.fromkeys(width // form.in_channels for width in widths):
        if factor < 2:
            continue
        groups = ceil_divide(convolution.groups, factor)
        # The weights between different groups are zero.
        combined = dataclasses.replace(
            convolution,
            groups=groups,
            in_channels=groups * factor * form.in_channels,
            out_channels=groups * factor * form.out_channels,
        )
        atom = element_bytes(convolution.dtype)
        copies = (*form.copies, (weight_bytes(combined), atom))
        transforms = (*form.transforms, "combine groups")
        yield ConvolutionForm(form.method, combined, transforms, copies)


def _padded(target: Target, form: ConvolutionForm, grain: int) -> ConvolutionForm:
    """Returns the form with input channels filled with zeros to whole groups."""
    if form.in_channels % grain == 0:
        return form
    factor = ceil_divide(form.in_channels, grain) * grain / form.in_channels
    transforms = (*form.transforms, "pad channels")
    if "expand" in form.transforms:
        # What is copied anyway leaves room for the zeros.
        *others, (num_bytes, together) = form.copies
        copies = (*others, (num_bytes * factor, together))
        return dataclasses.replace(form, transforms=transforms, copies=copies)
    # What lies together is a position's channels: zeros come between positions, so that each is
    # copied for itself.
    size = element_bytes(form.convolution.dtype)
    together = size if _copies_elements(target) else form.in_channels * size
    copies = (*form.copies, (input_bytes(form.convolution) * factor, together))
    return dataclasses.replace(form, transforms=transforms, copies=copies)


def _copies_elements(target: Target) -> bool:
    # Zeros of channels lay between elements, which 1.0 copied one by one: measured layers of 2 and
    # 4 channels a group take 16 and 25 cycles for each half of input and output on a tile.
    return target.sdk < _FIRST_THAT_FILLS_UNITS


def _on_matrix_unit(target: Target, form: ConvolutionForm) -> Iterator[ConvolutionForm]:
    """Yields the form padded to the unit's channels, and flat if the kernel allows it."""
    convolution = form.convolution
    unit = vertices.channels_per_unit(convolution.dtype)
    outs = target.conv_units[convolution.dtype, convolution.partials_dtype]
    if _copies_elements(target) and form.out_channels % outs:
        wide = ceil_divide(form.out_channels, outs) * outs / form.out_channels
        size = element_bytes(convolution.dtype)
        copies = (*form.copies, (output_bytes(convolution) * wide, size))
        form = dataclasses.replace(form, copies=copies)
    if math.prod(convolution.kernel) == 1:
        padded = _padded(target, form, unit)
        flat = _flattened(convolution)
        flat_form = dataclasses.replace(padded, method="amp 1x1", convolution=flat)
        yield from (flat_form, _swapped(flat_form))
        return
    # Inputs of the unit may be those of several rows of the kernel, with fewer channels each: of 24
    # halves, 8 of two rows need no zeros. Whole groups of channels fill the unit with one row.
    is_ragged = form.in_channels % unit != 0
    heights = _HEIGHTS if convolution.kernel_rows > 1 and is_ragged else _HEIGHTS[:1]
    for height in heights:
        padded = _padded(target, form, unit // height)
        yield dataclasses.replace(padded, method="amp nx1", kernel_height=height)


def _swapped(form: ConvolutionForm) -> ConvolutionForm:
    """Returns a product of matrices whose operands change places."""
    flat = form.convolution
    (positions,) = flat.field
    swapped = dataclasses.replace(
        flat, field=(form.out_channels,), out_channels=positions * flat.groups
    )
    transforms = (*form.transforms, "swap operands")
    return dataclasses.replace(form, convolution=swapped, transforms=transforms)


def forms_of(target: Target, convolution: Convolution) -> Iterator[ConvolutionForm]:
    """Yields every way to compute a convolution that is worth costing."""
    # One form at least needs no interleaved memory: the plan for when there is none.
    plain = ConvolutionForm("horizontal mac", convolution)
    bases = [plain]
    if convolution.groups > 1 and plain.in_channels < vertices.channels_per_unit(convolution.dtype):
        bases += _combined(target, plain)
    bases.append(_flattened_to_channels(plain))
    # What changes nothing is the plain form again.
    for base in dict.fromkeys(bases):
        yield from _on_matrix_unit(target, base)
        for dimensions in _expandable(base.convolution):
            yield from _on_matrix_unit(target, _expanded(base, dimensions))
    if math.prod(convolution.kernel) == 1:
        flat = dataclasses.replace(plain, convolution=_flattened(convolution))
        yield flat
        # With one input channel, nothing is summed: each input is multiplied with each weight.
        if plain.in_channels == 1:
            yield dataclasses.replace(flat, method="outer product")
    else:
        yield plain
    if _has_vertical_mac(target, plain):
        yield dataclasses.replace(plain, method="vertical mac")
    if _has_slic(target, convolution):
        slic = dataclasses.replace(plain, method="slic")
        yield _padded(target, slic, slic.grains(target)[0])


def _expandable(convolution: Convolution) -> list[range]:
    """Returns dimensions of the kernel that may become channels: all of them, or the last."""
    in_channels = convolution.in_channels // convolution.groups
    # With whole groups of channels, the unit is full already, and copies only cost.
    is_ragged = in_channels % vertices.channels_per_unit(convolution.dtype) != 0
    # A weight gradient: what its copies of the input take, it saves in weight loads.
    is_wide = math.prod(convolution.kernel) > math.prod(convolution.field)
    is_dense = math.prod(convolution.input_dilations) == 1
    if math.prod(convolution.kernel) == 1 or not is_dense or not (is_ragged or is_wide):
        return []
    last = len(convolution.kernel) - 1
    return [range(first, last + 1) for first in sorted({0, last})]


def _has_vertical_mac(target: Target, form: ConvolutionForm) -> bool:
    convolution = form.convolution
    return (
        target.sdk >= _FIRST_WITH_VERTICAL_MAC
        and form.in_channels == form.out_channels == 1
        and convolution.groups > 1
        and (convolution.dtype, convolution.partials_dtype) == ("float16", "float32")
        and math.prod(convolution.input_dilations) == 1
    )


def _has_slic(target: Target, convolution: Convolution) -> bool:
    has_instruction = target.sdk >= _FIRST_WITH_SLIC
    is_dense = math.prod(convolution.input_dilations + convolution.kernel_dilations) == 1
    # Larger groups of channels are the matrix unit's.
    is_narrow = convolution.in_channels // convolution.groups <= vertices.SLIC_CHANNELS
    can_stride = convolution.strides[-1] <= 2
    return (
        has_instruction
        and is_dense
        and is_narrow
        and can_stride
        and convolution.dtype == "float16"
        and convolution.kernel[-1] > 1
    )
