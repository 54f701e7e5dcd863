import numpy as np
import pytest
from popart_nodes import Case, case, check, check_gradient

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.evaluation import outputs_of

DEEP = np.float32([0, 1, 2, 3, 4, 5, 6, 7]).reshape(1, 8, 1, 1)


@pytest.mark.parametrize(
    "one",
    [
        # Pixels of a block are apart by the number of channels, or next to each other.
        case(
            "DepthToSpace", [DEEP], np.float32([[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]]), blocksize=2
        ),
        case(
            "DepthToSpace",
            [DEEP],
            np.float32([[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]]),
            blocksize=2,
            version=6,
        ),
        case(
            "DepthToSpace",
            [DEEP],
            np.float32([[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]]),
            blocksize=2,
            mode="CRD",
        ),
        case("DepthToSpace", [DEEP], DEEP, blocksize=1),
        case(
            "SpaceToDepth", [np.float32([[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]])], DEEP, blocksize=2
        ),
        case("SpaceToDepth", [DEEP], DEEP, blocksize=1),
        case(
            "SpaceToDepth",
            [DEEP.reshape(1, 2, 2, 2).astype(np.float16)],
            np.float16([0, 4, 1, 5, 2, 6, 3, 7]).reshape(1, 8, 1, 1),
            blocksize=2,
        ),
    ],
)
def test_by_hand(one):
    check(one)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_gradients(mode):
    check_gradient("DepthToSpace", [DEEP], blocksize=2, mode=mode)
    check_gradient("SpaceToDepth", [DEEP.reshape(1, 2, 2, 2)], blocksize=2)


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "text"),
    [
        ("DepthToSpace", DEEP, {"blocksize": 3}, r"divide the channels.*blocksize=3, 8 channels"),
        ("DepthToSpace", DEEP, {"blocksize": 2, "mode": "X"}, r"'DCR' or 'CRD'. Received: 'X'"),
        ("SpaceToDepth", DEEP, {"blocksize": 2}, r"divide height and width.*sizes \[1, 1\]"),
        ("SpaceToDepth", DEEP[0], {"blocksize": 1}, r"must have 4 axes.*Received: 3 axes"),
    ],
)
def test_what_does_not_fit_is_refused(kind, inputs, attributes, text):
    one = Case(kind, [inputs], None, attributes)
    with pytest.raises(popart_exception, match=f"In {kind} 'y0': .*{text}"):
        outputs_of(one.model(), one.given)
