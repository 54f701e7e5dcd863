"""Computes and trains random ONNX models in sessions, and by ONNX's reference.

`python benchmarks/fuzz/onnx_values.py --help`. Every node's outputs are compared with what
`onnx.reference` computes from the inputs that the node had here, so that rounding does not grow
from node to node. Of what is trained, gradients are compared with difference quotients of the
reference in 64 bits.
"""

import argparse
import collections
import math
import sys
import time
import traceback
import warnings
from random import Random
from typing import Any

import numpy as np
import onnx
from isolated import Crash, isolated
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops._op import OpRunUnaryNum
from random_graphs import RandomGraph, computed, random_graph

# Units in the last place of float32 of the largest number, summed over some hundreds.
TOLERANCE = 2e-5
# Quotients of differences of 1e-6 have four digits less than 64 bits have.
GRADIENT_TOLERANCE = 2e-4
STEP = 1e-6
# Of each weight, as each costs two computations.
ELEMENTS_A_WEIGHT = 4
RATE = 0.125


def work(seed: int) -> tuple[str, str, str]:
    """Name of the verdict, what is to be known of it, and the model, of a seed."""
    trains = Random(f"trains {seed}").random() < 0.4
    graph = random_graph(seed, smooth=trains)
    try:
        text = difference_in_training(graph, seed) if trains else difference(graph)
    except Exception as error:
        kind = "REFUSED" if type(error).__name__ == "popart_exception" else "DIFFERENT"
        return kind, traceback.format_exc(limit=-4), str(graph)
    return ("DIFFERENT" if text else "EQUAL"), text, str(graph)


def difference(graph: RandomGraph) -> str:
    """What nodes of a model compute otherwise in an inference session; empty if nothing."""
    from ipu_keras import popart

    names = [name for node in graph.nodes for name in node.output]
    flow = popart.DataFlow(1, {name: popart.AnchorReturnType("All") for name in names})
    device = popart.DeviceManager().createIpuModelDevice({})
    session = popart.InferenceSession(graph.proto().SerializeToString(), flow, device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(graph.inputs, anchors))
    found = {**graph.initialisers, **graph.inputs}
    for node in graph.nodes:
        # Anchors have the types of devices, in which there are no 64 bits.
        given = {name: found[name] for name in node.input if name}
        expected = computed(node, given, graph.opset)
        for name, right in zip(node.output, expected, strict=True):
            ours = anchors[name].reshape(right.shape)
            if not _is_close(ours, right, TOLERANCE):
                return f"{node.op_type} of {name}: {ours.ravel()[:8]}, right is {right.ravel()[:8]}"
            found[name] = ours.astype(right.dtype)
    return ""


def difference_in_training(graph: RandomGraph, seed: int) -> str:
    """What a training session makes otherwise of weights; empty if nothing."""
    from ipu_keras import popart

    random = Random(f"options {seed}")
    accumulation, replicas = random.choice([1, 1, 2, 3]), random.choice([1, 1, 2])
    is_mean = random.random() < 0.5
    last = graph.nodes[-1].output[0]
    loss = helper.make_node("Identity", [last], ["loss"])
    proto = _with_loss(graph, last)
    options = popart.SessionOptions()
    options.enableGradientAccumulation = accumulation > 1
    options.accumulationFactor = accumulation
    options.enableReplicatedGraphs = replicas > 1
    options.replicatedGraphCount = replicas
    if is_mean:
        options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": replicas})
    flow = popart.DataFlow(1, {loss.output[0]: popart.AnchorReturnType("All")})
    session = popart.TrainingSession(
        proto.SerializeToString(), flow, loss.output[0], popart.ConstSGD(RATE), device,
        userOptions=options,
    )  # fmt: skip
    session.prepareDevice()
    session.weightsFromHost()
    count = accumulation * replicas
    numbers = np.random.default_rng(seed + 1)
    x = numbers.standard_normal((count, *graph.inputs["x"].shape)).astype(np.float32)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": x.reshape(-1, *x.shape[1:]) if count > 1 else x[0]}, anchors))
    session.weightsToHost()
    after = {name: np.empty_like(graph.initialisers[name]) for name in graph.weights}
    session.readWeights(popart.PyWeightsIO(after))
    reference = ReferenceEvaluator(_with_loss(graph, last, np.float64), new_ops=[Erf])
    losses = [_loss(reference, graph, each) for each in x]
    if not _is_close(anchors["loss"].ravel(), np.array(losses), TOLERANCE):
        return f"losses {anchors['loss'].ravel()}, right are {losses}"
    return _wrong_weight(graph, reference, x, after, 1 / count if is_mean else 1.0, numbers)


class Erf(OpRunUnaryNum):
    """That of the reference without its rounding to 32 bits, which differences cannot bear."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (np.vectorize(math.erf, otypes=[x.dtype])(x),)


def _with_loss(graph: RandomGraph, last: str, dtype: type = np.float32) -> onnx.ModelProto:
    """The model with the mean of a tensor's squares as its loss, which is its output."""
    proto = graph.proto(dtype)
    proto.graph.node.append(helper.make_node("Mul", [last, last], ["squares"]))
    proto.graph.node.append(helper.make_node("ReduceMean", ["squares"], ["loss"], keepdims=0))
    del proto.graph.output[:]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto.graph.output.append(helper.make_tensor_value_info("loss", kind, None))
    return proto


def _loss(reference: Any, graph: RandomGraph, x: np.ndarray, **changed: np.ndarray) -> float:
    reference.rt_inits_.update(changed)
    (found,) = reference.run(None, {"x": x.astype(np.float64)})
    return float(found)


def _wrong_weight(
    graph: RandomGraph,
    reference: Any,
    x: np.ndarray,
    after: dict[str, np.ndarray],
    scale: float,
    numbers: np.random.Generator,
) -> str:
    """Names a weight that was not changed by its gradient; empty if there is none."""
    changes = [np.abs(graph.initialisers[name] - after[name]).max() for name in graph.weights]
    if not np.isfinite(changes).all():
        return f"weights {dict(zip(graph.weights, changes, strict=True))} are not finite"
    # What is left of sums that are zero is as small beside other gradients.
    least = TOLERANCE * max(changes) / RATE + 1e-7
    for name in graph.weights:
        before = graph.initialisers[name].astype(np.float64)
        taken = (before - after[name]) / RATE
        places = numbers.permutation(before.size)[:ELEMENTS_A_WEIGHT]
        right = np.zeros(len(places))
        for position, place in enumerate(places):
            sides = []
            for step in (STEP, -STEP):
                moved = before.copy()
                moved.ravel()[place] += step
                sides.append(sum(_loss(reference, graph, each, **{name: moved}) for each in x))
            right[position] = scale * (sides[0] - sides[1]) / (2 * STEP)
        reference.rt_inits_[name] = before
        ours = taken.ravel()[places]
        # What the weight itself was rounded by is a part of the difference.
        rounding = 2 * np.abs(before).max(initial=0) * np.finfo(np.float32).eps / RATE
        largest = max(np.abs(right).max(initial=0), np.abs(taken).max(initial=0))
        if (np.abs(ours - right) > GRADIENT_TOLERANCE * largest + rounding + least).any():
            return f"gradient of {name} at {places}: {ours}, right is {right}"
    return ""


def _is_close(ours: np.ndarray, right: np.ndarray, tolerance: float) -> bool:
    if right.dtype.kind in "biu":
        return np.array_equal(ours, right)
    largest = np.abs(right).max(initial=0)
    return bool(np.allclose(ours, right, rtol=0, atol=tolerance * max(largest, 1e-2)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first model")
    parser.add_argument("--count", type=int, default=2000, help="how many models")
    parser.add_argument("--minutes", type=float, default=60, help="after which none is begun")
    arguments = parser.parse_args()

    warnings.simplefilter("ignore")
    seeds = list(range(arguments.seed, arguments.seed + arguments.count))
    verdicts: collections.Counter = collections.Counter()
    start = time.monotonic()
    for seed, result in isolated(work, seeds, 60 * arguments.minutes, 200):
        if isinstance(result, Crash):
            result = "CRASH", result.text, ""
        name, text, graph = result
        verdicts[name] += 1
        if name != "EQUAL":
            print(f"model {seed}: {name}: {text}\n    {graph}", flush=True)
    done = sum(verdicts.values())
    print(f"{done} of {len(seeds)} models in {time.monotonic() - start:.0f} s: {dict(verdicts)}")
    return 0 if verdicts["EQUAL"] == len(seeds) else 1


if __name__ == "__main__":
    sys.exit(main())
