import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.windows import Windows, halves, windows_of

IMAGES = tf.zeros([2, 5, 6, 3])


def of(kernel=(3, 3), auto_pad="NOTSET", pads=None, strides=None, **others):
    return windows_of(IMAGES, kernel, auto_pad=auto_pad, pads=pads, strides=strides, **others)


def test_pads_are_begins_and_then_ends():
    windows = of(pads=[0, 1, 2, 3], strides=[1, 2], dilations=[2, 1])
    assert windows == Windows((5, 6), (3, 3), (1, 2), (2, 1), (0, 1), (2, 3))
    assert windows.pads == [(0, 2), (1, 3)]
    assert windows.extents == [5, 3]
    assert windows.counts == [3, 4]


@pytest.mark.parametrize(
    ("auto_pad", "pads"),
    [
        ("SAME_UPPER", [(0, 1), (0, 1)]),
        ("SAME_LOWER", [(1, 0), (1, 0)]),
        ("VALID", [(0, 0), (0, 0)]),
    ],
)
def test_automatic_pads(auto_pad, pads):
    # Six windows of two in six pixels need one more; so do three of three in steps of two.
    windows = windows_of(
        tf.zeros([2, 6, 6, 3]), [2, 3], auto_pad=auto_pad, pads=[9] * 4, strides=[1, 2]
    )
    assert windows.pads == pads
    assert windows.are_padded == (auto_pad != "VALID")


def test_a_last_window_that_is_seen_in_part():
    assert of(strides=[2, 2]).counts == [2, 2]
    windows = of(strides=[2, 2], ceil_mode=True)
    assert (windows.counts, windows.pads) == ([2, 3], [(0, 0), (0, 1)])


def test_windows_that_see_pads_alone():
    assert not of(pads=[2, 2, 2, 2]).see_pads_alone
    assert of(pads=[0, 0, 3, 0]).see_pads_alone
    # A dilated window spans five.
    assert not of(pads=[4, 4, 4, 4], dilations=[2, 2]).see_pads_alone


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["SAME_UPPER", "SAME_LOWER"]),
)
def test_same_pads_give_a_window_for_each_step(size, kernel, stride, dilation, auto_pad):
    windows = windows_of(
        tf.zeros([1, size, 1]),
        [kernel],
        auto_pad=auto_pad,
        pads=None,
        strides=[stride],
        dilations=[dilation],
    )
    assert windows.counts == [-(-size // stride)]
    (begin, end) = windows.pads[0]
    assert (end if auto_pad == "SAME_UPPER" else begin) - min(begin, end) in (0, 1)


def test_halves():
    assert halves([3, 4], more_behind=True) == ((1, 2), (2, 2))
    assert halves([3, 4], more_behind=False) == ((2, 2), (1, 2))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"kernel": [3]}, r"kernel has 1 axes, so its input must have 3.*Received: an input of 4"),
        ({"auto_pad": "SAME"}, r"`auto_pad` must be one of NOTSET, VALID.*Received: 'SAME'"),
        (
            {"pads": [1, 1]},
            r"`pads` must be 4 integers of at least 0, and at most 2147483647. Received: \[1, 1\]",
        ),
        ({"pads": [0, 0, 0, -1]}, r"`pads` must be 4 integers of at least 0"),
        (
            {"strides": [0, 1]},
            r"`strides` must be 2 integers of at least 1, and at most 2147483647.*: \[0, 1\]",
        ),
        (
            {"dilations": [1]},
            r"`dilations` must be 2 integers of at least 1, and at most 2147483647.*: \[1\]",
        ),
        ({"strides": [2**31, 1]}, r"`strides` must be .* at most 2147483647"),
        ({"pads": [0, 0, 0, 2**30]}, r"at most 2147483647 windows.* Pad less\."),
        ({"kernel": [6, 1]}, r"must not be larger than the padded images.*kernel=\[6, 1\]"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, text):
    with pytest.raises(popart_exception, match=text):
        of(**arguments)


def test_unknown_sizes_are_refused():
    @tf.function(input_signature=[tf.TensorSpec([2, None, 6, 3])])
    def run(x):
        windows_of(x, [1, 1], auto_pad="NOTSET", pads=None, strides=None)

    with pytest.raises(popart_exception, match=r"sizes of images must be known.*\[None, 6\]"):
        run.get_concrete_function()
