"""Variables that programs have in place of the host's, with `--use_synthetic_data`."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from ipu_keras.host.replicas.replica_variables import is_random_state
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.settings.enumerations import SyntheticDataCategory
from ipu_keras.settings.flags import current_flags
from ipu_keras.settings.synthetic_data import synthetic_array


class SyntheticParameters:
    """The values that the variables of a program have on the device, and the host never sees.

    A device keeps its variables from execution to execution. Here they are put into the host's
    variables while the program runs, and the host's values back afterwards. States of random
    generators are seeds, which are another category of synthetic data.

    Args:
        variables: All that the program reads or writes, in which some may be repeated.
    """

    def __init__(self, variables: Iterable[Any]):
        distinct = {id(each): each for each in variables if _is_parameter(each)}
        self._variables = tuple(distinct.values())
        flags = current_flags()
        self._values: list[Any] = [
            synthetic_array(flags, static_sizes(variable), variable.dtype.name, number)
            for number, variable in enumerate(self._variables)
        ]

    @classmethod
    def if_asked_for(cls, variables: Iterable[Any]) -> "SyntheticParameters | None":
        """Returns those of a program; `None` if `TF_POPLAR_FLAGS` does not ask for them."""
        asks = current_flags().asks_for_synthetic(SyntheticDataCategory.Parameters)
        return cls(variables) if asks else None

    @contextlib.contextmanager
    def on_device(self) -> Iterator[None]:
        """While this is open, variables hold what the device has."""
        before = [variable.read_value() for variable in self._variables]
        for variable, value in zip(self._variables, self._values, strict=True):
            variable.assign(value)
        try:
            yield
            self._values = [variable.read_value() for variable in self._variables]
        finally:
            for variable, value in zip(self._variables, before, strict=True):
                variable.assign(value)


def _is_parameter(variable: Any) -> bool:
    dtype = variable.dtype
    is_number = dtype.is_floating or dtype.is_integer or dtype.is_bool
    return is_number and variable.shape.is_fully_defined() and not is_random_state(variable)
