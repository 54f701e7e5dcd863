"""Variables of halves that one operation updates, beside the same operation in float32."""

import numpy as np
import pytest
import tensorflow as tf
from ipu_keras._rounding import RoundingKeys

from ipu_keras.host.fused_updates import TYPES
from ipu_keras.host.halves import with_halves
from ipu_keras.internals.tensorflow.operations import definition_of
from ipu_keras.machine.numerics import Numerics
from ipu_keras.settings.enumerations import StochasticRoundingBehaviour

LARGEST = 65504.0
SCALARS = {
    "alpha": 0.5,
    "beta1": 0.9,
    "beta2": 0.99,
    "beta1_power": 0.81,
    "beta2_power": 0.98,
    "beta": 0.75,
    "epsilon": 2**-10,
    "l1": 0.125,
    "l2": 0.5,
    "l2_shrinkage": 0.25,
    "logbase": 1.5,
    "lr": 0.25,
    "lr_power": -0.5,
    "momentum": 0.75,
    "rho": 0.875,
    "sign_decay": 0.5,
}
ROWS = np.int32([4, 0, 2])


def halves(*values):
    return np.float16(values)


def arguments_of(kind, dtype):
    """Returns variables and further arguments of an operation, as halves that a type has too."""
    random = np.random.default_rng(len(kind))
    variables, given = {}, {}
    for argument in definition_of(kind).input_arg:
        name = argument.name
        if argument.type == tf.resource.as_datatype_enum:
            # Those that are sums of squares are large enough for those of means.
            value = random.uniform(1, 2, (5, 3)) if name != "mg" else np.zeros((5, 3))
            variables[name] = np.float16(value).astype(dtype)
        elif name == "indices":
            given[name] = ROWS if "Nd" not in kind else ROWS[:, None]
        elif name == "global_step":
            given[name] = np.int64(3)
        elif name in SCALARS:
            given[name] = np.float16(SCALARS[name]).astype(dtype)
        else:
            size = (3, 3) if "indices" in given or "Sparse" in kind else (5, 3)
            given[name] = np.float16(random.uniform(-1, 1, size)).astype(dtype)
    return variables, given


def updated(kind, variables, given, *, jit_compile=None, numerics=None, **switches):
    """Returns the values of variables after an operation, run as an IPU does or as a CPU does."""
    made = {name: tf.Variable(value) for name, value in variables.items()}

    @tf.function(jit_compile=jit_compile)
    def function(given):
        handles = {name: variable.handle for name, variable in made.items()}
        getattr(tf.raw_ops, kind)(**handles, **given, **switches)

    given = tf.nest.map_structure(tf.constant, given)
    concrete = function.get_concrete_function(given)
    if numerics is not None:
        keys = RoundingKeys(0)
        concrete = with_halves(concrete, numerics, keys)
    concrete(given)
    return [variable.numpy() for variable in made.values()]


def switches_of(kind):
    names = {attribute.name for attribute in definition_of(kind).attr}
    [switch] = names & {"use_nesterov", "update_slots", "multiply_linear_by_lr"} or [None]
    return [{switch: value} for value in (False, True)] if switch else [{}]


CASES = [(kind, switches, None) for kind in TYPES for switches in switches_of(kind)]
# XLA takes a second for each, and they are the same operations.
CASES += [
    ("ResourceApplyAdam", {"use_nesterov": True}, True),
    ("ResourceSparseApplyRMSProp", {}, True),
]


@pytest.mark.parametrize(("kind", "switches", "jit_compile"), CASES)
def test_one_rounding(kind, switches, jit_compile):
    """All digits of float32, of TensorFlow's own kernel, and then of the nearest half."""
    exact = updated(kind, *arguments_of(kind, np.float32), **switches)
    variables, given = arguments_of(kind, np.float16)
    found = updated(
        kind, variables, given, jit_compile=jit_compile, numerics=Numerics(), **switches
    )
    for half, wide in zip(found, exact, strict=True):
        assert half.dtype == np.float16
        # Products are rounded to float32 in another order, which may tip the last digit.
        np.testing.assert_array_max_ulp(half, np.float16(wide), 1)
        assert (half == np.float16(wide)).mean() > 0.8
    assert (found[0] != variables[next(iter(variables))]).any()


@pytest.mark.parametrize("jit_compile", [None, True])
@pytest.mark.parametrize("nanoo", [False, True])
def test_overflow(jit_compile, nanoo):
    """A square of 300 is no half; sums of products of 6e4 saturate."""
    numerics, overflow = Numerics(nanoo=nanoo), np.nan if nanoo else LARGEST
    given = {"var": halves(0, 1, -6e4), "accum": halves(6e4, 1, 0)}
    grad = {"lr": np.float16(1), "grad": halves(300, 2, np.inf)}
    variable, accumulated = updated(
        "ResourceApplyAdagrad", given, grad, jit_compile=jit_compile, numerics=numerics
    )
    # 300 / sqrt(150000) is 0.7746; 1 - 2 / sqrt(5) is 0.1056; an infinite gradient gives NaN.
    np.testing.assert_array_equal(accumulated, halves(overflow, 5, np.nan))
    np.testing.assert_array_equal(variable, halves(-0.7746, 0.1056, np.nan))
    grad = {"alpha": np.float16(2), "delta": halves(6e4, 1, 4)}
    (variable,) = updated(
        "ResourceApplyGradientDescent",
        {"var": halves(0, 1, -65500)},
        grad,
        jit_compile=jit_compile,
        numerics=numerics,
    )
    np.testing.assert_array_equal(variable, halves(-overflow, -1, -LARGEST))


@pytest.mark.parametrize("jit_compile", [None, True])
def test_rows_that_are_there_twice(jit_compile):
    """Sums are rounded once: 2048 + 1 + 1 is 2050, where halves lie 2 apart."""
    given = {"indices": np.int32([1, 0, 1]), "updates": halves(1, 5e4, 1)}
    (found,) = updated(
        "ResourceScatterAdd",
        {"resource": halves(5e4, 2048, 7)},
        given,
        jit_compile=jit_compile,
        numerics=Numerics(),
    )
    np.testing.assert_array_equal(found, halves(LARGEST, 2050, 7))
    given = {"indices": np.int32([[1, 0]]), "updates": np.float16(2)}
    (found,) = updated(
        "ResourceScatterSub",
        {"resource": halves(5, 2, 7)},
        given,
        jit_compile=jit_compile,
        numerics=Numerics(),
    )
    np.testing.assert_array_equal(found, halves(3, 0, 7))


def test_rounding_at_random():
    """An update of half of the distance of halves is made in half of the places."""
    numerics = Numerics(rounding=StochasticRoundingBehaviour.ON)
    given = {"alpha": np.float16(2**-11), "delta": np.full(4096, -1, np.float16)}
    found = [
        updated(
            "ResourceApplyGradientDescent",
            {"var": np.ones(4096, np.float16)},
            given,
            jit_compile=jit_compile,
            numerics=numerics,
        )[0]
        for jit_compile in (None, True)
    ]
    np.testing.assert_array_equal(*found)
    assert set(np.unique(found[0])) == {np.float16(1), np.float16(1 + 2**-10)}
    assert abs((found[0] > 1).mean() - 0.5) < 2 / 4096**0.5


@pytest.mark.parametrize("jit_compile", [None, True])
def test_products_of_rows_that_are_there_twice(jit_compile):
    """3 times 0.5 and 5 is 7.5; 6e4 times 2 overflows, although a quarter of it would not."""
    given = {"indices": np.int32([1, 0, 1]), "updates": halves(0.5, 2, 5)}
    variable = {"resource": halves(6e4, 3, 7)}
    (found,) = updated(
        "ResourceScatterMul", variable, given, jit_compile=jit_compile, numerics=Numerics()
    )
    np.testing.assert_array_equal(found, halves(LARGEST, 7.5, 7))
    given = {"indices": np.int32([1, 0, 1]), "updates": halves(0.5, 0, 5)}
    (found,) = updated(
        "ResourceScatterDiv", variable, given, jit_compile=jit_compile, numerics=Numerics()
    )
    np.testing.assert_array_equal(found, halves(np.nan, 1.2, 7))


def test_no_such_row():
    """As TensorFlow's kernels have it: an error, or nothing where that is asked for."""
    given = {"indices": np.int32([-1]), "updates": halves(2)}
    for kind in ("ResourceScatterMul", "ResourceScatterDiv", "ResourceScatterAdd"):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"-1"):
            updated(kind, {"resource": halves(1, 3)}, given, numerics=Numerics())
    given = {"indices": np.int32([[-1], [1]]), "updates": halves(2, 4)}
    variable = {"ref": halves(1, 3)}
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"-1"):
        updated("ResourceScatterNdAdd", variable, given, numerics=Numerics())
    names = [attribute.name for attribute in definition_of("ResourceScatterNdSub").attr]
    if "bad_indices_policy" not in names:  # older versions of TensorFlow
        return
    (found,) = updated(
        "ResourceScatterNdSub", variable, given, numerics=Numerics(), bad_indices_policy="IGNORE"
    )
    np.testing.assert_array_equal(found, halves(1, -1))
