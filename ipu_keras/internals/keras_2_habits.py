"""Explains what scripts for Keras 2 do that Keras 3 refuses, and how to write it now.

IPU software came with Keras 2, so scripts for IPUs are full of it. Errors of Keras 3 say what
is wrong but seldom what has changed, so an explanation is added to those that pass through code
of this package. Nothing is hooked for it. A test provokes each of Keras's texts.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from ipu_keras.internals.keras.tracebacks import of_users
from ipu_keras.internals.raised_again import keep_notes

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class _Habit:
    """Something that Keras 2 took, known by the type and text of an error of Keras 3 or Python.

    Args:
        text: A regular expression for what the error says.
        owner: For a missing attribute: the prefix of the module of the class that lacks it.
    """

    error: type[Exception]
    text: str
    instead: str
    owner: str = ""

    def is_behind(self, error: BaseException, said: str) -> bool:
        """Whether this habit has caused an error, which says `said`."""
        if not isinstance(error, self.error) or not re.search(self.text, said):
            return False
        # AutoGraph raises an error again by its text alone, so the copy has no `obj`.
        owner = getattr(error, "obj", None)
        return owner is None or any(
            kind.__module__.startswith(self.owner) for kind in type(owner).__mro__
        )


_UNEXPECTED = "got an unexpected keyword argument"
_LEARNING_RATE = "It is `learning_rate` that optimizers have: write that for `lr`."
_LOADING = "(workers|use_multiprocessing|max_queue_size)"
_LOADED = (
    "How data is loaded is up to the data: pass this to `keras.utils.PyDataset`, or use a "
    "`tf.data.Dataset`."
)
_LABELS = (
    "Keras 2 made labels of shape `(batch,)` into `(batch, 1)`, Keras 3 takes them as they are. "
    "Give them the shape of the outputs, for instance with `labels[:, None]`, or "
    "`dataset.map(lambda x, y: (x, y[:, None]))`. If they are indices of classes, the loss is "
    "'sparse_categorical_crossentropy'."
)

_HABITS = (
    _Habit(
        TypeError,
        r"\b(Layer|Callback)\.__init__\(\) takes 1 positional argument but \d+ were given",
        "Layers, models and callbacks take named arguments only: write `super().__init__()` for "
        "`super().__init__(self)`, and `super().__init__(name=name)` to give a name.",
    ),
    _Habit(
        ValueError,
        r"Expected `trainable` to be a boolean.*\(of type <class 'str'>\)",
        "Names are given by name: write `keras.Sequential(layers, name=...)`.",
    ),
    _Habit(
        ValueError,
        r"Cannot convert '\d+' to a shape\.$",
        "A shape is a tuple: `(80)` is the number 80, which Keras 2 took for `(80,)`. Write the "
        "comma, as in `shape=(80,)`.",
    ),
    _Habit(
        ValueError,
        r"Arguments `target` and `output` must have the same \w+.*target\.shape=\((\d+|None),\)",
        _LABELS,
    ),
    _Habit(ValueError, r"compile_loss/.* with input shapes: \[[\d?]+\], \[[\d?]+,", _LABELS),
    _Habit(
        ValueError,
        r"expected min_ndim=2, found ndim=1",
        "Keras 2 made data of shape `(batch,)` into `(batch, 1)`, Keras 3 takes it as it is. Give "
        "it the second axis, for instance with `x[:, None]`.",
    ),
    _Habit(
        ValueError,
        r"Unrecognized keyword arguments passed to \w+: .*'batch_input_shape'",
        "Layers do not take the shape of their inputs: begin the model with "
        "`keras.Input(batch_shape=...)`.",
    ),
    _Habit(
        ValueError,
        r"Unrecognized keyword arguments passed to \w+: .*'time_major'",
        "Recurrent layers have the batch first: transpose the inputs with "
        "`keras.ops.swapaxes(inputs, 0, 1)`, or use `PopnnLSTM` and `PopnnGRU` of "
        "`ipu.keras.layers`, which take `time_major`.",
    ),
    _Habit(
        ValueError,
        r"Unrecognized keyword arguments passed to BatchNormalization: .*'fused'",
        "There is one implementation: leave `fused` out.",
    ),
    _Habit(
        TypeError,
        r"\.add_(variable|weight)\(\) got multiple values for argument 'shape'",
        "The shape comes first: write `add_weight(shape=..., name=...)`.",
    ),
    _Habit(
        ValueError,
        r"`name` must be passed as a keyword argument. Received: add_weight\(",
        "The shape comes first: write `add_weight(shape=..., name=...)`.",
    ),
    _Habit(
        NotImplementedError,
        r"^Layer `add_metric\(\)` method is deprecated",
        "Make a metric an attribute, such as `self.mean = keras.metrics.Mean()`, and call its "
        "`update_state`.",
    ),
    _Habit(
        ValueError,
        r"^Invalid filepath extension for saving\.",
        "A model is saved to one file: write `model.save('name.keras')`.",
    ),
    _Habit(
        ValueError,
        r"[Tt]he (filename must|filepath provided must) end in",
        "Names of files say what is in them: `name.keras` for a model, `name.weights.h5` for "
        "weights alone.",
    ),
    _Habit(
        ImportError,
        r"`keras\.optimizers\.legacy` is not supported in Keras 3",
        "The optimizers are in `keras.optimizers`.",
    ),
    _Habit(ValueError, r"Argument\(s\) not recognized: .*'lr'", _LEARNING_RATE),
    _Habit(AttributeError, r"has no attribute 'lr'$", _LEARNING_RATE, "keras.src.optimizers"),
    _Habit(
        AttributeError,
        r"has no attribute '(minimize|get_gradients|_?compute_gradients)'",
        "Optimizers do not compute gradients: take them with a `tf.GradientTape`, and call "
        "`optimizer.apply_gradients(zip(gradients, variables))`.",
        "keras.src.optimizers",
    ),
    _Habit(
        ValueError,
        r"`learning_rate` should be float.* learning_rate=[A-Za-z]\w*$",
        "The learning rate comes first: write `super().__init__(learning_rate=..., name=...)` for "
        "`super().__init__(name)`.",
    ),
    _Habit(
        ValueError,
        r"Could not interpret optimizer identifier: <tensorflow\.python\.training\.",
        "Models take the optimizers of `keras.optimizers` only. Those of `tf.compat.v1.train` are "
        "for graphs and functions of your own.",
    ),
    _Habit(
        AttributeError,
        r"has no attribute '(fit|evaluate|predict)_generator'",
        "Call `fit`, `evaluate` or `predict` itself, with a `keras.utils.PyDataset` or a "
        "`tf.data.Dataset`: an IPU has to know the shapes and the number of batches.",
        "keras.src.models",
    ),
    _Habit(
        AttributeError,
        r"has no attribute 'predict_(classes|proba)'",
        "Call `predict`, and `numpy.argmax(outputs, axis=-1)` for the classes.",
        "keras.src.models",
    ),
    _Habit(
        AttributeError,
        r"has no attribute 'reset_states'",
        "Layers have states, models have not: call `reset_state()` of each stateful layer.",
        "keras.src.models",
    ),
    _Habit(
        TypeError,
        rf"^(\w+\.\w+\(\) )?{_UNEXPECTED} '{_LOADING}'$",
        _LOADED,
    ),
    # `evaluate` takes `**kwargs`, and words its refusal itself.
    _Habit(ValueError, rf"^Arguments not recognized: .*'{_LOADING}'", _LOADED),
    _Habit(
        TypeError,
        rf"^(\w+\.compile\(\) )?{_UNEXPECTED} 'experimental_steps_per_execution'$",
        "Write `steps_per_execution`.",
    ),
    _Habit(
        TypeError,
        rf"^(\w+\.compile\(\) )?{_UNEXPECTED} '(sample_weight_mode|target_tensors)'$",
        "Leave it out: the shapes of weights and labels say it.",
    ),
    _Habit(
        TypeError,
        rf"^ModelCheckpoint\.__init__\(\) {_UNEXPECTED} 'period'$",
        "Write `save_freq`: `'epoch'`, or a number of batches.",
    ),
    _Habit(
        AttributeError,
        r"has no attribute 'get_shape'$",
        "Write `x.shape` for `x.get_shape()`.",
        "keras.src.backend",
    ),
    _Habit(
        AttributeError,
        r"^module '(?:tensorflow\.)?keras[\w.]*\.backend' has no attribute",
        "The operations of `keras.backend` are in `keras.ops`, under the names of NumPy.",
    ),
    _Habit(
        AttributeError,
        r"^module '(?:tensorflow\.)?keras[\w.]*\.layers' has no attribute 'experimental'",
        "The layers of `keras.layers.experimental` are in `keras.layers`.",
    ),
    _Habit(
        AttributeError,
        r"^module '(?:tensorflow\.)?keras[\w.]*\.optimizers' has no attribute 'experimental'",
        "The optimizers of `keras.optimizers.experimental` are in `keras.optimizers`.",
    ),
    _Habit(
        AttributeError,
        r"^module '(?:tensorflow\.)?keras[\w.]*\.mixed_precision' has no attribute 'experimental'",
        "Write `keras.config.set_dtype_policy('mixed_float16')`.",
    ),
)


_BEGINNING = "This is written for Keras 2. In Keras 3:"


def explain(error: BaseException) -> None:
    """Adds a note to an error of Keras 3 if Keras 2 took what has caused it; at most once.

    The error's type and text stay as they are, as users match them; Python prints notes below.
    Notes of an error that it stands for are kept.

    Example:

    >>> error = ValueError("Cannot convert '80' to a shape.")
    >>> explain(error)
    >>> print(error.__notes__[0][:66])
    This is written for Keras 2. In Keras 3: A shape is a tuple: `(80)
    """
    keep_notes(error)
    if any(note.startswith(_BEGINNING) for note in getattr(error, "__notes__", ())):
        return
    instead = advice(error)
    if instead:
        error.add_note(f"{_BEGINNING} {instead}")


def advice(error: BaseException) -> str:
    """Says what to write instead; empty if the error has another cause."""
    said = str(error)
    return next((habit.instead for habit in _HABITS if habit.is_behind(error, said)), "")


def explained(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Wraps a method that users call and that calls Keras, so that `explain` sees its errors.

    They are raised again with the lines of users, as Keras's own methods do.
    """

    @functools.wraps(function)
    def explaining(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            explain(error)
            # `raise` alone would show all lines, and `from` another cause than the error has.
            raise error.with_traceback(of_users(error.__traceback__))  # noqa: B904

    return explaining
