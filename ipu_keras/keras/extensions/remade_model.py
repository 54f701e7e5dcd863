"""Makes a model again with layers of another dtype, as its script would with another policy."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import keras

from ipu_keras.internals.keras.backend import counts_of_names
from ipu_keras.internals.keras.models import layers_in
from ipu_keras.keras.extensions.saved_options import SavedOptions, options_of


def remade(model: keras.Model, dtype: str) -> keras.Model | None:
    """Returns a model like this, compiled like this, under Keras's policy for a dtype.

    What has a policy of its own, other than Keras's default, keeps it. Names, and the seeds that
    later layers draw, are as if no model had been made. Returns `None` for models that cannot be
    made from their configuration.
    """
    before = keras.config.dtype_policy().name
    try:
        config = _with_policy(model.get_config(), before, dtype)
        with _leaving_no_trace(), _under_policy(dtype), model.distribute_strategy.scope():
            return _remade(model, config)
    # Users' classes make whatever errors they do of a configuration that is not whole.
    except Exception:
        return None


def _remade(model: Any, config: dict[str, Any]) -> Any:
    with keras.saving.custom_object_scope(_classes_of(model)):
        found = type(model).from_config(config)
        if model.compiled:
            found.compile_from_config(model.get_compile_config())
    if isinstance(model, SavedOptions):
        found._ipu.options = options_of(model)
    return found


def _with_policy(config: Any, before: str, dtype: str) -> Any:
    """Returns a configuration in which layers of one policy have that of a dtype."""
    if isinstance(config, list | tuple):
        return type(config)(_with_policy(each, before, dtype) for each in config)
    if not isinstance(config, dict):
        return config
    if config.get("class_name") == "DTypePolicy" and config["config"].get("name") == before:
        return {**config, "config": {"name": dtype}}
    return {name: _with_policy(each, before, dtype) for name, each in config.items()}


def _classes_of(model: Any) -> dict[str, Any]:
    """Returns what Keras does not know by name: users' layers, losses and metrics."""
    losses = keras.tree.flatten(getattr(model, "loss", None))
    parts = [*layers_in(model), *model.metrics, *losses]
    named = [part if hasattr(part, "__name__") else type(part) for part in parts]
    return {each.__name__: each for each in named if not each.__module__.startswith("keras.")}


@contextlib.contextmanager
def _under_policy(dtype: str) -> Iterator[None]:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


@contextlib.contextmanager
def _leaving_no_trace() -> Iterator[None]:
    """Has later layers get the names and draw the seeds that they would have had."""
    # Keras draws the seeds of initializers by Python's generator.
    state, counts = random.getstate(), counts_of_names()
    before = dict(counts)
    try:
        yield
    finally:
        random.setstate(state)
        counts.clear()
        counts.update(before)
