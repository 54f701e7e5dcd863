import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from popart_nodes import Case, case, check, check_gradient

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.evaluation import outputs_of

RANDOM = np.random.default_rng(0)
NUM_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ONE = np.ones((1, 1, 1), np.float32)
STEPS = np.float32([1, 2, 3]).reshape(3, 1, 1)
IDENTITY = {"activations": ["Affine"]}


def gates(*numbers):
    return np.float32(numbers).reshape(1, -1, 1)


CASES = [
    # Sums of all so far.
    case("RNN", [STEPS, ONE, ONE],
         (np.float32([1, 3, 6]).reshape(3, 1, 1, 1), 6 * ONE), **IDENTITY),
    case("RNN", [STEPS, ONE, ONE, np.float32([[10, 20]]), None, 100 * ONE],
         (np.float32([131, 163, 196]).reshape(3, 1, 1, 1), 196 * ONE), version=6, **IDENTITY),
    # Backwards from the end of the sequence, and zeros behind it.
    case("RNN", [STEPS, ONE, ONE, None, np.int32([2])],
         (np.float32([3, 2, 0]).reshape(3, 1, 1, 1), 3 * ONE), direction="reverse", **IDENTITY),
    case("RNN", [STEPS, ONE.repeat(2, 0), ONE.repeat(2, 0)],
         (np.float32([[1, 6], [3, 5], [6, 3]]).reshape(3, 2, 1, 1),
          np.float32([6, 6]).reshape(2, 1, 1)),
         direction="bidirectional", activations=["Affine", "relu"]),
    # A quarter of the state stays: z, r, h without sigmoids.
    case("GRU", [4 * ONE, gates(0.0625, 0.125, 1), gates(0, 0, 0.5), None, None, 2 * ONE],
         (np.float32([[[[3.875]]]]), 3.875 * ONE), activations=["Affine", "Affine"]),
    # With a bias of 1 for the state it matters whether r = 0.5 is applied before or behind it.
    case("GRU", [4 * ONE, gates(0.0625, 0.125, 1), gates(0, 0, 0.5), np.float32([[0] * 5 + [1]]),
                 None, 2 * ONE],
         (np.float32([[[[0.75 * (4 + 0.5 * 2) + 0.5]]]]), 4.25 * ONE),
         activations=["Affine", "Affine"], linear_before_reset=1),
    case("GRU", [4 * ONE, gates(0.0625, 0.125, 1), gates(0, 0, 0.5), np.float32([[0] * 5 + [1]]),
                 None, 2 * ONE],
         (np.float32([[[[0.75 * (4 + 0.5 + 1) + 0.5]]]]), 4.625 * ONE), version=6,
         activations=["Affine", "Affine"]),
    # i = 1, o = 2, f = 3, c = 4; the cell is 3 * 10 + 1 * 4.
    case("LSTM", [ONE, gates(1, 2, 3, 4), gates(0, 0, 0, 0), None, None, None, 10 * ONE],
         (np.float32([[[[68]]]]), 68 * ONE, 34 * ONE), activations=["Affine"] * 3),
    # Peepholes: i = 1 + 10, f = 3 + 2 * 10, and o = 2 + 3 * the new cell, 274.
    case("LSTM", [ONE, gates(1, 2, 3, 4), gates(0, 0, 0, 0), None, None, None, 10 * ONE,
                  np.float32([[1, 3, 2]])],
         (np.float32([[[[824 * 274]]]]), 824 * 274 * ONE, 274 * ONE), version=6,
         activations=["Affine"] * 3),
    # What enters, 0.25, does not stay.
    case("LSTM", [ONE, gates(0.25, 2, 3, 4), gates(0, 0, 0, 0), None, None, None, 10 * ONE],
         (np.float32([[[[17]]]]), 17 * ONE, 8.5 * ONE), activations=["Affine"] * 3,
         input_forget=1),
]  # fmt: skip


@pytest.mark.parametrize("one", CASES)
def test_by_hand(one):
    check(one)


@pytest.mark.parametrize(
    ("name", "numbers", "x", "expected"),
    [
        ("Relu", {}, [-1, 2], [0, 2]),
        ("Tanh", {}, [0, 20], [0, 1]),
        ("Sigmoid", {}, [0, 20], [0.5, 1]),
        ("Softsign", {}, [-1, 3], [-0.5, 0.75]),
        ("Softplus", {}, [0, 30], [np.log(2), 30]),
        ("Affine", {"alpha": 2, "beta": 3}, [-1, 2], [1, 7]),
        ("LeakyRelu", {}, [-1, 2], [-0.01, 2]),
        ("LeakyRelu", {"alpha": 0.5}, [-1, 2], [-0.5, 2]),
        ("ThresholdedRelu", {}, [0.5, 1], [0, 1]),
        ("ScaledTanh", {"alpha": 3, "beta": 20}, [0, 1], [0, 3]),
        ("HardSigmoid", {}, [-3, 1], [0, 0.7]),
        ("HardSigmoid", {"alpha": 1, "beta": 0}, [0.25, 2], [0.25, 1]),
        ("Elu", {}, [-1, 2], [np.expm1(-1), 2]),
        ("Elu", {"alpha": 0}, [-1, 2], [0, 2]),
    ],
)
def test_activations(name, numbers, x, expected):
    attributes = {f"activation_{key}": [float(value)] for key, value in numbers.items()}
    inputs = [np.float32(x).reshape(1, 2, 1), ONE, 0 * ONE]
    expected = np.float32(expected).reshape(1, 1, 2, 1)
    check(Case("RNN", inputs, (expected, expected[0]), {"activations": [name], **attributes}))


def test_what_activations_get_is_clipped():
    inputs = [STEPS, 10 * ONE, 0 * ONE]
    expected = np.full((3, 1, 1, 1), 2.5, np.float32)
    check(Case("RNN", inputs, (expected, expected[0]), {**IDENTITY, "clip": 2.5}))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step(kind, x, state, w, r, b, p):
    """One step of one sequence, by the equations of ONNX."""
    size = r.shape[-1]
    hidden, cell = state
    into = (w @ x + b[: len(w)]).reshape(-1, size)
    back = [part @ hidden for part in r.reshape(-1, size, size)]
    bias = b[len(w) :].reshape(-1, size)
    if kind == "RNN":
        return np.tanh(into[0] + back[0] + bias[0]), cell
    if kind == "GRU":
        update, reset = (sigmoid(into[i] + back[i] + bias[i]) for i in range(2))
        new = np.tanh(into[2] + r[2 * size :] @ (reset * hidden) + bias[2])
        return (1 - update) * new + update * hidden, cell
    i, o, f, c = (into[k] + back[k] + bias[k] for k in range(4))
    of_i, of_o, of_f = p.reshape(3, size)
    cell = sigmoid(f + of_f * cell) * cell + sigmoid(i + of_i * cell) * np.tanh(c)
    return sigmoid(o + of_o * cell) * np.tanh(cell), cell


def by_loops(kind, x, w, r, b, lengths, start, cells, p, direction):
    histories = np.zeros((len(x), len(w), x.shape[1], r.shape[-1]))
    finals, final_cells = np.array(start, np.float64), np.array(cells, np.float64)
    for way in range(len(w)):
        backwards = direction == "reverse" or way == 1
        for sequence, length in enumerate(lengths):
            times = range(length)
            state = finals[way, sequence], final_cells[way, sequence]
            for time in reversed(times) if backwards else times:
                state = step(kind, x[time, sequence], state, w[way], r[way], b[way], p[way])
                histories[time, way, sequence] = state[0]
            finals[way, sequence], final_cells[way, sequence] = state
    return histories, finals, final_cells


@st.composite
def layers(draw):
    kind = draw(st.sampled_from(sorted(NUM_GATES)))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    ways = 2 if direction == "bidirectional" else 1
    time, batch, features, size = (draw(st.integers(1, 4)) for _ in range(4))
    rows = NUM_GATES[kind] * size
    lengths = draw(st.lists(st.integers(0, time), min_size=batch, max_size=batch))
    shapes = [
        (time, batch, features),
        (ways, rows, features),
        (ways, rows, size),
        (ways, 2 * rows),
        (ways, batch, size),
        (ways, batch, size),
        (ways, 3 * size),
    ]
    x, w, r, b, start, cells, p = (RANDOM.normal(size=s).astype(np.float32) for s in shapes)
    return kind, [x, w, r, b, np.int32(lengths), start, cells, p], direction


@settings(max_examples=25, deadline=None)
@given(layers())
def test_as_defined(layer):
    kind, inputs, direction = layer
    expected = by_loops(kind, *inputs, direction)
    given_inputs = inputs if kind == "LSTM" else inputs[:6]
    outputs = (None,) * (3 if kind == "LSTM" else 2)
    one = Case(kind, given_inputs, outputs, {"direction": direction})
    for result, wanted in zip(outputs_of(one.model(), one.given), expected, strict=False):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def random_inputs(kind):
    rows = NUM_GATES[kind]
    shapes = [(2, 2, 1), (2, rows, 1), (2, rows, 1), (2, 2 * rows)]
    return [RANDOM.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("kind", sorted(NUM_GATES))
def test_gradients_and_half_precision(kind):
    inputs = [*random_inputs(kind), np.int32([2, 1])]
    check_gradient(kind, inputs, direction="bidirectional")
    halves = [x.astype(np.float16) if x.dtype == np.float32 else x for x in inputs]
    attributes = {"direction": "bidirectional"}
    half, wide = (Case(kind, each, (None, None), attributes) for each in (halves, inputs))
    results = zip(
        outputs_of(half.model(), half.given), outputs_of(wide.model(), wide.given), strict=True
    )
    for result, expected in results:
        assert result.dtype == tf.float16
        np.testing.assert_allclose(result, expected, atol=5e-3)


def test_batches_of_unknown_size():
    inputs = random_inputs("LSTM")
    one = Case("LSTM", inputs, (None,) * 3, {"direction": "bidirectional"})
    known = {name: x for name, x in one.given.items() if name != "x0"}
    traced = tf.function(lambda x0: outputs_of(one.model(known), {"x0": x0}))
    concrete = traced.get_concrete_function(tf.TensorSpec([2, None, 1]))
    assert [each.shape for each in concrete(tf.ones([2, 5, 1]))] == [(2, 2, 5, 1)] + [(2, 5, 1)] * 2


@pytest.mark.parametrize(
    ("inputs", "attributes", "text"),
    [
        ([STEPS, ONE, ONE], {"direction": "back"}, r"`direction` must be 'forward'.*: 'back'"),
        ([STEPS, ONE, ONE], {"activations": ["Sine"]}, r"`activations` must be of Relu.*: 'Sine'"),
        ([STEPS, ONE, ONE], {"activations": ["Relu"] * 3}, r"must name 1 functions for direction"),
        ([STEPS, ONE, ONE], {"hidden_size": 2}, r"hidden_size=2, weights for 1"),
        (
            [STEPS, ONE, ONE],
            {"direction": "bidirectional"},
            r"must have the shapes \[2, 1, 1\] and \[2, 1, 1\]. Received: \[1, 1, 1\], \[1, 1, 1\]",
        ),
    ],
)
def test_what_does_not_fit_is_refused(inputs, attributes, text):
    one = Case("RNN", inputs, (None, None), attributes)
    with pytest.raises(popart_exception, match=f"In RNN 'y0': .*{text}"):
        outputs_of(one.model(), one.given)
