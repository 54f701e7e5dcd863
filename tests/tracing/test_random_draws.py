"""Random draws as single operations, on graphs that are built by hand."""

import pytest

from ipu_keras.ir import Op, TensorSpec
from ipu_keras.tracing.random_draws import Origin, draw_of, with_random_draws

FLOATS, WORDS = TensorSpec((4,), "float32"), TensorSpec((4,), "uint32")
SCOPE = "drop/stateless_random_uniform"
DRAW = f"{SCOPE}/random"


@pytest.mark.parametrize(
    ("path", "kind", "draw"),
    [
        ("drop/stateless_random_uniform/mul", "Mul", "drop/stateless_random_uniform"),
        ("drop/stateless_random_uniform", "AddV2", "drop/stateless_random_uniform"),
        ("g/stateful_uniform_1/RngReadAndSkip", "RngReadAndSkip", "g/stateful_uniform_1"),
        (
            "noise/random_normal_2/RandomStandardNormal",
            "RandomStandardNormal",
            "noise/random_normal_2",
        ),
        ("truncated_normal/TruncatedNormal", "TruncatedNormal", "truncated_normal"),
        ("a/StatelessRandomUniformV2", "StatelessRandomUniformV2", "a/StatelessRandomUniformV2"),
        ("a/random_flip/Mul", "Mul", ""),
        ("a/stateless_dropout/SelectV2", "SelectV2", ""),
        ("a/uniformity/UniformQuantize", "UniformQuantize", ""),
        ("", "", ""),
    ],
)
def test_scopes_of_draws(path, kind, draw):
    assert draw_of(Origin(path, kind)) == draw


# seed -> key -> bits -> mantissa -> scaled -> mask
#                  +---------------------------> spare
OPS = (
    Op("seed", "parameter", (WORDS,)),
    Op("key", "xor", (WORDS,), inputs=("seed",)),
    Op("bits", "rng-bit-generator", (WORDS, WORDS), inputs=("key",), layer="drop"),
    Op("spare", "not", (WORDS,), inputs=("bits:0",)),
    Op("mantissa", "or", (WORDS,), inputs=("bits:1", "key")),
    Op("scaled", "multiply", (FLOATS,), inputs=("mantissa",)),
    Op("mask", "compare", (FLOATS,), inputs=("scaled", "scaled")),
)
DRAWN = Origin(f"{SCOPE}/x", "Mul")
ORIGINS = {
    "seed": Origin(),
    "key": Origin(f"{SCOPE}/StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounter"),
    "bits": DRAWN,
    "spare": Origin("drop/Invert", "Invert"),
    "mantissa": DRAWN,
    "scaled": DRAWN,
    "mask": Origin("drop/GreaterEqual", "GreaterEqual"),
}


def test_a_draw_becomes_one_operation():
    ops = tuple(op for op in OPS if op.name != "spare")
    assert with_random_draws(ops, ("mask",), ORIGINS) == (
        (
            OPS[0],
            Op(DRAW, "random", (FLOATS,), inputs=("seed",), attributes={"distribution": "uniform"}),
            Op("mask", "compare", (FLOATS,), inputs=(DRAW, DRAW)),
        ),
        ("mask",),
    )


def test_what_is_used_of_a_draw_are_its_outputs():
    ops, results = with_random_draws(OPS, ("scaled", "mask", "bits:1"), ORIGINS)
    assert [op.name for op in ops] == ["seed", DRAW, "spare", "mask"]
    assert ops[1].outputs == (WORDS, FLOATS, WORDS)
    assert ops[2].inputs == (f"{DRAW}:0",)
    assert ops[3].inputs == (f"{DRAW}:1",) * 2
    assert results == (f"{DRAW}:1", "mask", f"{DRAW}:2")


def test_a_draw_that_nothing_uses_is_gone():
    ops, results = with_random_draws(OPS[:3], ("seed",), ORIGINS)
    assert ops == OPS[:1]
    assert results == ("seed",)


# 3 samples for each of 2 rows of 5 classes: 30 random numbers.
NUMBERS = TensorSpec((2, 3, 5), "float32")
SAMPLES = TensorSpec((2, 3), "int64")


def test_a_categorical_draw_knows_how_many_numbers_it_takes():
    logits = Op("logits", "parameter", (TensorSpec((2, 5), "float32"),))
    parts = (
        Op("numbers", "rng", (NUMBERS,)),
        Op("log", "log", (NUMBERS,), inputs=("numbers",)),
        Op("noisy", "subtract", (NUMBERS,), inputs=("logits", "log")),
        Op("largest", "reduce", (SAMPLES,), inputs=("noisy",)),
    )
    origin = Origin("policy/categorical/Multinomial", "Multinomial")
    origins = {"logits": Origin(), **{op.name: origin for op in parts}}
    ops, results = with_random_draws((logits, *parts), ("largest",), origins)
    attributes = {"distribution": "categorical", "num_drawn": 30}
    draw = "policy/categorical/random"
    assert ops == (
        logits,
        Op(draw, "random", (SAMPLES,), inputs=("logits",), attributes=attributes),
    )
    assert results == (draw,)


def test_a_draw_of_which_something_is_cut_out_is_divided():
    # The key is made by an operation that draws; what others compute stays as it is.
    ops, results = with_random_draws(OPS, ("spare", "mask"), ORIGINS, without={SCOPE})
    key = f"{SCOPE}/StatelessRandomGetKeyCounter/random"
    assert [(op.name, op.kind) for op in ops] == [
        ("seed", "parameter"),
        (key, "random"),
        ("bits", "rng-bit-generator"),
        ("spare", "not"),
        ("mantissa", "or"),
        ("scaled", "multiply"),
        ("mask", "compare"),
    ]
    assert ops[1].inputs == ("seed",)
    assert ops[4].inputs == ("bits:1", key)
    assert results == ("spare", "mask")


def test_a_draw_that_others_take_part_in():
    # `spare` takes from the draw what it gives back to it.
    mantissa = Op("mantissa", "or", (WORDS,), inputs=("bits:1", "spare"))
    ops = (*OPS[:4], mantissa, *OPS[5:])
    assert with_random_draws(ops, ("mask",), ORIGINS) == (ops, ("mask",))


def test_a_layer_that_is_called_like_a_sampler_and_draws_nothing():
    ops = (Op("a", "add", (FLOATS,)), Op("b", "add", (FLOATS,), inputs=("a",)))
    origins = {name: Origin(f"model/normal/{name}", "AddV2") for name in ("a", "b")}
    assert with_random_draws(ops, ("b",), origins) == (ops, ("b",))
