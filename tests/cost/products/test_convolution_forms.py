"""Ways to compute a convolution: transforms, and the bytes they copy, by hand."""

import dataclasses

import pytest

from ipu_keras.cost.products.convolution_forms import (
    ConvolutionForm,
    forms_of,
    input_bytes,
    weight_bytes,
)
from ipu_keras.cost.products.convolutions import Convolution
from ipu_keras.machine.target import TARGETS

GC2, GC200 = TARGETS["gc2"], TARGETS["gc200"]


def forms(target, convolution):
    """Of each form its vertex, kernel, channels of a group, transforms and copies."""
    return [
        (form.method, form.convolution.kernel, form.in_channels, form.transforms, form.copies)
        for form in forms_of(target, convolution)
    ]


def test_bytes():
    strided = Convolution(2, (3, 4), (3, 1), 6, 8, groups=2, strides=(2, 1), dtype="float32")
    # (3 - 1) * 2 + 3 = 7 by 4 positions of 6 channels in each of 2 samples.
    assert input_bytes(strided) == 2 * 7 * 4 * 6 * 4
    # Each of 8 output channels sees the 3 input channels of its group.
    assert weight_bytes(strided) == 3 * 3 * 8 * 4


def test_golden_few_channels():
    # The first layer of a CNN: 6x6 images of 3 channels become 4x4 of 8.
    convolution = Convolution(2, (4, 4), (3, 3), 3, 8)
    assert forms(GC200, convolution) == [
        # 2 * 6 * 6 * 3 * 2 = 432 bytes, of 3 channels in 6 bytes, become 16.
        ("amp nx1", (3, 3), 3, ("pad channels",), ((432 * 16 / 3, 6),)),
        # With two rows of the kernel at once 8, with four 4.
        ("amp nx1", (3, 3), 3, ("pad channels",), ((432 * 8 / 3, 6),)),
        ("amp nx1", (3, 3), 3, ("pad channels",), ((432 * 4 / 3, 6),)),
        # 27 channels for each of 2 * 16 outputs, and 27 * 8 weights, copied as 32 channels.
        ("amp 1x1", (1,), 27, ("expand", "pad channels"), (((1728 + 432) * 32 / 27, 6),)),
        (
            "amp 1x1",
            (1,),
            27,
            ("expand", "pad channels", "swap operands"),
            (((1728 + 432) * 32 / 27, 6),),
        ),
        # Only the width: 9 channels of 2 * 6 * 4 positions, then 16, twice 8 or three times 4.
        *(
            ("amp nx1", (3, 1), 9, ("expand", "pad channels"), (((864 + 432) * filled / 9, 6),))
            for filled in (16, 16, 12)
        ),
        ("horizontal mac", (3, 3), 3, (), ()),
        # The short unit takes four channels.
        ("slic", (3, 3), 3, ("pad channels",), ((576, 6),)),
    ]
    # 1.0 estimates zeros of rows wrongly, but has them.
    heights = [form.kernel_height for form in forms_of(GC2, convolution)]
    assert heights == [1, 2, 4, 1, 1, 1, 2, 4, 1]


@pytest.mark.parametrize(
    ("channels", "heights"),
    # A height whose channels need no zeros has no copy; whole groups of 16 have one height.
    [(24, {1: 32, 2: 0, 4: 0}), (20, {1: 32, 2: 24, 4: 0}), (32, {1: 0})],
)
def test_several_rows_of_ragged_channels(channels, heights):
    found = {
        form.kernel_height: sum(num_bytes for num_bytes, _ in form.copies)
        for form in forms_of(GC200, Convolution(1, (1, 1), (3, 3), channels, 8))
        if form.method == "amp nx1" and "expand" not in form.transforms
    }
    assert found == {height: 9 * 2 * filled for height, filled in heights.items()}


def test_flat_where_the_kernel_has_one_element():
    flat = Convolution(1, (2 * 4 * 5,), (1,), 16, 8)
    (on_matrix_unit, swapped, without) = forms_of(GC200, Convolution(2, (4, 5), (1, 1), 16, 8))
    assert on_matrix_unit == ConvolutionForm("amp 1x1", flat)
    assert without == ConvolutionForm("horizontal mac", flat)
    # The 8 output channels are positions, and all three tensors count as rearranged.
    transposed = Convolution(1, (8,), (1,), 16, 40)
    assert swapped == ConvolutionForm("amp 1x1", transposed, ("swap operands",))
    # The 8 output channels are positions, and all three tensors count as rearranged.
    assert swapped.rearranged_bytes(GC200) == 2 * (8 * 16 + 16 * 40 + 8 * 40)


@pytest.mark.parametrize(
    ("in_channels", "out_channels", "num_bytes"),
    [
        (16, 16, 0),
        # Inputs are copied among zeros, which counts already: their weights get zeros, too.
        (10, 16, 2 * 16 * 16),
        (16, 10, 2 * (16 * 16 + 40 * 16)),
        (10, 10, 2 * (16 * 16 + 40 * 16)),
    ],
)
def test_zeros_of_channels_count_as_rearranged(in_channels, out_channels, num_bytes):
    product = Convolution(1, (40,), (1,), in_channels, out_channels)
    form, *_ = forms_of(GC200, product)
    assert form.rearranged_bytes(GC200) == num_bytes


def test_one_input_channel():
    product = Convolution(1, (5,), (1,), 1, 3, dtype="float32")
    assert forms(GC200, product) == [
        # Eight float32 channels fill the unit: 5 * 8 * 4 bytes.
        ("amp 1x1", (1,), 1, ("pad channels",), ((160, 4),)),
        ("amp 1x1", (1,), 1, ("pad channels", "swap operands"), ((160, 4),)),
        ("horizontal mac", (1,), 1, (), ()),
        ("outer product", (1,), 1, (), ()),
    ]


def test_narrow_groups_are_joined():
    convolution = Convolution(1, (10,), (1,), 32 * 2, 64, groups=32)
    narrow, joined = ((10 * 64 * 2 * 8, 4),), ((16 * 64 * 2, 2),)
    four, eight = ((4 * 64 * 2, 2), (10 * 64 * 2 * 4, 8)), ((8 * 64 * 2, 2), (10 * 64 * 2 * 2, 16))
    some = ("combine groups", "pad channels")
    assert forms(GC200, convolution) == [
        ("amp 1x1", (1,), 2, ("pad channels",), narrow),
        ("amp 1x1", (1,), 2, ("pad channels", "swap operands"), narrow),
        # Two groups of 2 channels fill a quarter of the unit, four a half of it.
        ("amp 1x1", (1,), 4, some, four),
        ("amp 1x1", (1,), 4, (*some, "swap operands"), four),
        ("amp 1x1", (1,), 8, some, eight),
        ("amp 1x1", (1,), 8, (*some, "swap operands"), eight),
        # Eight groups of 2 channels fill the unit: 16 channels for each of 64 outputs.
        ("amp 1x1", (1,), 16, ("combine groups",), joined),
        ("amp 1x1", (1,), 16, ("combine groups", "swap operands"), joined),
        ("horizontal mac", (1,), 2, (), ()),
    ]


def test_groups_that_are_left_over_are_joined_with_zeros():
    odd = Convolution(1, (10, 10), (4, 3), 33, 66, groups=33, dtype="float32")
    joined = dict.fromkeys(
        (form.in_channels, form.out_channels, form.convolution.groups)
        for form in forms_of(GC200, odd)
        if form.transforms == ("combine groups",)
    )
    # Of one channel for two, two groups, four or eight are one.
    assert list(joined) == [(2, 4, 17), (4, 8, 9), (8, 16, 5)]


def test_groups_and_zeros_of_1_0():
    """It joins groups to four channels, and copies single halves around zeros."""
    found = forms(GC2, Convolution(1, (10,), (1,), 32 * 2, 64, groups=32))
    # Results are padded from 2 channels a group, or 4, to 8; inputs from 2, or 4, to 16.
    outputs, weights = 10 * 64 * 2, 4 * 64 * 2
    wide, joined = found[0], found[2]
    assert wide[2:] == (2, ("pad channels",), ((outputs * 4, 2), (outputs * 8, 2)))
    assert joined[2:] == (
        4,
        ("combine groups", "pad channels"),
        ((weights, 2), (outputs * 2, 2), (outputs * 4, 2)),
    )
    # Four are not joined, and eight neither.
    for channels in (4, 8):
        grouped = Convolution(1, (10,), (1,), 32 * channels, 32 * channels, groups=32)
        assert all("combine groups" not in form.transforms for form in forms_of(GC2, grouped))


def test_one_channel_a_group():
    depthwise = Convolution(1, (8, 8), (3, 3), 64, 64, 64)

    def has_vertical_mac(target=GC200, **changes):
        changed = dataclasses.replace(depthwise, **changes)
        return "vertical mac" in [form.method for form in forms_of(target, changed)]

    assert has_vertical_mac()
    assert has_vertical_mac(GC2.with_sdk(2.0))
    assert not has_vertical_mac(GC2)
    assert not has_vertical_mac(partials_dtype="float16")
    assert not has_vertical_mac(dtype="float32")
    assert not has_vertical_mac(groups=32)
    assert not has_vertical_mac(out_channels=128)
    assert not has_vertical_mac(input_dilations=(2, 2))


def test_wide_kernels_become_channels():
    # As in a weight gradient, whose kernel is the field of what it is the gradient of.
    wide = Convolution(1, (3,), (5,), 16, 8)
    expanded = ("amp 1x1", (1,), 80, ("expand",), ((3 * 80 * 2 + 80 * 8 * 2, 32),))
    assert expanded in forms(GC200, wide)
    narrow = Convolution(1, (5,), (3,), 16, 8)
    assert [form.method for form in forms_of(GC200, narrow)] == ["amp nx1", "horizontal mac"]


@pytest.mark.parametrize(
    ("kernel", "together"),
    # 11 channels of 2 bytes and 4 elements are whole vectors of 8 bytes; 7 leave halves alone.
    [((6, 4), 88), ((4, 6), 88), ((6, 7), 132), ((7, 7), 22)],
)
def test_elements_join_until_vectors_are_whole(kernel, together):
    found = forms(GC200, Convolution(8, (1, 1), kernel, 11, 8))
    method, _, _, transforms, copies = next(form for form in found if form[1] == (1,))
    assert (method, transforms) == ("amp 1x1", ("expand", "pad channels"))
    assert [each for _, each in copies] == [together]


def test_inputs_and_outputs_of_a_short_field_become_channels():
    # The gradient of a kernel as large as its input: each of 5 outputs takes the one input.
    gradient = Convolution(1, (5,), (5,), 16, 8, padding=((4, 4),))
    flat = ("amp 1x1", (1,), 16, ("flatten to channels",), ((16 * 40 * 2, 32), (40 * 2, 16)))
    assert flat in forms(GC200, gradient)
    # With as many inputs as elements of the kernel, little is padding.
    whole = Convolution(1, (5,), (5,), 16, 8, padding=((2, 2),))
    assert all("flatten to channels" not in form.transforms for form in forms_of(GC200, whole))


@pytest.mark.parametrize(
    ("target", "options"),
    [
        (GC2, {}),
        (GC2.with_sdk(2.0), {"dtype": "float32"}),
        (GC200, {"in_channels": 5}),
        (GC200, {"kernel": (3, 1)}),
        (GC200, {"strides": (1, 3)}),
        (GC200, {"kernel_dilations": (2, 1)}),
    ],
)
def test_what_the_short_unit_cannot_do(target, options):
    convolution = {"batch": 1, "field": (4, 4), "kernel": (3, 3), "in_channels": 4}
    convolution |= {"out_channels": 8, **options}
    assert "slic" not in [form.method for form in forms_of(target, Convolution(**convolution))]


def test_grains_and_interleaved_memory():
    halves = Convolution(1, (8,), (3,), 3, 8, partials_dtype="float16")
    floats = Convolution(1, (8,), (3,), 3, 8, dtype="float32")
    grains = {
        (form.method, form.convolution.dtype): (form.grains(GC200), form.uses_matrix_unit)
        for convolution in (halves, floats)
        for form in forms_of(GC200, convolution)
    }
    assert grains == {
        ("amp nx1", "float16"): ((16, 16), True),
        ("amp 1x1", "float16"): ((16, 16), True),
        ("horizontal mac", "float16"): ((1, 1), False),
        ("slic", "float16"): ((4, 4), True),
        ("amp nx1", "float32"): ((8, 16), True),
        ("amp 1x1", "float32"): ((8, 16), True),
        ("horizontal mac", "float32"): ((1, 1), False),
    }
