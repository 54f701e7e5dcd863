"""Trains small models made at random here and in stock Keras, and says where they differ."""

import contextlib
import enum
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from random_models import RandomModel, extend, random_model
from reference_training import ReferenceTraining

from ipu_keras.config import IPUConfig
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.pipelining_ops import PipelineSchedule

# Units in the last place of float32, carried through some steps; see tests/test_numerics.py.
TOLERANCE = 1e-5
# Those of float16, 1e-3, carried through as many.
HALF_TOLERANCE = 2e-2
# By how much of themselves numbers are nudged, to see what rounding grows to: some units in the
# last place.
NUDGES = {"float32": (1e-7, 3e-7), "mixed_float16": (5e-4, 1.5e-3)}

LOSSES: dict[str, list[str]] = {
    "numbers": ["mse", "mae", "huber", "log_cosh", "cosine_similarity", "msle", "mape", "poisson"],
    "binary": ["binary_crossentropy", "hinge", "squared_hinge", "binary_focal_crossentropy"],
    "one_hot": ["categorical_crossentropy", "kl_divergence", "categorical_hinge", "dice"],
    "classes": ["sparse_categorical_crossentropy"],
}
METRICS: dict[str, list[str]] = {
    "numbers": [
        "mae",
        "mse",
        "RootMeanSquaredError",
        "CosineSimilarity",
        "R2Score",
        "LogCoshError",
    ],
    "binary": ["accuracy", "AUC", "Precision", "Recall", "BinaryIoU", "TruePositives"],
    "one_hot": ["accuracy", "TopKCategoricalAccuracy", "F1Score", "KLDivergence"],
    "classes": ["accuracy", "SparseTopKCategoricalAccuracy", "sparse_categorical_crossentropy"],
}
OPTIMIZERS: list[tuple[str, dict]] = [
    ("SGD", {"learning_rate": 0.05}),
    ("SGD", {"learning_rate": 0.05, "momentum": 0.9}),
    ("SGD", {"learning_rate": 0.02, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"learning_rate": 0.05, "clipnorm": 0.5}),
    ("SGD", {"learning_rate": 0.05, "global_clipnorm": 1.0}),
    ("SGD", {"learning_rate": 0.05, "clipvalue": 0.1}),
    ("SGD", {"learning_rate": 0.05, "weight_decay": 0.01}),
    ("SGD", {"learning_rate": 0.05, "use_ema": True, "ema_overwrite_frequency": 2}),
    ("Adam", {"learning_rate": 0.01}),
    ("Adam", {"learning_rate": 0.01, "amsgrad": True}),
    ("AdamW", {"learning_rate": 0.01, "weight_decay": 0.01}),
    ("RMSprop", {"learning_rate": 0.01}),
    ("RMSprop", {"learning_rate": 0.01, "centered": True, "momentum": 0.5}),
    ("Adagrad", {"learning_rate": 0.05}),
    ("Adadelta", {"learning_rate": 0.5}),
    ("Adamax", {"learning_rate": 0.01}),
    ("Nadam", {"learning_rate": 0.01}),
    ("Ftrl", {"learning_rate": 0.05}),
    ("Lion", {"learning_rate": 0.001}),
    ("Adafactor", {"learning_rate": 0.01}),
    ("Lamb", {"learning_rate": 0.01}),
]
SCHEDULES = [schedule.name for schedule in PipelineSchedule]


class Verdict(enum.Enum):
    """How a training here went beside the one of stock Keras."""

    EQUAL = "equal"
    AMPLIFIED = "rounding amplified: stock Keras on inputs nudged by it is as far off"
    GRADIENTS = "steps of rounded gradients: stock Keras is as far off if they are nudged"
    XLA = "stock Keras that XLA compiles is as far off, or not finite either"
    NOT_FINITE = "both are not finite"
    BOTH_REFUSE = "both refuse it"
    NO_KERNEL = "TensorFlow's executor has no kernel for a type, and XLA, which runs it here, has"
    DOCUMENTED = "refused as documented"
    DIFFERENT = "DIFFERENT"
    REFUSED = "REFUSED here alone"


# Refusals that IPU software has too, by the words of their messages.
DOCUMENTED_REFUSALS = [
    "The function `call` for the model",
    "must be a multiple of",
    "Layers in a pipelined model must",
]


@dataclass
class Case:
    """A training: the model, how it is compiled, the data, and what the IPU is told.

    Attributes:
        seed: Of the weights, the noise and the data.
        target: Key of `LOSSES`.
        batch: What `fit` is told of the data.
        predicts: Whether outputs are compared afterwards, or what `evaluate` says.
        replicas: Number of replicas.
        accumulation: Batches of a replica for one update.
        reduction: How gradients of these are added.
        stages: Stage of each layer, for a pipeline.
        class_weights: Weights of samples by class.
    """

    seed: int
    model: RandomModel
    target: str
    loss: str
    metrics: list[str]
    optimizer: tuple[str, dict]
    batch_size: int
    num_batches: int
    epochs: int
    steps_per_execution: int
    precision: str
    as_dataset: bool
    sample_weights: bool
    validation: bool
    predicts: bool
    replicas: int = 1
    accumulation: int = 1
    reduction: str = "SUM"
    stages: list[int] = field(default_factory=list)
    schedule: str = SCHEDULES[0]
    accumulate_outfeed: bool = False
    class_weights: dict[int, float] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether stock Keras's `fit` is the reference."""
        return self.replicas == self.accumulation == 1 and not self.stages

    def __str__(self):
        nodes = "\n    ".join(map(str, self.model.nodes))
        options = {name: value for name, value in vars(self).items() if name != "model"}
        extras = ("masked", "nested", "shared", "side", "second")
        more = {name: getattr(self.model, name) for name in extras if getattr(self.model, name)}
        return (
            f"input {self.model.input_shape} of {self.model.vocabulary}\n    {nodes}\n    {more}"
            f"\n    {options}"
        )


def random_case(seed: int) -> Case:
    """The training that a seed means."""
    random = Random(seed)
    target = random.choice(["numbers", "numbers", "binary", "one_hot", "classes"])
    num_outputs = random.randint(2, 5) if target in ("one_hot", "classes") else random.randint(1, 3)
    activation = {"binary": "sigmoid", "one_hot": "softmax", "classes": "softmax"}.get(target)
    if target == "numbers" and random.random() < 0.5:
        activation = "softplus"
    model = random_model(random, num_outputs, activation)
    loss = random.choice(LOSSES[target])
    if loss in ("poisson", "msle", "mape") and activation != "softplus":
        loss = "mse"
    case = Case(
        seed=seed,
        model=model,
        target=target,
        loss=loss,
        metrics=random.sample(METRICS[target], random.randint(0, 2)),
        optimizer=random.choice(OPTIMIZERS),
        batch_size=random.randint(1, 5),
        num_batches=random.choice([2, 4, 4, 6, 8]),
        epochs=random.randint(1, 2),
        steps_per_execution=1,
        precision="float32",
        as_dataset=random.random() < 0.4,
        sample_weights=random.random() < 0.2,
        validation=random.random() < 0.3,
        predicts=random.random() < 0.5,
    )
    _add_mode(random, case)
    if random.random() < 0.6:
        _add_extras(Random(f"extras of {seed}"), case)
    return case


def _add_extras(random: Random, case: Case) -> None:
    extend(case.model, random)
    if case.stages:
        # Stages are given to layers, which a nested model would hide.
        case.model.nested = None
    if case.model.noisy and case.replicas > 1:
        raise AssertionError("Draws of replicas differ on an IPU.")
    if not case.is_plain and random.random() < 0.15:
        case.precision = "mixed_float16"
    if case.precision != "float32":
        # Metrics that rank have no kernels of halves.
        case.model.nodes[-1].options["dtype"] = "float32"
        # The norm of zeros is kept from 0 by 1e-12, which is 0 in halves; and then stock Keras's
        # poolings take no number for the least one.
        case.model.masked &= all(node.kind != "UnitNormalization" for node in case.model.nodes)
    units = case.model.nodes[-1].options["units"]
    num_classes = {"classes": units, "binary": 2 if units == 1 else 0}.get(case.target)
    if num_classes and not case.model.second and not case.sample_weights and random.random() < 0.4:
        case.class_weights = {k: random.uniform(0.5, 2) for k in range(num_classes)}


def _add_mode(random: Random, case: Case) -> None:
    mode = random.choice(["plain"] * 5 + ["accumulation"] * 2 + ["replicas"] * 2 + ["pipeline"] * 2)
    if mode == "plain":
        divisors = [n for n in range(1, case.num_batches + 1) if case.num_batches % n == 0]
        case.steps_per_execution = random.choice(divisors)
        if random.random() < 0.1:
            case.precision = "mixed_float16"
        return
    case.reduction = random.choice(["SUM", "SUM", "MEAN", "RUNNING_MEAN"])
    if mode == "replicas":
        case.replicas = random.choice([2, 4])
        case.accumulation = random.choice([1, 1, 2])
        # Draws of replicas differ on an IPU, where stock Keras has but one.
        if case.model.noisy:
            case.replicas, case.accumulation = 1, 2
    if mode in ("accumulation", "pipeline"):
        case.accumulation = random.choice([2, 3, 4])
    if mode == "pipeline":
        _add_stages(random, case)
    updates = random.randint(1, 3)
    case.num_batches = updates * case.replicas * case.accumulation
    case.steps_per_execution = case.accumulation * random.choice(
        [n for n in range(1, updates + 1) if updates % n == 0]
    )


def _add_stages(random: Random, case: Case) -> None:
    num_layers = len(case.model.nodes)
    if num_layers < 2:
        return
    num_stages = random.randint(2, min(3, num_layers))
    borders = sorted(random.sample(range(1, num_layers), num_stages - 1))
    case.stages = [sum(position >= border for border in borders) for position in range(num_layers)]
    case.schedule = random.choice(SCHEDULES)
    case.accumulate_outfeed = random.random() < 0.3
    # A multiple of what each of the schedules asks for.
    case.accumulation = 2 * num_stages


@dataclass
class Outcome:
    """What a training and what followed it left."""

    weights: list[np.ndarray]
    logs: list[dict[str, Any]]
    evaluated: dict[str, Any]
    predicted: np.ndarray

    def distance(self, reference: "Outcome") -> float:
        """The largest difference, relative to the largest number beside it; infinite for a NaN
        on one side only."""
        pairs = list(zip(self.weights, reference.weights, strict=True))
        pairs.append((self.predicted, reference.predicted))
        for ours, theirs in zip(
            [*self.logs, self.evaluated], [*reference.logs, reference.evaluated], strict=True
        ):
            if ours.keys() != theirs.keys():
                raise AssertionError(
                    f"Logs are {sorted(ours)}, and {sorted(theirs)} in stock Keras."
                )
            pairs += [(np.array(ours[name]), np.array(theirs[name])) for name in theirs]
        return max(map(_distance, *zip(*pairs, strict=True)))

    @property
    def is_finite(self) -> bool:
        return all(np.isfinite(array).all() for array in [*self.weights, self.predicted])

    def where(self, reference: "Outcome") -> str:
        """Names what differs, for people."""
        weights = [
            f"{_distance(a, b):.1e}" for a, b in zip(self.weights, reference.weights, strict=True)
        ]
        outputs = _distance(self.predicted, reference.predicted)
        return (
            f"weights {' '.join(weights)}; outputs {outputs:.1e}"
            f"\n    here  {self.logs} {self.evaluated}"
            f"\n    stock {reference.logs} {reference.evaluated}"
        )


def _distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if ours.shape != theirs.shape:
        raise AssertionError(f"The shape is {ours.shape}, and {theirs.shape} in stock Keras.")
    if ours.size == 0:
        return 0.0
    different = ~((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))
    if not different.any():
        return 0.0
    if not np.isfinite(ours[different]).all() or not np.isfinite(theirs[different]).all():
        return float("inf")
    # Weights near zero are compared with what a step of an optimizer is, 1e-2.
    return float(np.abs(ours - theirs)[different].max() / max(np.abs(theirs).max(), 1e-2))


@dataclass
class Data:
    """Inputs, labels and weights of samples of all batches; `noise` changes inputs by so much."""

    case: Case
    noise: float = 0.0

    def arrays(self) -> tuple[Any, ...]:
        case, random = self.case, np.random.default_rng(self.case.seed)
        count = case.num_batches * case.batch_size
        if case.model.vocabulary is None:
            x = random.standard_normal((count, *case.model.input_shape)).astype("float32")
            x *= 1 + self.noise * random.choice([-1, 1], x.shape).astype("float32")
        else:
            x = random.integers(0, case.model.vocabulary, (count, *case.model.input_shape))
            x = x.astype("int32")
        if case.model.masked:
            # The first steps count, so that no sample is masked as a whole.
            steps = random.integers(1, x.shape[1] + 1, (count, 1)) > np.arange(x.shape[1])
            x = np.where(steps.reshape(steps.shape + (1,) * (x.ndim - 2)), x, 0).astype(x.dtype)
        if case.model.side:
            side = random.standard_normal((count, case.model.side)).astype("float32")
            x = {"main": x, "side": side}
        outputs = case.model.nodes[-1].options["units"]
        y = {
            "numbers": lambda: random.uniform(0.1, 2, (count, outputs)).astype("float32"),
            "binary": lambda: random.integers(0, 2, (count, outputs)).astype("float32"),
            "one_hot": lambda: np.eye(outputs, dtype="float32")[random.integers(0, outputs, count)],
            "classes": lambda: random.integers(0, outputs, (count, 1)).astype("int32"),
        }[case.target]()
        if case.model.second:
            y = {"first": y, "second": random.uniform(0, 1, (count, 1)).astype("float32")}
        if case.sample_weights:
            weights = random.uniform(0.2, 2, count).astype("float32")
            return x, y, {"first": weights, "second": 1 - weights} if case.model.second else weights
        return x, y

    def batches(self) -> list[tuple[Any, ...]]:
        arrays, size = self.arrays(), self.case.batch_size
        return [
            tf.nest.map_structure(lambda array, first=first: array[first : first + size], arrays)
            for first in range(0, size * self.case.num_batches, size)
        ]

    def dataset(self) -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices(self.arrays())
        return dataset.batch(self.case.batch_size, drop_remainder=True)


def _make(case: Case) -> keras.Model:
    """The model with the weights that the seed means."""
    keras.utils.set_random_seed(case.seed)
    policy = keras.dtype_policies.get(case.precision)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        return case.model.build()
    finally:
        keras.config.set_dtype_policy(before)


def _compile(case: Case, model: keras.Model, gradient_noise: float = 0.0, **options) -> None:
    name, settings = case.optimizer
    metrics = [
        getattr(keras.metrics, metric)() if metric[0].isupper() else metric
        for metric in case.metrics
    ]
    weighted = {"weighted_metrics": metrics} if case.sample_weights else {"metrics": metrics}
    optimizer = getattr(keras.optimizers, name)(**settings)
    if gradient_noise:
        _add_noise(optimizer, gradient_noise)
    loss: Any = case.loss
    if case.model.second:
        loss = {"first": case.loss, "second": "mse"}
        options["loss_weights"] = {"first": 1.0, "second": 0.5}
        weighted = {name: {"first": given, "second": ["mae"]} for name, given in weighted.items()}
    model.compile(optimizer, loss, **weighted, **options)


def _add_noise(optimizer: keras.optimizers.Optimizer, noise: float) -> None:
    """Adds to all gradients, or takes from them, so much of the largest number among them.

    That is what rounding leaves of sums that are zero; Adam and its like make whole steps of it.
    """
    apply, random = optimizer.apply, np.random.default_rng(0)

    # A `LossScaleOptimizer` gives variables by this name.
    def apply_with_noise(gradients, trainable_variables=None):
        dense = [g for g in gradients if isinstance(g, tf.Tensor)]
        largest = tf.reduce_max([tf.reduce_max(tf.abs(tf.cast(g, tf.float32))) for g in dense])
        noisy = [
            g + tf.cast(noise * largest * random.choice([-1.0, 1.0], g.shape), g.dtype)
            if isinstance(g, tf.Tensor)
            else g
            for g in gradients
        ]
        return apply(noisy, trainable_variables)

    optimizer.apply = apply_with_noise


def _fit(case: Case, model: keras.Model, data: Data) -> list:
    options: dict = {}
    if case.as_dataset:
        given: tuple = (data.dataset(),)
        if case.validation:
            options["validation_data"] = data.dataset()
    else:
        x, y, *weights = data.arrays()
        given, options = (x, y), {"batch_size": case.batch_size}
        if weights:
            options["sample_weight"] = weights[0]
        if case.validation:
            options["validation_data"] = data.arrays()
    if case.class_weights:
        options["class_weight"] = case.class_weights
    # Arrays are shuffled in stock Keras's order; accumulation of the reference has none.
    history = model.fit(
        *given, epochs=case.epochs, verbose=0, shuffle=case.is_plain, **options
    ).history
    return [
        {name: values[epoch] for name, values in history.items()} for epoch in range(case.epochs)
    ]


def _evaluate(case: Case, model: keras.Model, data: Data, replicas: int = 1) -> dict[str, Any]:
    """Metrics of all batches, or of those of the last of some replicas."""
    batches = data.batches()[replicas - 1 :: replicas]
    x, y, *weights = tf.nest.map_structure(lambda *parts: np.concatenate(parts), *batches)
    return model.evaluate(
        x,
        y,
        batch_size=case.batch_size,
        sample_weight=weights[0] if weights else None,
        verbose=0,
        return_dict=True,
    )


def run_stock(
    case: Case, noise: float = 0.0, gradient_noise: float = 0.0, jit_compile: bool = False
) -> Outcome:
    """What stock Keras, or accumulation with TensorFlow alone, leaves.

    Args:
        case: What is trained.
        noise: By how much of itself each input is changed.
        gradient_noise: How much of the largest number of all gradients is added to each.
        jit_compile: Whether XLA compiles its steps.
    """
    data, model = Data(case, noise), _make(case)
    _compile(
        case,
        model,
        gradient_noise,
        steps_per_execution=case.steps_per_execution if case.is_plain else 1,
        jit_compile=jit_compile,
    )
    if case.is_plain:
        logs = _fit(case, model, data)
    else:
        model.optimizer.build(model.trainable_variables)
        # Metrics make their variables when they are first used.
        state = model.get_weights()
        seeds = [np.array(variable) for variable in model.non_trainable_variables]
        model.evaluate(*data.arrays()[:2], batch_size=case.batch_size, verbose=0)
        model.set_weights(state)
        for variable, value in zip(model.non_trainable_variables, seeds, strict=True):
            variable.assign(value)
        training = ReferenceTraining(
            model, case.replicas, case.accumulation, case.reduction, jit_compile
        )
        logs = []
        for _ in range(case.epochs):
            logs.append(training.epoch(_with_class_weights(case, data.batches())))
            if case.validation:
                values = _evaluate(case, model, data, case.replicas)
                logs[-1] |= {f"val_{name}": value for name, value in values.items()}
        model.optimizer.finalize_variable_values(model.trainable_variables)
    return _outcome(case, model, data, logs, case.replicas)


def _with_class_weights(case: Case, batches: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Gives batches the weights of their samples' classes, as `fit` does."""
    if not case.class_weights:
        return batches
    table = np.float32([case.class_weights[k] for k in sorted(case.class_weights)])
    return [(x, y, table[y.astype("int32").ravel()]) for x, y in batches]


def _outcome(case: Case, model: keras.Model, data: Data, logs: list, replicas: int) -> Outcome:
    """Of a trained model. `evaluate` and `predict` cost a compilation each: it is one of them."""
    predicted, evaluated = np.zeros(0), {}
    if case.predicts:
        outputs = model.predict(data.arrays()[0], batch_size=case.batch_size, verbose=0)
        predicted = np.concatenate([each.ravel() for each in tf.nest.flatten(outputs)])
    elif not case.validation:
        evaluated = _evaluate(case, model, data, replicas)
    return Outcome(model.get_weights(), logs, evaluated, predicted)


def run_here(case: Case) -> Outcome:
    """What the emulated machine leaves."""
    data = Data(case)
    config = IPUConfig()
    pipeline_ipus = 1 << max(case.stages, default=0).bit_length()
    config.auto_select_ipus = case.replicas * pipeline_ipus
    config.configure_ipu_system()
    with IPUStrategy().scope():
        model = _make(case)
        if case.accumulation > 1 and not case.stages:
            model.set_gradient_accumulation_options(
                gradient_accumulation_steps_per_replica=case.accumulation,
                gradient_accumulation_reduction_method=case.reduction,
            )
        if case.stages:
            assignments = model.get_pipeline_stage_assignment()
            for assignment in assignments:
                place = case.model.places[assignment.layer.name]
                assignment.pipeline_stage = case.stages[place]
            model.set_pipeline_stage_assignment(assignments)
            model.set_pipelining_options(
                gradient_accumulation_steps_per_replica=case.accumulation,
                gradient_accumulation_reduction_method=case.reduction,
                accumulate_outfeed=case.accumulate_outfeed,
                pipeline_schedule=PipelineSchedule[case.schedule],
            )
        _compile(case, model, steps_per_execution=case.steps_per_execution)
        logs = _fit(case, model, data)
        return _outcome(case, model, data, logs, replicas=1)


def _attempt(run: Callable[[Case], Outcome], case: Case) -> Outcome | Exception:
    keras.backend.clear_session()
    SYSTEM.reset()
    # Shares Keras's warnings of unusual options; those of this package are tested elsewhere.
    with warnings.catch_warnings(), contextlib.suppress(KeyboardInterrupt):
        warnings.simplefilter("ignore")
        try:
            return run(case)
        except Exception as error:
            return error
    raise KeyboardInterrupt


def compare(case: Case) -> tuple[Verdict, str]:
    """Trains here and in stock Keras.

    Returns:
        The verdict, and what a person has to know of it.
    """
    ours, theirs = _attempt(run_here, case), _attempt(run_stock, case)
    if isinstance(ours, Exception):
        text = f"{type(ours).__name__}: {ours}"
        if isinstance(theirs, Exception):
            return Verdict.BOTH_REFUSE, f"{text}\nstock: {type(theirs).__name__}: {theirs}"
        documented = any(re.search(words, str(ours)) for words in DOCUMENTED_REFUSALS)
        return (Verdict.DOCUMENTED if documented else Verdict.REFUSED), text
    if isinstance(theirs, Exception):
        text = f"only stock Keras refuses: {type(theirs).__name__}: {theirs}"
        verdict = Verdict.NO_KERNEL if _lacks_kernel(theirs) else Verdict.DIFFERENT
        return verdict, text
    if not theirs.is_finite and not ours.is_finite:
        return Verdict.NOT_FINITE, ""
    distance = ours.distance(theirs)
    if distance <= (TOLERANCE if case.precision == "float32" else HALF_TOLERANCE):
        return Verdict.EQUAL, f"{distance:.1e}"
    text = f"{distance:.1e}; {ours.where(theirs)}"
    amplified = [
        _distance_of_attempt(case, theirs, lambda case, noise=noise: run_stock(case, noise))
        for noise in NUDGES[case.precision]
    ]
    if distance <= 4 * max(amplified):
        return Verdict.AMPLIFIED, text
    # XLA draws other numbers, and of what draws any it says nothing.
    compiled = 0.0
    if not case.model.noisy:
        compiled = _distance_of_attempt(
            case, theirs, lambda case: run_stock(case, jit_compile=True)
        )
    text = f"{text}\n    nudged {max(amplified):.1e}, by XLA {compiled:.1e}"
    if distance <= 4 * compiled:
        return Verdict.XLA, text
    noisy = max(
        _distance_of_attempt(
            case, theirs, lambda case, noise=noise: run_stock(case, gradient_noise=noise)
        )
        for noise in NUDGES[case.precision]
    )
    verdict = Verdict.GRADIENTS if distance <= 4 * noisy else Verdict.DIFFERENT
    return verdict, f"{text}, with noise in gradients {noisy:.1e}"


def _lacks_kernel(error: Exception) -> bool:
    """Whether XLA has the kernel that TensorFlow's executor asks for in vain."""
    _, found, kernels = str(error).partition("No OpKernel was registered to support Op")
    return bool(found) and "device='XLA_CPU_JIT'" in kernels


def _distance_of_attempt(case: Case, reference: Outcome, run: Callable[[Case], Outcome]) -> float:
    other = _attempt(run, case)
    if isinstance(other, Exception):
        # XLA refuses some; nothing else may differ from what has just worked.
        if "XLA" in str(other) or isinstance(other, tf.errors.OpError):
            return 0.0
        raise other
    return other.distance(reference)
