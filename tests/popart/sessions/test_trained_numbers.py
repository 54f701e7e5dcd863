"""Sessions that train compute what NumPy does, in 64 bits."""

import itertools

import numpy as np
import popart_goldens as goldens
import pytest

from ipu_keras import popart
from ipu_keras.popart import AdamMode, AdaptiveMode, WeightDecayMode
from ipu_keras.popart import SGDAccumulatorAndMomentum as State

BATCHES = 50
MEAN, SUM = popart.ReductionType.Mean, popart.ReductionType.Sum
KEYS = {
    "lr": "learningRate",
    "mm": "momentum",
    "dm": "dampening",
    "wd": "weightDecay",
    "vs": "velocityScaling",
    "b1": "beta1",
    "b2": "beta2",
    "eps": "eps",
    "mwn": "maxWeightNorm",
    "alpha": "alpha",
}
# Of all weights, and of one that has values of its own.
SGD = {"lr": 0.05, "mm": 0.8, "dm": 0.25, "wd": 0.01, "vs": 2.0}
ITS_SGD = {"lr": 0.02, "mm": 0.5, "dm": 0.1, "wd": 0.03, "vs": 0.5}
ADAM = {"lr": 0.02, "wd": 0.01, "b1": 0.9, "b2": 0.99, "eps": 1e-2, "mwn": 1.5}
ITS_ADAM = {"lr": 0.01, "wd": 0.02, "b1": 0.8, "b2": 0.95, "eps": 2e-2, "mwn": 10.0}
ADAPTIVE = {"lr": 0.005, "wd": 0.01, "alpha": 0.9, "mm": 0.5, "eps": 1e-2}
ITS_ADAPTIVE = {"lr": 0.01, "wd": 0.02, "alpha": 0.8, "mm": 0.25, "eps": 2e-2}


def rounded(values):
    """Values as IPUs have them."""
    return {key: float(np.float32(value)) for key, value in values.items()}


def made(kind, values, own, model, rule_of, **settings):
    """An optimizer with values of its own for one weight, and what NumPy does for each weight."""
    given = {f"default{KEYS[k][0].upper()}{KEYS[k][1:]}": (v, True) for k, v in values.items()}
    optimizer = kind({**given, "lossScaling": (16.0, True)}, **settings)
    optimizer.insertSpecific(model.names["c"], {KEYS[k]: (v, True) for k, v in own.items()})
    default, specific = (rule_of(rounded(each)) for each in (values, own))
    return optimizer, lambda name: specific if name == "c" else default


def sgd(state, momentum=True):
    def make(model, accumulation, summed):
        still = {} if momentum else {"mm": 0.0, "vs": 1.0}
        values, own = ({**each, **still, "lr": each["lr"] / summed} for each in (SGD, ITS_SGD))
        has_state = momentum or accumulation > 1

        def rule_of(numbers):
            is_combined = state is State.Combined
            return goldens.Sgd(numbers, is_combined) if has_state else goldens.PlainSgd(numbers)

        return made(popart.SGD, values, own, model, rule_of, accumulatorAndMomentum=state)

    return make


def const_sgd(model, accumulation, summed):
    numbers = rounded({"lr": 0.05 / summed, "mm": 0.0, "dm": 0.0, "wd": 0.01, "vs": 1.0})
    rule = goldens.PlainSgd(numbers) if accumulation == 1 else goldens.Sgd(numbers, True)
    return popart.ConstSGD(0.05 / summed, 0.01, 8.0), lambda name: rule


def adam(mode, decay, is_scaled=False):
    def rule_of(numbers):
        return goldens.Adam(numbers, mode, decay)

    settings = {"mode": mode, "weight_decay_mode": decay, "scaled_optimizer_state": is_scaled}
    return lambda model, *_: made(popart.Adam, ADAM, ITS_ADAM, model, rule_of, **settings)


def adaptive(mode, decay, is_tensorflow):
    def rule_of(numbers):
        return goldens.Adaptive(numbers, mode, decay, is_tensorflow)

    settings = {"mode": mode, "weight_decay_mode": decay, "rmsprop_tf_variant": is_tensorflow}
    return lambda model, *_: made(
        popart.Adaptive, ADAPTIVE, ITS_ADAPTIVE, model, rule_of, **settings
    )


MODES = [(mode, False) for mode in AdaptiveMode]
MODES += [(mode, True) for mode in (AdaptiveMode.RMSProp, AdaptiveMode.CenteredRMSProp)]
OPTIMIZERS = {
    "ConstSGD": const_sgd,
    "SGD": sgd(State.Combined, momentum=False),
    "SGD-separate": sgd(State.Separate, momentum=False),
    "momentum": sgd(State.Combined),
    "momentum-separate": sgd(State.Separate),
    "Adam-scaled": adam(AdamMode.Adam, WeightDecayMode.Decay, is_scaled=True),
    **{
        f"{mode.name}-{decay.name}": adam(mode, decay)
        for mode, decay in itertools.product(AdamMode, WeightDecayMode)
    },
    **{
        f"{mode.name}{'-TensorFlow' * is_tensorflow}-{decay.name}": adaptive(
            mode, decay, is_tensorflow
        )
        for (mode, is_tensorflow), decay in itertools.product(MODES, WeightDecayMode)
    },
}
MODELS = {"MLP": goldens.mlp, "CNN": goldens.cnn}
WAYS = list(itertools.product(MODELS, (1, 4), (1, 2, 4), (SUM, MEAN)))


def spread():
    """Of all combinations, some in which each two choices meet."""
    for index, name in enumerate(OPTIMIZERS):
        flips = [index >> bit & 1 for bit in range(3)]
        for replicas, bits in ((1, (0, 0, 0)), (2, (0, 1, 1)), (4, (1, 0, 1))):
            kind, longer, is_mean = (bit ^ flip for bit, flip in zip(bits, flips, strict=True))
            yield name, list(MODELS)[kind], (1, 4)[longer], replicas, (SUM, MEAN)[is_mean]


def test_each_two_choices_meet():
    choices = (OPTIMIZERS, *map(dict.fromkeys, zip(*WAYS, strict=True)))
    for one, other in itertools.combinations(range(len(choices)), 2):
        met = {(each[one], each[other]) for each in spread()}
        assert met == set(itertools.product(choices[one], choices[other]))


@pytest.mark.parametrize(("name", "kind", "accumulation", "replicas", "reduction"), list(spread()))
def test_it_is_what_numpy_computes(
    training_of, weights_of, name, kind, accumulation, replicas, reduction
):
    model = MODELS[kind]()
    # Sums of many gradients want smaller steps.
    summed = accumulation * replicas if reduction == SUM else 1
    optimizer, rules = OPTIMIZERS[name](model, accumulation, summed)
    session, _ = training_of(
        model.proto,
        model.loss,
        optimizer,
        batches=BATCHES // 2,
        num_ipus=replicas,
        enableGradientAccumulation=accumulation > 1,
        accumulationFactor=accumulation,
        enableReplicatedGraphs=replicas > 1,
        replicatedGraphCount=replicas,
        accumulationAndReplicationReductionType=reduction,
    )
    inputs = model.inputs(BATCHES, accumulation, replicas)
    for half in range(2):
        part = {n: np.split(each, 2)[half] for n, each in inputs.items()}
        session.run(popart.PyStepIO(part, {}))
    expected = goldens.trained(
        model,
        rules,
        inputs,
        accumulation=accumulation,
        replicas=replicas,
        is_mean=reduction == MEAN,
    )
    found = weights_of(session, {model.names[n]: w for n, w in model.weights.items()})
    for called, weight in expected.items():
        error = np.abs(found[model.names[called]] - weight).max() / np.abs(weight).max()
        assert error <= 1e-6, (called, error)
        assert np.abs(weight - model.weights[called]).max() > 1e-2
