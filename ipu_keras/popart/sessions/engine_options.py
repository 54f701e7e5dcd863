"""Checks the options of Poplar that a session passes to its engine and to convolutions."""

from collections.abc import Mapping

from ipu_keras.popart.exceptions import poplar_exception
from ipu_keras.settings.engine_options import EngineOptions, idle_engine_options
from ipu_keras.settings.option_warnings import OPTION_WARNINGS

# Only groups of Poplar's options are known here: a misspelt group is refused, and any option of
# a group is taken.
_GROUPS = (
    *("autoReport", "debug", "exchange", "opt", "prng", "profiler", "streamCallbacks", "target"),
)

# The options of convolutions that the cost model reads.
_OF_CONVOLUTIONS = frozenset({"availableMemoryProportion", "partialsType"})


def check_engine_options(options: Mapping[str, str]) -> None:
    """Refuses options that no engine has with a `poplar_exception`, and warns of idle ones."""
    for name in options:
        group, _, rest = name.partition(".")
        if group not in _GROUPS or not rest:
            raise poplar_exception(
                f"Unrecognised option '{name}'. Received: SessionOptions.engineOptions="
                f"{dict(options)!r}. Names begin with one of {', '.join(_GROUPS)} and a full stop."
            )
    try:
        EngineOptions.of(options)
    except ValueError as error:
        text = str(error).replace("POPLAR_ENGINE_OPTIONS", "SessionOptions.engineOptions")
        raise poplar_exception(text) from error
    OPTION_WARNINGS.warn(
        "SessionOptions.engineOptions",
        idle_engine_options(options),
        lambda names: (
            f"SessionOptions.engineOptions sets {names}, which the emulator has no use for."
        ),
        stacklevel=2,
    )


def warn_of_convolution_options(options: Mapping[str, str]) -> None:
    OPTION_WARNINGS.warn(
        "SessionOptions.convolutionOptions",
        sorted(options.keys() - _OF_CONVOLUTIONS),
        lambda names: (
            f"SessionOptions.convolutionOptions sets {names}, which the cost model has no use for. "
            f"It reads {' and '.join(sorted(_OF_CONVOLUTIONS))}."
        ),
        stacklevel=2,
    )
