"""Which products recurrent layers of popnn have in a step, as a step of TensorFlow is traced."""

import pytest
import tensorflow as tf

import ipu_keras
from ipu_keras.cost.flat.recurrent_steps import with_products_in_steps
from ipu_keras.ops.rnn.popnn_gru import PopnnDynamicGRU, PopnnGRU
from ipu_keras.ops.rnn.popnn_lstm import PopnnLSTM

STEPS, BATCH, FEATURES, UNITS = 5, 2, 3, 4


def operations(layer, *, steps=STEPS, training=False):
    """The compute sets of a layer's operations, forward and backward."""
    layer.build((steps, BATCH, FEATURES))

    def forward(source):
        arguments = [tf.fill([BATCH], steps)] if isinstance(layer, PopnnDynamicGRU) else []
        return layer(source, *arguments, training=training)[0]

    def with_gradient(source):
        with tf.GradientTape() as tape:
            tape.watch(source)
            found = forward(source)
        return tape.gradient(found, [source, layer.kernel])

    source = tf.TensorSpec((steps, BATCH, FEATURES), layer.dtype)
    step = tf.function(with_gradient if training else forward)
    model = ipu_keras.profile(step, source, target="gc200").model
    return [one for one in model.program.compute_sets if one.body is not None]


def products(one):
    """How often each product of an operation runs, and the shapes of what it multiplies."""
    return [
        (inner.repeat, *(spec.shape for spec in inner.operands))
        for inner in one.body.compute_sets
        if inner.family == "dot"
    ]


def kinds(one):
    return [inner.ops[-1].kind for inner in one.body.compute_sets]


def test_inputs_and_state_are_one_product_in_each_step():
    (one,) = operations(PopnnLSTM(UNITS))
    together = FEATURES + UNITS
    assert products(one) == [(STEPS, (BATCH, together), (together, 4 * UNITS))]
    # Parts of the kernel are multiplied where they lie: nothing copies them, and a step takes
    # its inputs.
    assert not {"slice", "concatenate"} & set(kinds(one))
    (taken,) = (s for s in one.body.compute_sets if s.ops[-1].kind == "dynamic-slice")
    assert taken.writes[0].spec.shape == (1, BATCH, FEATURES)
    # 2 products of 7 by 16 numbers are 2 * 2 * 7 * 16 = 448 operations.
    (multiplied,) = (s for s in one.body.compute_sets if s.family == "dot")
    assert multiplied.flops == 448
    # Biases join what is done to the product.
    names = [name for s in one.body.compute_sets for name in s.reads]
    assert any("bias" in name or "parameter" in name for name in names)


@pytest.mark.parametrize("made", [PopnnGRU, PopnnDynamicGRU])
def test_gates_and_candidates_have_a_product_each(made):
    (one,) = operations(made(UNITS))
    together = FEATURES + UNITS
    assert products(one) == [
        (STEPS, (BATCH, together), (together, 2 * UNITS)),
        (STEPS, (BATCH, together), (together, UNITS)),
    ]


def test_what_is_added_to_no_product_stays_one_of_its_own():
    (one,) = operations(PopnnGRU(UNITS, reset_after=True))
    assert sorted(products(one)) == [
        (STEPS, (BATCH, FEATURES), (FEATURES, 3 * UNITS)),
        (STEPS, (BATCH, UNITS), (UNITS, 3 * UNITS)),
    ]


@pytest.mark.parametrize("made", [PopnnLSTM, PopnnGRU])
def test_halves_are_multiplied_as_such(made):
    (one,) = operations(made(UNITS, dtype=tf.float16))
    assert "convert" not in kinds(one)
    for inner in one.body.compute_sets:
        if inner.family == "dot":
            assert {spec.dtype for spec in inner.operands} == {"float16"}
            assert inner.writes[0].spec.dtype == "float16"
            assert inner.ops[-1].partials_dtype == "float32"


def test_gradients_of_weights_are_added_up_in_steps():
    forward, backward = operations(PopnnLSTM(UNITS), training=True)
    together = FEATURES + UNITS
    assert products(forward) == [(STEPS, (BATCH, together), (together, 4 * UNITS))]
    gates = (BATCH, 4 * UNITS)
    assert sorted(products(backward)) == [
        (STEPS, (BATCH, together), gates),
        # The gradients of the inputs and of the state.
        (STEPS, gates, (FEATURES, 4 * UNITS)),
        (STEPS, gates, (UNITS, 4 * UNITS)),
    ]
    (added,) = (s for s in backward.body.compute_sets if len(s.writes) == 2)
    assert [value.spec.shape for value in added.writes] == [
        (FEATURES, 4 * UNITS),
        (UNITS, 4 * UNITS),
    ]
    # It is written over what it adds to, which is filled with zeros before.
    places = [backward.body.in_place[value.name] for value in added.writes]
    assert set(places) < set(added.reads)
    filled = {s.writes[0].name: s for s in backward.body.compute_sets if s.family == "broadcast"}
    assert [filled[place].repeat for place in places] == [1, 1]


def test_a_gru_has_its_gradients_in_steps_too():
    _, backward = operations(PopnnGRU(UNITS, dtype=tf.float16), training=True)
    assert products(backward)
    assert {repeat for repeat, *_ in products(backward)} == {STEPS}


def test_one_step_stays_as_it_is():
    (one,) = operations(PopnnLSTM(UNITS), steps=1)
    assert with_products_in_steps(one.body) is one.body
