import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras import popart
from ipu_keras.popart.optimizers.optimizer import Optimizer
from ipu_keras.popart.optimizers.values import OptimizerValue
from ipu_keras.popart.options.enumerations import (
    AdamMode,
    AdaptiveMode,
    DataType,
    SGDAccumulatorAndMomentum,
    WeightDecayMode,
)
from ipu_keras.popart.options.settings import ClipNormSettings

SGD, Adam, Adaptive = popart.SGD, popart.Adam, popart.Adaptive
NAN, INF = float("nan"), float("inf")


def test_an_optimizer_is_one_of_its_kinds():
    with pytest.raises(TypeError, match=r"make one of SGD, ConstSGD, Adam or Adaptive\.$"):
        Optimizer({}, [], {})


def test_values_that_are_missing_are_constant_defaults():
    sgd = SGD({"defaultMomentum": (0.5, False), "lossScaling": OptimizerValue(4, False)})
    assert sgd.momentums().getDefault() == OptimizerValue(0.5, False)
    assert sgd.learningRates().getDefault() == OptimizerValue(0.1)
    assert sgd.getLossScalingVal() == 4
    assert sgd.loss_scaling == OptimizerValue(4, False)
    assert Adam({}).getLossScalingVal() == 1


@pytest.mark.parametrize(
    ("make", "values", "text"),
    [
        (
            SGD,
            {"learningRate": (0.1, True)},
            r"^Invalid SGD key, learningRate, the allowed keys are \( defaultLearningRate "
            r"defaultWeightDecay defaultMomentum defaultDampening defaultVelocityScaling "
            r"lossScaling \)$",
        ),
        (Adam, {"defaultBeta": (0.1, True)}, r"^Invalid Adam key, defaultBeta, the allowed keys"),
        (Adaptive, {"defaultBeta1": (0.1, True)}, r"^Invalid Adaptive key, defaultBeta1, the al"),
        (SGD, {"lossScaling": (0, False)}, r"^Loss scaling cannot be 0, and is finite\. Rec"),
        (Adam, {"lossScaling": (NAN, False)}, r"^Loss scaling cannot be 0, and is finite\. Rec"),
        (
            SGD,
            {"defaultLearningRate": (0, True)},
            r"^Constant, zero learning rate in SGD\. It must be more than 0, or one that is not "
            r"constant, as \(0\.0, False\)\. Received: learningRate=0\.0 \(const\)$",
        ),
        (
            Adam,
            {"defaultLearningRate": (-0.5, False)},
            r"^Negative learning rate \(-0\.5\) in Adam\. It must be at least 0\. Received: "
            r"learningRate=-0\.5 \(non-const\)$",
        ),
        (SGD, {"defaultWeightDecay": (-1, True)}, r"^Negative weight decay \(-1\) in SGD\."),
        (SGD, {"defaultMomentum": (-1, True)}, r"^Negative momentum \(-1\) in SGD\."),
        (SGD, {"defaultDampening": (-1, True)}, r"^Negative dampening \(-1\) in SGD\."),
        (SGD, {"defaultVelocityScaling": (0, True)}, r"^Non-positive velocity scaling in SGD\."),
        (Adam, {"defaultBeta1": (1, True)}, r"^Too large beta1 \(1\) in Adam\. It must be less "),
        (Adam, {"defaultBeta2": (-1, True)}, r"^Negative beta2 \(-1\) in Adam\."),
        (Adam, {"defaultEps": (-1, True)}, r"^Negative eps \(-1\) in Adam\."),
        (Adam, {"defaultMaxWeightNorm": (-1, True)}, r"^Negative max weight norm \(-1\) in Adam"),
        (Adaptive, {"defaultAlpha": (2, True)}, r"^Too large alpha \(2\) in Adaptive\."),
        (SGD, {"defaultMomentum": (NAN, True)}, r"^No finite momentum \(nan\) in SGD\. It must be"),
        (Adaptive, {"defaultEps": (1e39, True)}, r"^No finite eps \(inf\) in Adaptive\."),
    ],
)
def test_values_that_are_refused(make, values, text):
    with pytest.raises(popart.popart_exception, match=text):
        make(values)


@pytest.mark.parametrize("wrong", [0.1, True, "0.1", None])
def test_values_are_tuples(wrong):
    text = r"^The value of 'defaultMomentum' is a tuple of a number and of whether it is const"
    with pytest.raises(TypeError, match=text):
        SGD({"defaultMomentum": wrong})
    with pytest.raises(TypeError, match=r"^Values of SGD are a dict, such as \{'defaultLearningR"):
        SGD(wrong)


def test_values_of_a_weight_are_completed_from_the_defaults():
    adam = Adam({"defaultBeta1": (0.5, False), "defaultMaxWeightNorm": (INF, True)})
    assert not adam.has_specific("w")
    adam.insertSpecific("w", {"learningRate": (0.25, True)})
    assert adam.has_specific("w")
    assert not adam.has_specific("b")
    assert adam.value("learningRate", "w") == OptimizerValue(0.25)
    assert adam.value("beta1", "w") == OptimizerValue(0.5, False)
    assert adam.value("learningRate", "b") == OptimizerValue(0.1)
    assert adam.value("lossScaling", "w") == OptimizerValue(1)
    assert adam.learningRates().getDefault() == OptimizerValue(0.1)
    # Again: nothing is left of the first time.
    adam.insertSpecific("w", {"beta1": (0.75, True)})
    assert adam.value("learningRate", "w") == OptimizerValue(0.1)


def test_values_of_a_weight_that_are_refused_change_nothing():
    sgd = SGD({})
    for values, text in (
        ({"defaultMomentum": (1, True)}, r"^Invalid SGD key, defaultMomentum, the allowed keys are "
         r"\( learningRate weightDecay momentum dampening velocityScaling \)$"),
        ({"lossScaling": (1, True)}, r"^Invalid SGD key, lossScaling, "),
        ({"learningRate": (-1, True)}, r"^Negative learning rate \(-1\) in SGD for weight 'w'"),
        ({"learningRate": (0, True)}, r"^Constant, zero learning rate in SGD for weight 'w'"),
    ):  # fmt: skip
        with pytest.raises(popart.popart_exception, match=text):
            sgd.insertSpecific("w", {"momentum": (0.5, True), **values})
    with pytest.raises(TypeError, match=r"^The name of a weight is a str\. Received: 1$"):
        sgd.insertSpecific(1, {})
    assert not sgd.has_specific("w")


def test_a_copy_does_not_change_with_the_optimizer():
    sgd = SGD({}, [ClipNormSettings(["w"], 1)], SGDAccumulatorAndMomentum.Separate)
    twin = sgd.copy()
    sgd.insertSpecific("w", {"momentum": (0.5, True)})
    assert not twin.has_specific("w")
    assert type(twin) is SGD
    assert twin.clip_norms == sgd.clip_norms
    assert twin.settings == sgd.settings


def test_groups_of_weights_that_are_refused():
    group = ClipNormSettings(["w", "b"], 1.0)
    for wrong in (0.0, -1.0, NAN, INF):
        text = rf"^The largest norm of gradients is positive and finite\. Received: maxNorm={wrong}"
        with pytest.raises(popart.popart_exception, match=text):
            SGD({}, [ClipNormSettings(["w"], wrong)])
    text = r"^Gradients are clipped once\. Received: weight 'w' more than once in clip_norm_set"
    with pytest.raises(popart.popart_exception, match=text):
        Adam({}, clip_norm_settings=[group, ClipNormSettings(["w"], 2.0)])
    with pytest.raises(TypeError, match=r"^`clip_norm_settings` must be a list, each item a Clip"):
        popart.ConstSGD(0.1, clip_norm_settings=group)
    sgd = SGD({}, [group])
    group.maxNorm = 2.0
    assert sgd.clip_norms == (ClipNormSettings(["w", "b"], 1.0),)


def test_values_and_groups_are_for_weights():
    sgd = SGD({}, [ClipNormSettings(["w", "x"], 1.0)])
    sgd.insertSpecific("y", {"momentum": (0.5, True)})
    sgd.check_weights({"w", "x", "y", "z"})
    text = (
        r"^Specific values of SGD are for weights that are trained\. Received: 'y'; the weights "
        r"are 'w', 'x'$"
    )
    with pytest.raises(popart.popart_exception, match=text):
        sgd.check_weights(["x", "w"])
    text = r"^Clip norm settings of SGD are for weights that are trained\. Received: 'w', 'x'; the"
    with pytest.raises(popart.popart_exception, match=text):
        sgd.check_weights(["y"])


CHANGING = {"defaultLearningRate": (0.5, False), "lossScaling": (2, False)}
SEPARATE = SGDAccumulatorAndMomentum.Separate


def with_own(optimizer, name="w", **values):
    optimizer.insertSpecific(name, values)
    return optimizer


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (SGD({}), Adam({}), r"Its type is Adam, not SGD\."),
        (Adam({}), Adaptive({}), r"Its type is Adaptive, not Adam\."),
        (
            SGD({}),
            SGD({}, (), SEPARATE),
            r"Its accumulatorAndMomentum is SGDAccumulatorAndMomentum\.Separate, not SGDAccumul",
        ),
        (Adam({}), Adam({}, AdamMode.Lamb), r"Its mode is AdamMode\.Lamb, not AdamMode\.Adam\."),
        (
            Adam({}),
            Adam({}, weight_decay_mode=WeightDecayMode.L2Regularization),
            r"Its weight_decay_mode is WeightDecayMode\.L2Regularization, not WeightDecayMode\.D",
        ),
        (
            Adam({}),
            Adam({}, accl1_type=DataType.FLOAT16),
            r"Its accl1_type is DataType\.FLOAT16, not DataType\.FLOAT\.",
        ),
        (
            Adam({}),
            Adam({}, scaled_optimizer_state=True),
            r"Its scaled_optimizer_state is True, not False\.",
        ),
        (
            Adaptive({}),
            Adaptive({}, AdaptiveMode.AdaGrad),
            r"Its mode is AdaptiveMode\.AdaGrad, not AdaptiveMode\.RMSProp\.",
        ),
        (
            SGD({}),
            SGD({}, [ClipNormSettings(["w"], 1)]),
            r"Its clip norm settings are \(ClipNormSettings\(weightIds=\['w'\], maxNorm=1\.0\),\),",
        ),
        (
            SGD({}),
            SGD({"lossScaling": (2, True)}),
            r"Its loss scaling is 2\.0 \(const\), not 1\.0 \(const\)\.",
        ),
        (
            SGD({}),
            SGD({"defaultLearningRate": (0.5, True)}),
            r"Its default learningRate is 0\.5 \(const\), not 0\.1 \(const\)\.",
        ),
        (
            SGD({}),
            SGD({"defaultMomentum": (0, False)}),
            r"Its default momentum is 0\.0 \(non-const\), not 0\.0 \(const\)\.",
        ),
        (
            SGD({}),
            with_own(SGD({})),
            r"It has specific values of 'w', not of no weight\.",
        ),
        (
            with_own(SGD({})),
            with_own(SGD({}), "b"),
            r"It has specific values of 'b', not of 'w'\.",
        ),
        (
            with_own(SGD({}), dampening=(0.5, True)),
            with_own(SGD({}), dampening=(0.25, True)),
            r"Its dampening of 'w' is 0\.25 \(const\), not 0\.5 \(const\)\.",
        ),
        (
            SGD({"defaultMomentum": (0.5, False)}),
            SGD({"defaultMomentum": (0, True)}),
            r"Its default momentum is 0\.0 \(const\): without momentum there is no such state\.",
        ),
    ],
)
def test_replacements_that_are_refused(old, new, reason):
    before = (dict(old._values), old.loss_scaling, dict(old.settings))
    text = (
        rf"^New optimizer is not a valid replacement\. {reason}.* only values that are not "
        r"constant, as in \(0\.1, False\), change\.$"
    )
    with pytest.raises(popart.popart_exception, match=text):
        old.check_replacement(new)
    assert (dict(old._values), old.loss_scaling, dict(old.settings)) == before


def test_an_optimizer_is_replaced_by_one():
    with pytest.raises(TypeError, match=r"^An optimizer is replaced by another one\. Received: No"):
        SGD({}).check_replacement(None)


def test_an_equal_optimizer_of_another_class_replaces_one():
    popart.ConstSGD(0.5, 0.25).check_replacement(
        SGD({"defaultLearningRate": (0.5, True), "defaultWeightDecay": (0.25, True)})
    )


KEYS = ["defaultLearningRate", "defaultWeightDecay", "defaultMomentum", "lossScaling"]
VALUES = st.fixed_dictionaries(
    {key: st.tuples(st.sampled_from([0.25, 0.5]), st.booleans()) for key in KEYS}
)


@given(VALUES, VALUES)
def test_what_is_constant_stays_and_all_else_may_change(old, new):
    stays = all(new[key] == value for key, value in old.items() if value[1])
    if stays:
        SGD(old).check_replacement(SGD(new))
    else:
        with pytest.raises(popart.popart_exception, match=r"^New optimizer is not a valid repl"):
            SGD(old).check_replacement(SGD(new))
