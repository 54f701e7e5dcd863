"""Sessions that train compute what NumPy does, in 64 bits."""

import numpy as np
import popart_goldens as goldens
import pytest

from ipu_keras import popart
from ipu_keras.popart import SGDAccumulatorAndMomentum as State

BATCHES = 50
SGD = {"lr": 0.05, "mm": 0.8, "dm": 0.25, "wd": 0.01, "vs": 2.0}
OWN = {"lr": 0.02, "mm": 0.5, "dm": 0.1, "wd": 0.03, "vs": 0.5}
KEYS = {
    "lr": "learningRate",
    "mm": "momentum",
    "dm": "dampening",
    "wd": "weightDecay",
    "vs": "velocityScaling",
}
MEAN, SUM = popart.ReductionType.Mean, popart.ReductionType.Sum


def values(given):
    return {KEYS[key]: (value, True) for key, value in given.items()}


def defaults(given):
    return {f"default{k[0].upper()}{k[1:]}": each for k, each in values(given).items()}


def sgd(state, model):
    """One weight has values of its own, and the loss is scaled."""
    given = {**defaults(SGD), "lossScaling": (16.0, True)}
    optimizer = popart.SGD(given, accumulatorAndMomentum=state)
    optimizer.insertSpecific(model.names["c"], values(OWN))
    default, own = (goldens.Sgd(each, state is State.Combined) for each in (SGD, OWN))
    return optimizer, lambda name: own if name == "c" else default


def plain_sgd(model, accumulation):
    given = {**SGD, "mm": 0.0, "vs": 1.0}
    rule = goldens.PlainSgd(given) if accumulation == 1 else goldens.Sgd(given, True)
    return popart.SGD(defaults(given)), lambda name: rule


def adam(mode):
    given = {
        "defaultLearningRate": (0.02, True),
        "defaultWeightDecay": (0.01, True),
        "defaultEps": (1e-3, True),
        "lossScaling": (4.0, True),
    }
    rule = goldens.Adam(0.02, 0.01, 0.9, 0.999, 1e-3, mode is popart.AdamMode.Lamb)
    return popart.Adam(given, mode), lambda name: rule


def rms_prop():
    given = {
        "defaultLearningRate": (0.005, True),
        "defaultWeightDecay": (0.01, True),
        "defaultAlpha": (0.9, True),
        "defaultMomentum": (0.5, True),
        "defaultEps": (1e-2, True),
    }
    rule = goldens.RmsProp(0.005, 0.01, 0.9, 0.5, 1e-2)
    return popart.Adaptive(given), lambda name: rule


OPTIMIZERS = {
    "SGD": lambda model, accumulation: plain_sgd(model, accumulation),
    "combined": lambda model, accumulation: sgd(State.Combined, model),
    "separate": lambda model, accumulation: sgd(State.Separate, model),
    "Adam": lambda model, accumulation: adam(popart.AdamMode.Adam),
    "LAMB": lambda model, accumulation: adam(popart.AdamMode.Lamb),
    "RMSProp": lambda model, accumulation: rms_prop(),
}
# The network below has the others.
WAYS = [(1, 1, SUM), (1, 2, SUM), (4, 1, MEAN), (4, 4, SUM), (1, 4, MEAN)]


def check(training_of, weights_of, model, name, accumulation, replicas, reduction):
    optimizer, rules = OPTIMIZERS[name](model, accumulation)
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


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(("accumulation", "replicas", "reduction"), WAYS)
def test_a_perceptron(training_of, weights_of, name, accumulation, replicas, reduction):
    check(training_of, weights_of, goldens.mlp(), name, accumulation, replicas, reduction)


@pytest.mark.parametrize(
    ("name", "accumulation", "replicas"),
    [("SGD", 1, 1), ("combined", 4, 2), ("separate", 4, 1), ("Adam", 1, 2), ("LAMB", 4, 1)],
)
def test_a_convolutional_network(training_of, weights_of, name, accumulation, replicas):
    check(training_of, weights_of, goldens.cnn(), name, accumulation, replicas, MEAN)
