"""Keeps a model's options when it is saved or cloned.

Documented as kept: the count and the reduction of accumulated gradients, the device mapping,
whether metrics are accumulated, asynchronous callbacks, the options of feeds, and pipeline
stages. Not kept: what is forwarded to the pipeline and to the accumulation optimizer, part of
which no file can hold.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from ipu_keras.hooks.keras.construction import tell_of_clones
from ipu_keras.keras.extensions.accumulation_options import accumulation_options
from ipu_keras.keras.extensions.option_checks import ExtensionOptions
from ipu_keras.keras.extensions.pipelining_options import pipelining_options

_FILE = "ipu_options.json"
_VERSION = 1

_OF_MODEL = ("asynchronous_callbacks", "prefetch_depth", "infeed_name")
_OF_ACCUMULATION = ("steps_per_replica", "reduction")
_OF_PIPELINING = ("steps_per_replica", "reduction", "device_mapping", "accumulate_outfeed")


class SavedOptions:
    """Saves the options of a model in its `.keras` file, and loads them from there.

    They are an asset of the model: a file in the archive, which Keras hands only to a class that
    asks for it, so that stock Keras loads the model without. The config has no place for them:
    what Keras does not know there is an argument of the model's class, or of `compile`, and the
    config of `build` is not read for models that are built when they are made, as Functional
    ones are.
    """

    _ipu: Any  # the extension defines it

    def save_assets(self, path: str) -> None:
        """Writes the options to a folder, if any was set.

        Keras calls this; a model with its own version has to call it.
        """
        options = _kept_options(self)
        if options != ExtensionOptions():
            Path(path, _FILE).write_text(json.dumps(_to_json(options)))

    def load_assets(self, path: str | None) -> None:
        """Reads the options from a folder, if the file has any; `path` is `None` if there is
        none.

        Keras calls this; a model with its own version has to call it.
        """
        if path is not None and (file := Path(path, _FILE)).exists():
            self._ipu.options = _from_json(json.loads(file.read_text()))
            self._ipu.drop_functions()


def attach_cloning() -> None:
    """Makes `keras.models.clone_model` keep what a saved model keeps."""
    tell_of_clones(_keep_options)


def _keep_options(model: Any, clone: Any) -> None:
    if isinstance(model, SavedOptions) and isinstance(clone, SavedOptions):
        clone._ipu.options = _kept_options(model)


def _kept_options(model: SavedOptions) -> ExtensionOptions:
    """Returns the options that are kept; stages of scopes become set ones."""
    return _from_json(_to_json(options_of(model)))


def options_of(model: SavedOptions) -> ExtensionOptions:
    """Returns a model's options; stages of scopes become set ones."""
    return dataclasses.replace(model._ipu.options, **_set_stages(model))


def _set_stages(model: SavedOptions) -> dict[str, Any]:
    """Returns stages of scopes as set ones: a loaded model's calls were not made in scopes."""
    if model._ipu.options.stages is not None:
        return {}
    staged = model._ipu.stages.staged_calls()
    if staged is None:
        return {}
    return {
        "stages": tuple(call.stage for call in staged.calls if call.is_layer),
        "operation_stages": tuple(call.stage for call in staged.calls if not call.is_layer),
    }


def _to_json(options: ExtensionOptions) -> dict[str, Any]:
    return {
        "version": _VERSION,
        **{name: getattr(options, name) for name in _OF_MODEL},
        "accumulation": _fields(options.accumulation, _OF_ACCUMULATION),
        "pipelining": _fields(options.pipelining, _OF_PIPELINING),
        "stages": options.stages,
        "operation_stages": options.operation_stages,
    }


def _fields(options: Any, names: tuple[str, ...]) -> dict[str, Any]:
    fields = {name: getattr(options, name) for name in names}
    return {**fields, "reduction": options.reduction.name}


def _from_json(saved: dict[str, Any]) -> ExtensionOptions:
    if saved["version"] != _VERSION:
        raise ValueError(
            f"The model was saved with IPU options of version {saved['version']}, but this "
            f"version of ipu-keras reads {_VERSION}. Load it with the version that saved it."
        )
    stages = saved["stages"]
    mapping = saved["pipelining"]["device_mapping"]
    return ExtensionOptions(
        **{name: saved[name] for name in _OF_MODEL},
        accumulation=accumulation_options(
            saved["accumulation"]["steps_per_replica"], saved["accumulation"]["reduction"], {}
        ),
        pipelining=pipelining_options(
            saved["pipelining"]["steps_per_replica"],
            None if mapping is None else list(mapping),
            saved["pipelining"]["accumulate_outfeed"],
            saved["pipelining"]["reduction"],
            {},
        ),
        stages=None if stages is None else tuple(stages),
        operation_stages=tuple(saved["operation_stages"]),
    )
