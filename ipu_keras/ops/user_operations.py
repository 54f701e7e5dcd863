"""Operations that users write in C++, called in a shared library on the host.

The functions of a library have no mangled names (`extern "C"`) and these parameters:

    void Callback(const std::vector<const void*>& data,
                  const std::vector<std::uint32_t>& number_of_elements,
                  const std::vector<void*>& outputs,
                  const std::string& attributes,
                  const std::string& name);

`data` has a pointer for each input, `number_of_elements` their sizes in elements, `outputs` a
pointer for each output, whose memory is zero. The types behind them are those of the tensors.
Parameters by value are called in the same way.

The gradient of `Callback` is a function of its kind called `Callback_grad`. Its inputs are the
gradients of all outputs, then these outputs, then the inputs; it writes the gradients of the
inputs. If gradients are separate, `Callback_grad_0` writes that of input 0, and so on.

A library may have `std::int32_t custom_op_api_level`: the level of the interface that it was
written for.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras._user_operations import call
from ipu_keras.tracing.poplar_operation import differentiable, poplar_operation

# At these levels, functions on the host have the parameters above.
API_LEVELS = (4, 5)

_API_LEVEL = "custom_op_api_level"
_GRADIENT = "_grad"


class UserLibrary:
    """A shared library with user operations, loaded from `path` and checked for its API level."""

    def __init__(self, path: str | os.PathLike):
        self.path = file_path("library_path", path)
        if not os.path.isfile(self.path):
            raise ValueError(
                "`library_path` must be the path of a shared library: compile it, for instance "
                f"with `g++ -shared -fPIC`. Received: library_path={self.path!r}, which is no file"
            )
        try:
            # A name without a slash would be searched for in the system's directories.
            self._handle = ctypes.CDLL(os.path.abspath(self.path))
        except OSError as error:
            raise ValueError(
                "`library_path` must be a shared library for this machine, with all that it "
                f"needs: compile it again here. Received: library_path={self.path!r}; {error}"
            ) from error
        self._check_level()

    def _check_level(self) -> None:
        try:
            level = ctypes.c_int32.in_dll(self._handle, _API_LEVEL).value
        except ValueError:
            return  # the library does not say
        if level not in API_LEVELS:
            raise ValueError(
                f"The user operations in {self.path!r} were written for API level {level}, "
                f"expected {' or '.join(map(str, API_LEVELS))}. Give their functions the "
                f"parameters of level {API_LEVELS[-1]}, set `{_API_LEVEL}` to it, and compile the "
                f"library again. Received: {_API_LEVEL}={level}"
            )

    def has(self, symbol: str) -> bool:
        """Whether the library exports a symbol."""
        return hasattr(self._handle, symbol)

    def address(self, symbol: str) -> int:
        """Returns the address of a function, or raises a `ValueError` if it is not exported."""
        if not self.has(symbol):
            raise ValueError(
                f"The library must export the function {symbol!r}: define it with "
                f'`extern "C" void {symbol}(...)`, or give the `op_name` of one that it has. '
                f"Received: library_path={self.path!r}, which has no such symbol"
            )
        return ctypes.cast(getattr(self._handle, symbol), ctypes.c_void_p).value or 0


def file_path(argument: str, given: Any) -> str:
    """Returns a path as a string, or raises a `TypeError`."""
    if not isinstance(given, str | bytes | os.PathLike):
        raise TypeError(f"`{argument}` must be the path of a file. Received: {argument}={given!r}")
    return os.fsdecode(given)


def holds_numbers(dtype: tf.DType) -> bool:
    """Whether tensors of a type are plain memory, as functions of libraries read and write it."""
    # Strings, resources and variants are objects, and a reference type stands for a variable.
    is_plain = dtype == dtype.base_dtype and dtype != tf.string
    return is_plain and dtype.is_numpy_compatible


@dataclass(frozen=True)
class UserFunction:
    """A function of a library, as an operation of TensorFlow.

    The library exports it as `symbol`; it is given `attributes` and the operation's name besides
    tensors.
    """

    library: UserLibrary
    symbol: str
    attributes: str | bytes
    name: str

    def __call__(self, inputs: Sequence[tf.Tensor], outputs: Sequence[tf.TensorSpec]) -> Any:
        """Adds the operation to the graph that is being traced, or runs it, and returns its
        tensors.

        A graph's operation without outputs is returned itself.
        """
        address = self.library.address(self.symbol)

        def run(*arrays: np.ndarray) -> list[np.ndarray]:
            return self._run(address, arrays, outputs)

        if tf.executing_eagerly():
            return [tf.convert_to_tensor(x) for x in run(*(tensor.numpy() for tensor in inputs))]
        types = [spec.dtype for spec in outputs]
        # Stateful, as nobody knows what else the function does: no call may be dropped or merged.
        results = tf.numpy_function(run, inputs, types, stateful=True, name=self.name)
        if not outputs:
            return results
        for result, spec in zip(results, outputs, strict=True):
            result.set_shape(spec.shape)
        # When TensorFlow copies a part of the graph, the operation loses the shapes of its results.
        return [tf.ensure_shape(result, result.shape) for result in results]

    def _run(
        self, address: int, arrays: Sequence[np.ndarray], outputs: Sequence[tf.TensorSpec]
    ) -> list[np.ndarray]:
        given = [np.ascontiguousarray(array) for array in arrays]
        results = [np.zeros(spec.shape, spec.dtype.as_numpy_dtype) for spec in outputs]
        try:
            call(
                address,
                [(_data(array), array.size) for array in given],
                [_data(array) for array in results],
                _bytes(self.attributes),
                _bytes(self.name),
            )
        except RuntimeError as error:
            raise RuntimeError(
                f"The user operation {self.symbol!r} of {self.library.path!r} threw an exception: "
                f"{error}"
            ) from error
        return results


def host_operation(
    kind: str,
    function: UserFunction,
    inputs: Sequence[tf.Tensor],
    outputs: Sequence[tf.TensorSpec],
    *,
    separate_gradients: bool,
    inputs_with_gradients: Sequence[int] | None,
    gradient_attributes: str | bytes,
) -> Any:
    """Adds or runs a user operation with its gradient, named `kind` in reports.

    With `separate_gradients`, the gradient of each input has a function of its own. Only
    `inputs_with_gradients` have one, all of them if it is None. What is returned is what
    `UserFunction` returns.
    """
    symbol = function.symbol + _GRADIENT
    wanted = range(len(inputs)) if inputs_with_gradients is None else inputs_with_gradients
    parts = [(f"{symbol}_{k}", [k]) for k in wanted] if separate_gradients else [(symbol, wanted)]

    def run(*inputs):
        results = function(inputs, outputs)

        def gradient(*upstream):
            given = [*_without_none(upstream, results), *results, *inputs]
            gradients: list[tf.Tensor | None] = [None] * len(inputs)
            for part, indices in parts:
                own = UserFunction(
                    function.library, part, gradient_attributes, f"{function.name}_grad"
                )
                specs = [_spec(inputs[k]) for k in indices]
                for k, found in zip(indices, _without_gradient(own, given, specs), strict=True):
                    is_trained = found.dtype.is_floating or found.dtype.is_complex
                    gradients[k] = found if is_trained else None
            return gradients

        return results, gradient

    with poplar_operation(kind):
        if not (inputs and outputs):
            return function(inputs, outputs)
        return differentiable(run, *inputs)


def _spec(tensor: tf.Tensor) -> tf.TensorSpec:
    if not tensor.shape.is_fully_defined():
        raise ValueError(
            "The inputs of a user operation must have fully defined shapes for gradients of them "
            "to be computed: trace it with a fixed batch size. Received: an input of shape "
            f"{tensor.shape}"
        )
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _without_gradient(
    function: UserFunction, inputs: Sequence[tf.Tensor], outputs: Sequence[tf.TensorSpec]
) -> list[tf.Tensor]:
    return not_differentiable(
        lambda *inputs: function(inputs, outputs),
        *inputs,
        reason=f"the library {function.library.path!r} has no gradient of {function.symbol!r}",
    )


def not_differentiable(function: Callable, *tensors: Any, reason: str) -> Any:
    """Calls a function whose gradient is an error that gives a reason, instead of silently
    None."""

    def run(*tensors):
        def refuse(*upstream):
            raise LookupError(f"No gradient: {reason}")

        return function(*tensors), refuse

    return differentiable(run, *tensors)


def _without_none(gradients: Sequence[Any], results: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns zeros for gradients of results that nothing depends on, such as integers."""
    pairs = zip(gradients, results, strict=True)
    return [tf.zeros_like(result) if given is None else given for given, result in pairs]


def _data(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()
