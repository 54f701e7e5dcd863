"""Finds calls of libraries that are refused for their arguments, with the errors that they raise.

Rules give the errors in Keras's own words, as `keras_2_habits` tells advice by these.
"""

import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import keras
import tensorflow as tf

from ipu_keras import utils
from ipu_keras.config import IPUConfig
from ipu_keras.internals.keras_2_habits import advice
from ipu_keras.settings.config_setters import SETTERS
from ipu_keras_tools.checks.known_values import Instance, Known, is_a, is_symbolic

# Advice for functions of TensorFlow between layers.
BETWEEN_LAYERS = (
    "Between layers, write a function of `keras.ops`, or have a layer call TensorFlow's: "
    "`keras.layers.Lambda(function)(x)`, or the `call` of a layer of your own."
)

# Methods of datasets that make another dataset.
_MAKING_DATASETS = frozenset(
    (
        *("from_generator", "from_tensor_slices", "from_tensors", "list_files", "range", "zip"),
        *("batch", "cache", "filter", "interleave", "map", "prefetch", "repeat", "shuffle", "skip"),
        "take",
    )
)

# Endings of files that Keras 3 writes.
_MODEL_FILES = (".keras", ".h5", ".hdf5")
_WEIGHT_FILES = (".weights.h5",)
_OF_WEIGHTS = "Weights are in files that end in `.weights.h5`, and of models in `.keras` or `.h5`."
_OF_MODELS = (
    "Keras 3 loads files that end in `.keras` or `.h5`; of a SavedModel, "
    "`keras.layers.TFSMLayer` makes a layer."
)


@dataclass(frozen=True)
class Call:
    """A call, with what is known of its arguments.

    Args:
        function: The class that is called, or the function as its class has it.
        owner: The instance whose method it is, if it is one.
        positional: Positional arguments in order, without `self`; those after a starred one are
            left out.
        is_complete: Whether these are all arguments, with no starred ones.
    """

    function: Callable[..., Any]
    owner: Any
    positional: tuple[Any, ...]
    named: Mapping[str, Any]
    is_complete: bool

    def argument(self, name: str, place: int) -> Any:
        """Returns what is known of an argument that may be given by name or place, or `None`."""
        given = self.positional[place] if place < len(self.positional) else None
        return self.named.get(name, given)


def refusals(call: Call) -> Iterator[Exception]:
    """Yields the errors that a call will raise, as far as its arguments tell."""
    for rule in _RULES:
        yield from rule(call)


def refusals_of_base(base: type, call: Call) -> Iterator[Exception]:
    """Yields the errors of `super().__init__(...)` in a class of the script."""
    yield from unknown_names(Call(base, None, (), call.named, call.is_complete))
    if not call.positional:
        return
    count = len(call.positional) + 1
    first = call.positional[0]
    is_name = isinstance(first, Known) and isinstance(first.value, str)
    is_self = isinstance(first, Instance)
    if issubclass(base, keras.optimizers.Optimizer):
        if is_name:
            yield ValueError(
                "Argument `learning_rate` should be float, or an instance of LearningRateSchedule, "
                "or a callable (that takes in the current iteration value and returns the "
                f"corresponding learning rate value). Received instead: learning_rate={first.value}"
            )
    elif base is keras.callbacks.Callback:
        yield TypeError(f"Callback.__init__() takes 1 positional argument but {count} were given")
    elif issubclass(base, keras.layers.Layer) and _takes_names_only(base, is_self or is_name):
        yield TypeError(f"Layer.__init__() takes 1 positional argument but {count} were given")


def _takes_names_only(base: type, is_self_or_name: bool) -> bool:
    """Whether the first argument of a layer's class is refused."""
    if base is keras.layers.Layer:
        return True
    # Models take inputs and outputs.
    return issubclass(base, keras.Model) and is_self_or_name


def unknown_names(call: Call) -> Iterator[Exception]:
    """Yields errors for arguments by names that a function or class does not have."""
    function = call.function
    if isinstance(function, type):
        names = _names_of_class(function)
    else:
        names = _names_of_function(function, call)
    unknown = [name for name in call.named if names is not None and name not in names]
    if not unknown:
        return
    given = {name: getattr(call.named[name], "value", ...) for name in unknown}
    if isinstance(function, type) and issubclass(function, keras.layers.Layer):
        said = f"Unrecognized keyword arguments passed to {function.__name__}: {given}"
        # Layers for IPUs take some of Keras's arguments without naming them, so they are refused
        # only what Keras 2 is known to have taken.
        if function.__module__.startswith("keras.") or advice(ValueError(said)):
            yield ValueError(said)
    elif isinstance(function, type) and issubclass(function, keras.optimizers.Optimizer):
        yield ValueError(f"Argument(s) not recognized: {given}")
    elif getattr(function, "__name__", "") == "evaluate":
        yield ValueError(f"Arguments not recognized: {given}")
    else:
        name = getattr(function, "__qualname__", "function")
        said = f"{name}.__init__() " if isinstance(function, type) else f"{name}() "
        # Models that are made in a strategy's scope say it without the name of Keras's class.
        prefix = "" if is_a(call.owner, keras.Model) else said
        yield TypeError(f"{prefix}got an unexpected keyword argument {unknown[0]!r}")


def _names_of_function(function: Callable[..., Any], call: Call) -> set[str] | None:
    """Returns names of a function's parameters; `None` if it takes any, or nobody knows."""
    if not isinstance(function, FunctionType):
        return None
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    is_evaluate = is_a(call.owner, keras.Model) and function.__name__ == "evaluate"
    if takes_any and not (is_evaluate and function.__module__.startswith("keras.")):
        return None
    return {one.name for one in parameters}


def _names_of_class(kind: type) -> set[str] | None:
    """Returns names that a class takes when it is made; `None` if it takes any, or nobody knows."""
    if "__new__" in vars(kind) and not issubclass(kind, keras.layers.Layer):
        return None
    found: set[str] = set()
    if issubclass(kind, keras.Model):
        if not kind.__module__.startswith("keras."):
            return None  # the older classes of IPUs, which have options of their own
        found |= {"inputs", "outputs", "name", "trainable"}
    for base in kind.__mro__:
        made = vars(base).get("__init__")
        if made is None:
            continue
        if not isinstance(made, FunctionType):
            return None
        parameters = inspect.signature(made).parameters.values()
        # Layers take some arguments out of `**kwargs` by their names, such as `alpha` of
        # `LeakyReLU`: these are texts in their code.
        found |= {one.name for one in parameters} | texts_in(made)
        if base is keras.layers.Layer or base.__module__.endswith("base_optimizer"):
            return found
        if not any(one.kind is one.VAR_KEYWORD for one in parameters):
            return found
        # Other classes may keep what they have not named, as lists of callbacks do.
        if not issubclass(kind, keras.layers.Layer | keras.optimizers.Optimizer):
            return None
    return None


def texts_in(function: FunctionType) -> set[str]:
    """Returns the constant texts in a function's code, as far as they are whole values."""
    return {one for one in function.__code__.co_consts if isinstance(one, str)}


def dataset_made(call: Call) -> Any:
    """Returns what is known of the `tf.data.Dataset` that a call makes; `None` if it makes none.

    Datasets of TensorFlow 1 make datasets of TensorFlow 1.
    """
    if _name(call) not in _MAKING_DATASETS:
        return None
    if isinstance(call.owner, Known) and _is_class(call.owner.value, tf.data.Dataset):
        return Instance(call.owner.value, is_exact=True)
    return call.owner if is_a(call.owner, tf.data.Dataset) else None


def needs_values(call: Call) -> bool:
    """Whether a function of TensorFlow is given a tensor of Keras without a value."""
    module = getattr(call.function, "__module__", None) or ""
    is_of_tensorflow = module.startswith(("tensorflow.", "ipu_keras.ops"))
    takes_structures = module.startswith("tensorflow.python.util.nest")
    if isinstance(call.function, type) or takes_structures or not is_of_tensorflow:
        return False
    return any(map(is_symbolic, (*call.positional, *call.named.values())))


def _tensors_without_values(call: Call) -> Iterator[Exception]:
    """Refuses functions of TensorFlow in the middle of a functional model."""
    if needs_values(call):
        yield ValueError(
            "A KerasTensor cannot be used as input to a TensorFlow function. A KerasTensor is a "
            "symbolic placeholder for a shape and dtype, used when constructing Keras Functional "
            "models or Keras Functions."
        )


def _shapes(call: Call) -> Iterator[Exception]:
    """Refuses `shape=(80)`, which is a number."""
    if call.function not in (keras.Input, keras.layers.InputLayer):
        return
    shape = call.argument("shape", 0)
    if isinstance(shape, Known) and type(shape.value) is int:
        yield ValueError(f"Cannot convert '{shape.value}' to a shape.")


def _optimizers(call: Call) -> Iterator[Exception]:
    """Refuses optimizers that `compile` does not take, or that cannot be made any more."""
    if getattr(call.function, "__name__", "") == "LegacyOptimizerWarning":
        yield ImportError("`keras.optimizers.legacy` is not supported in Keras 3.")
    if not (is_a(call.owner, keras.Model) and _name(call) == "compile"):
        return
    given = call.argument("optimizer", 0)
    kind = given.library_kind if isinstance(given, Instance) else None
    if kind is not None and kind.__module__.startswith("tensorflow.python.training."):
        yield ValueError(
            "Could not interpret optimizer identifier: "
            f"<{kind.__module__}.{kind.__name__} object at 0x0>"
        )


def _of_layers(call: Call) -> Iterator[Exception]:
    """Refuses `add_weight` and `add_variable` with the name first, and `add_metric`."""
    name = _name(call)
    if not is_a(call.owner, keras.layers.Layer):
        return
    if name == "add_metric":
        yield NotImplementedError("Layer `add_metric()` method is deprecated.")
        return
    first = call.positional[0] if call.positional else None
    if not (isinstance(first, Known) and isinstance(first.value, str)):
        return
    if name == "add_weight":
        yield ValueError(
            "`name` must be passed as a keyword argument. Received: "
            f"add_weight({first.value!r}, ...)."
        )
    if name == "add_variable" and "shape" in call.named:
        yield TypeError("Layer.add_variable() got multiple values for argument 'shape'")
    elif name == "add_variable":
        yield ValueError(f"Cannot convert {first.value!r} to a shape.")


def _names_of_models(call: Call) -> Iterator[Exception]:
    """Refuses `Sequential(layers, name)`: the second argument is `trainable` in Keras 3."""
    if call.function is keras.Sequential:
        second = call.positional[1] if len(call.positional) > 1 else None
        if isinstance(second, Known) and isinstance(second.value, str):
            yield ValueError(
                f"Expected `trainable` to be a boolean. Received: trainable={second.value} (of "
                "type <class 'str'>)"
            )


def _files(call: Call) -> Iterator[Exception]:
    """Refuses endings of files that models and weights are saved to."""
    path = call.argument("filepath", 0)
    text = path.value if isinstance(path, Known) else None
    if not isinstance(text, str):
        return
    if is_a(call.owner, keras.Model) and _name(call) == "save" and not text.endswith(_MODEL_FILES):
        yield ValueError(
            "Invalid filepath extension for saving. Please add either a `.keras` extension for the "
            "native Keras format (recommended) or a `.h5` extension. Use `model.export(filepath)` "
            "if you want to export a SavedModel for use with TFLite/TFServing/etc. "
            f"Received: filepath={text}."
        )
    saves_weights = is_a(call.owner, keras.Model) and _name(call) == "save_weights"
    if saves_weights and not text.endswith(_WEIGHT_FILES):
        yield ValueError(f"The filename must end in `.weights.h5`. Received: filepath={text}")
    if call.function is keras.callbacks.ModelCheckpoint:
        only = call.argument("save_weights_only", 4)
        weights = isinstance(only, Known) and only.value is True
        endings = _WEIGHT_FILES if weights else (".keras", ".h5")
        if not text.endswith(endings):
            kind = "weights" if weights else "model"
            yield ValueError(
                f"{'the' if weights else 'The'} filepath provided must end in `{endings[0]}` "
                f"(Keras {kind} format). Received: filepath={text}"
            )


def _files_to_load(call: Call) -> Iterator[Exception]:
    """Refuses endings of files that models and weights are loaded from."""
    is_of_model = is_a(call.owner, keras.Model) and _name(call) == "load_weights"
    path = call.argument("filepath", 0)
    text = path.value if isinstance(path, Known) else None
    # A folder may be a model of Keras 3 as well, and other places have their own forms.
    if not isinstance(text, str) or text.endswith(_MODEL_FILES) or "://" in text:
        return
    if is_of_model:
        yield ValueError(f"File format not supported: filepath={text}. {_OF_WEIGHTS}")
    elif call.function is keras.models.load_model and not os.path.isdir(text):
        yield ValueError(f"File format not supported: filepath={text}. {_OF_MODELS}")


def _reductions(call: Call) -> Iterator[Exception]:
    """Refuses what losses cannot do with the values of samples."""
    given = call.named.get("reduction")
    if not _is_class(call.function, keras.losses.Loss) or not isinstance(given, Known):
        return
    try:
        # Keras is asked, which is quick for a loss; a list of reductions would have to follow
        # its versions.
        keras.losses.Loss(reduction=given.value)
    except ValueError as error:
        yield error


def _settings(call: Call) -> Iterator[Exception]:
    """Refuses constants that older functions which make or change an `IPUConfig` do not take."""
    function = call.function
    found = [each for each in SETTERS if function is getattr(utils, each.name)]
    if not found or not call.is_complete:
        return
    positional, named = list(call.positional), dict(call.named)
    if not found[0].creates:
        if positional:
            del positional[0]
        # The function is called on a new configuration in place of the script's, which is not
        # known.
        named["opts"] = Known(IPUConfig())
        names = list(inspect.signature(function).parameters)[1:]
        named.update(zip(names, positional, strict=False))
        positional = []
    if not all(isinstance(one, Known) for one in (*positional, *named.values())):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            inspect.unwrap(function)(
                *(one.value for one in positional),
                **{name: one.value for name, one in named.items()},
            )
    except (TypeError, ValueError) as error:
        yield error


def _is_class(found: Any, kind: type) -> bool:
    return isinstance(found, type) and issubclass(found, kind)


def _name(call: Call) -> str:
    return getattr(call.function, "__name__", "")


_RULES = (
    unknown_names,
    _tensors_without_values,
    _shapes,
    _optimizers,
    _of_layers,
    _names_of_models,
    _files,
    _files_to_load,
    _reductions,
    _settings,
)
