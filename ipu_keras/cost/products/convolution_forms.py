"""Lists the ways to compute a convolution: a vertex, after transforms of the tensors."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ipu_keras.cost.products import convolution_vertices as vertices
from ipu_keras.cost.products.convolutions import Convolution, ceil_divide, element_bytes
from ipu_keras.machine.target import Target


@dataclass(frozen=True)
class ConvolutionForm:
    """A way to compute a convolution: a vertex, after transforms.

    Args:
        convolution: What the vertex computes, after the transforms.
        copies: The bytes that each transform writes, over all tiles, with the bytes that lie
            together before it.
    """

    method: str
    convolution: Convolution
    transforms: tuple[str, ...] = ()
    copies: tuple[tuple[float, int], ...] = ()

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
            return vertices.channels_per_unit(types[0]), target.conv_units[types]
        if self.method == "slic":
            # A block of four channels may be of one group, two or four.
            in_grain = 1 << (self.in_channels - 1).bit_length()
            return in_grain, in_grain
        return 1, 1


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
    together = form.in_channels * element_bytes(convolution.dtype)
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


def _combined(form: ConvolutionForm) -> ConvolutionForm:
    """Returns the form with groups joined until they fill the matrix unit."""
    convolution = form.convolution
    wanted = max(1, vertices.channels_per_unit(convolution.dtype) // form.in_channels)
    factor = math.gcd(convolution.groups, wanted)
    # The weights between different groups are zero.
    combined = dataclasses.replace(convolution, groups=convolution.groups // factor)
    atom = element_bytes(convolution.dtype)
    copies = (*form.copies, (weight_bytes(combined), atom))
    return ConvolutionForm(form.method, combined, (*form.transforms, "combine groups"), copies)


def _padded(form: ConvolutionForm, grain: int) -> ConvolutionForm:
    """Returns the form with input channels filled with zeros to whole groups."""
    if form.in_channels % grain == 0:
        return form
    factor = ceil_divide(form.in_channels, grain) * grain / form.in_channels
    # What lies together is a position's channels: zeros come between positions, so that each is
    # copied for itself.
    together = form.in_channels * element_bytes(form.convolution.dtype)
    copies = (*form.copies, (input_bytes(form.convolution) * factor, together))
    return dataclasses.replace(form, transforms=(*form.transforms, "pad channels"), copies=copies)


def _on_matrix_unit(form: ConvolutionForm) -> ConvolutionForm:
    """Returns the form padded to the unit's channels, and flat if the kernel allows it."""
    padded = _padded(form, vertices.channels_per_unit(form.convolution.dtype))
    if math.prod(form.convolution.kernel) > 1:
        return dataclasses.replace(padded, method="amp nx1")
    flat = _flattened(form.convolution)
    return dataclasses.replace(padded, method="amp 1x1", convolution=flat)


def forms_of(target: Target, convolution: Convolution) -> Iterator[ConvolutionForm]:
    """Yields every way to compute a convolution that is worth costing."""
    # One form at least needs no interleaved memory: the plan for when there is none.
    plain = ConvolutionForm("horizontal mac", convolution)
    bases = [plain]
    if convolution.groups > 1 and plain.in_channels < vertices.channels_per_unit(convolution.dtype):
        bases.append(_combined(plain))
    flat = _flattened_to_channels(plain)
    if flat is not plain:
        bases.append(flat)
    for base in bases:
        yield _on_matrix_unit(base)
        for dimensions in _expandable(base.convolution):
            yield _on_matrix_unit(_expanded(base, dimensions))
    if math.prod(convolution.kernel) == 1:
        flat = dataclasses.replace(plain, convolution=_flattened(convolution))
        yield flat
        # With one input channel, nothing is summed: each input is multiplied with each weight.
        if plain.in_channels == 1:
            yield dataclasses.replace(flat, method="outer product")
    else:
        yield plain
    if _has_slic(target, convolution):
        slic = dataclasses.replace(plain, method="slic")
        yield _padded(slic, slic.grains(target)[0])


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


def _has_slic(target: Target, convolution: Convolution) -> bool:
    # The instruction came with the second generation's sixteen units.
    has_instruction = target.conv_units["float16", "float16"] >= 16
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
