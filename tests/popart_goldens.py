"""Models that sessions train, and NumPy that trains the same ones, in 64 bits."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ipu_keras import popart

Arrays = dict[str, np.ndarray]


@dataclass
class Trainable:
    """A model, and what NumPy finds of it.

    Args:
        proto: It.
        loss: Name of its loss.
        weights: What they are at first, by what they are called here.
        names: Of tensors, by what they are called here.
        inputs: Makes the inputs of so many micro-batches, by name.
        gradients: Of the loss, for weights and inputs of one micro-batch; with what else is known.
    """

    proto: bytes
    loss: str
    weights: Arrays
    names: dict[str, str]
    inputs: Callable[..., Arrays]
    gradients: Callable[[Arrays, Arrays], Arrays]
    losses: Callable[[Arrays, Arrays], float] = field(default=lambda weights, inputs: 0.0)


def mlp(place: Any = None) -> Trainable:
    """`nll(softmax(tanh(x @ a + b) @ c))`, of 6 samples in 3 classes."""
    random = np.random.default_rng(0)
    weights = {
        "a": random.normal(size=(4, 5)).astype(np.float32),
        "b": random.normal(size=5).astype(np.float32),
        "c": random.normal(size=(5, 3)).astype(np.float32),
    }
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [6, 4]), "x")
    labels = builder.addInputTensor(popart.TensorInfo("INT32", [6]), "labels")
    names = {name: builder.addInitializedInputTensor(w, name) for name, w in weights.items()}
    names |= {"x": x, "labels": labels}
    onnx, within = builder.aiOnnx, place or (lambda builder, part: nullcontext())
    with within(builder, 0):
        names["sum"] = onnx.gemm([x, names["a"], names["b"]])
        names["hidden"] = onnx.tanh([names["sum"]])
    with within(builder, 1):
        names["logits"] = onnx.matmul([names["hidden"], names["c"]])
        probabilities = onnx.softmax([names["logits"]])
        loss = builder.aiGraphcore.nllloss([probabilities, labels])

    def inputs(*count: int, seed: int = 1) -> Arrays:
        random = np.random.default_rng(seed)
        return {
            x: random.normal(size=(*count, 6, 4)).astype(np.float32),
            labels: random.integers(3, size=(*count, 6)).astype(np.int32),
        }

    def forward(weights: Arrays, given: Arrays) -> tuple[np.ndarray, np.ndarray]:
        hidden = np.tanh(given[x].astype(np.float64) @ weights["a"] + weights["b"])
        powers = np.exp(hidden @ weights["c"])
        return hidden, powers / powers.sum(axis=1, keepdims=True)

    def gradients(weights: Arrays, given: Arrays) -> Arrays:
        hidden, found = forward(weights, given)
        logits = (found - np.eye(3)[given[labels]]) / 6
        sums = logits @ weights["c"].T * (1 - hidden**2)
        return {
            "a": given[x].T.astype(np.float64) @ sums,
            "b": sums.sum(axis=0),
            "c": hidden.T @ logits,
            "logits": logits,
            "sum": sums,
            "hidden": logits @ weights["c"].T,
            "x": sums @ weights["a"].T,
        }

    def losses(weights: Arrays, given: Arrays) -> float:
        return -np.mean(np.log(forward(weights, given)[1][np.arange(6), given[labels]]))

    return Trainable(builder.getModelProto(), loss, weights, names, inputs, gradients, losses)


def cnn() -> Trainable:
    """`mean((flat(relu(conv(x, k) + b)) @ c) ** 2)`, of 2 images."""
    random = np.random.default_rng(0)
    weights = {
        "k": random.normal(size=(3, 2, 3, 3)).astype(np.float32) / 4,
        "b": random.normal(size=3).astype(np.float32),
        "c": random.normal(size=(48, 2)).astype(np.float32) / 5,
    }
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 2, 6, 6]), "x")
    names = {name: builder.addInitializedInputTensor(w, name) for name, w in weights.items()}
    names["x"] = x
    onnx = builder.aiOnnx
    names["conv"] = onnx.conv([x, names["k"], names["b"]])
    names["relu"] = onnx.relu([names["conv"]])
    y = onnx.matmul([onnx.flatten([names["relu"]]), names["c"]])
    loss = builder.aiGraphcore.identityloss([onnx.mul([y, y])])

    def inputs(*count: int, seed: int = 1) -> Arrays:
        shape = (*count, 2, 2, 6, 6)
        return {x: np.random.default_rng(seed).normal(size=shape).astype(np.float32)}

    def gradients(weights: Arrays, given: Arrays) -> Arrays:
        windows = np.lib.stride_tricks.sliding_window_view(
            given[x].astype(np.float64), (3, 3), (2, 3)
        )
        conv = np.einsum("ncyxij,kcij->nkyx", windows, weights["k"]) + weights["b"][:, None, None]
        relu = np.maximum(conv, 0).reshape(2, -1)
        product = 2 * (relu @ weights["c"]) / 4
        before = (product @ weights["c"].T).reshape(conv.shape) * (conv > 0)
        return {
            "k": np.einsum("nkyx,ncyxij->kcij", before, windows),
            "b": before.sum(axis=(0, 2, 3)),
            "c": relu.T @ product,
            "conv": before,
            "relu": (product @ weights["c"].T).reshape(conv.shape),
        }

    return Trainable(builder.getModelProto(), loss, weights, names, inputs, gradients)


class Sgd:
    """`popart.SGD` with momentum; `is_combined` as its state is kept by default."""

    def __init__(self, values: Mapping[str, float], is_combined: bool):
        self._values, self._is_combined = values, is_combined
        self._velocity: Arrays = {}

    def __call__(self, name: str, w: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        lr, mm, dm, wd, vs = (self._values[key] for key in ("lr", "mm", "dm", "wd", "vs"))
        decay = (1 - dm) * wd * vs
        if not self._is_combined:
            before = self._velocity.get(name, 0.0)
            self._velocity[name] = mm * before + (1 - dm) * vs * gradient + decay * w
            return w - lr / vs * self._velocity[name]
        velocity = self._velocity.get(name, decay * w) + (1 - dm) * vs * gradient
        after = w - lr / vs * velocity
        self._velocity[name] = mm * velocity + decay * after
        return after


class PlainSgd:
    """`popart.SGD` without momentum and accumulation."""

    def __init__(self, values: Mapping[str, float]):
        self._values = values

    def __call__(self, name: str, w: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        lr, dm, wd = (self._values[key] for key in ("lr", "dm", "wd"))
        # It is one number of the program, rounded to 32 bits, which is multiplied 50 times.
        factor = np.float64(np.float32(1 - lr * (1 - dm) * wd))
        return w * factor - lr * (1 - dm) * gradient


class Adam:
    """`popart.Adam` in each of its modes."""

    def __init__(
        self, values: Mapping[str, float], mode: popart.AdamMode, decay: popart.WeightDecayMode
    ):
        self._values, self._mode = values, mode
        self._decays_gradients = decay is popart.WeightDecayMode.L2Regularization
        self._state: dict[str, tuple[Any, Any, int]] = {}

    def __call__(self, name: str, w: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        lr, wd, b1, b2, eps, mwn = (self._values[n] for n in ("lr", "wd", "b1", "b2", "eps", "mwn"))
        m, v, t = self._state.get(name, (0.0, 0.0, 0))
        gradient = gradient + wd * w if self._decays_gradients else gradient
        m, t = b1 * m + (1 - b1) * gradient, t + 1
        is_max = self._mode is popart.AdamMode.AdaMax
        v = np.maximum(b2 * v, abs(gradient)) if is_max else b2 * v + (1 - b2) * gradient**2
        self._state[name] = m, v, t
        if self._mode not in (popart.AdamMode.AdamNoBias, popart.AdamMode.LambNoBias):
            m, v = m / (1 - b1**t), v / (1 - b2**t)
        step = m / (np.sqrt(v) + eps) + (0.0 if self._decays_gradients else wd * w)
        if self._mode in (popart.AdamMode.Lamb, popart.AdamMode.LambNoBias):
            lr *= min(np.linalg.norm(w), mwn) / np.linalg.norm(step)
        return w - lr * step


class Adaptive:
    """`popart.Adaptive` in each of its modes; `is_tensorflow` with `rmsprop_tf_variant`."""

    def __init__(
        self,
        values: Mapping[str, float],
        mode: popart.AdaptiveMode,
        decay: popart.WeightDecayMode,
        is_tensorflow: bool,
    ):
        self._values, self._mode, self._is_tensorflow = values, mode, is_tensorflow
        self._decays_gradients = decay is popart.WeightDecayMode.L2Regularization
        self._state: dict[str, tuple[Any, Any, Any]] = {}

    def __call__(self, name: str, w: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        lr, wd, mm = (self._values[key] for key in ("lr", "wd", "mm"))
        first = 1.0 if self._is_tensorflow else 0.0
        v, second, momentum = self._state.get(name, (first, 0.0, 0.0))
        gradient = gradient + wd * w if self._decays_gradients else gradient
        step, v, second = self._step(gradient, v, second)
        momentum = mm * momentum + (lr * step if self._is_tensorflow else step)
        self._state[name] = v, second, momentum
        after = w - (momentum if self._is_tensorflow else lr * momentum)
        return after if self._decays_gradients else after - lr * wd * w

    def _step(self, gradient: np.ndarray, v: Any, second: Any) -> tuple[Any, Any, Any]:
        alpha, eps = self._values["alpha"], self._values["eps"]
        if self._mode is popart.AdaptiveMode.AdaGrad:
            v = v + gradient**2
            return gradient / (np.sqrt(v) + eps), v, second
        v = alpha * v + (1 - alpha) * gradient**2
        if self._mode is popart.AdaptiveMode.AdaDelta:
            step = gradient * np.sqrt(second + eps) / np.sqrt(v + eps)
            return step, v, alpha * second + (1 - alpha) * step**2
        spread = v
        if self._mode is popart.AdaptiveMode.CenteredRMSProp:
            second = alpha * second + (1 - alpha) * gradient
            spread = v - second**2
        root = np.sqrt(spread + eps) if self._is_tensorflow else np.sqrt(spread) + eps
        return gradient / root, v, second


def trained(
    model: Trainable,
    rules: Callable[[str], Any],
    inputs: Arrays,
    *,
    accumulation: int = 1,
    replicas: int = 1,
    is_mean: bool = False,
) -> Arrays:
    """The weights after all batches of inputs.

    Args:
        model: It.
        rules: By what a weight is called, what updates it.
        inputs: By name `(batches, accumulation, replicas, ...)`.
        accumulation: Micro-batches of a batch on one replica.
        replicas: How many there are.
        is_mean: Whether gradients are averaged.
    """
    weights = {name: w.astype(np.float64) for name, w in model.weights.items()}
    batches = len(next(iter(inputs.values())))
    micro_batches = accumulation * replicas
    flat = {
        name: each.reshape(batches, micro_batches, *each.shape[3:]) for name, each in inputs.items()
    }
    for batch in range(batches):
        total = dict.fromkeys(weights, 0.0)
        for part in range(micro_batches):
            found = model.gradients(weights, {n: each[batch, part] for n, each in flat.items()})
            total = {name: total[name] + found[name] for name in weights}
        share = micro_batches if is_mean else 1
        weights = {n: rules(n)(n, w, total[n] / share) for n, w in weights.items()}
    return weights
