"""Operations of users' own: expressions of one vertex, and functions of shared libraries."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.ops.argument_checks import check_tensor, integer_in
from ipu_keras.ops.codelet_expressions import check_expression
from ipu_keras.ops.user_operations import (
    UserFunction,
    UserLibrary,
    file_path,
    holds_numbers,
    host_operation,
    not_differentiable,
)
from ipu_keras.tracing.poplar_operation import poplar_operation

# Suffix by which a library exports the version for the host of an operation for IPUs.
_HOST = "_host"

_OUTS = ("output_types", "output_shapes")


def codelet_expression_op(vertex_expression: Callable[..., Any], *args: Any) -> tf.Tensor:
    """Computes an elementwise expression as one fused operation.

    The operation has no gradient, so it cannot be used for training.

    Args:
        vertex_expression: A Python function of as many tensors as there are `args`. It is
            traced, may use TensorFlow's elementwise operations and scalar constants, and
            returns one tensor.
        *args: The tensors that the function is given, of shapes that broadcast to one.

    Returns:
        The tensor that the function returns.

    Raises:
        TypeError: `vertex_expression` does not take as many arguments, or they are not numbers.
        ValueError: The arguments do not broadcast; or `vertex_expression` does not return one
            tensor of the shape that they have then, computes something that is not elementwise,
            or reads other tensors.
        LookupError: A gradient is asked for.

    Example:

    >>> x = tf.constant([1.0, 2.0, 3.0])
    >>> codelet_expression_op(lambda x, y, z: x * x + y * z, x, x, 2.0).numpy()
    array([ 3.,  8., 15.], dtype=float32)
    """
    tensors = [check_tensor("args", argument) for argument in args]
    check_expression(vertex_expression, tensors)
    with poplar_operation("CodeletExpression"):
        return not_differentiable(
            vertex_expression,
            *tensors,
            reason="`codelet_expression_op` does not see into its expression, so it cannot be "
            "used for training. Write it with TensorFlow's operations, or stop the gradient with "
            "`tf.stop_gradient`",
        )


def cpu_user_operation(
    inputs: Sequence[Any],
    library_path: str | os.PathLike,
    outs: Mapping[str, Sequence[Any]] | None = None,
    name: str = "UserOp",
    op_name: str = "Callback",
    separate_gradients: bool = False,
    inputs_with_gradients: Sequence[int] | None = None,
    attributes: str | bytes | None = None,
    gradient_attributes: str | bytes | None = None,
) -> Any:
    """Calls a C++ function of a shared library on the host.

    `library_path` exports, without mangled names (`extern "C"`):

        void Callback(const std::vector<const void*>& data,
                      const std::vector<std::uint32_t>& number_of_elements,
                      const std::vector<void*>& outputs,
                      const std::string& attributes,
                      const std::string& name);

    `data` has a pointer to the elements of each input, `number_of_elements` the inputs' sizes,
    and `outputs` a pointer for each output, to zeros. If it throws an exception, the step fails.
    Replicas may call it at the same time.

    To be trained through, it also exports `Callback_grad` of the same kind. `data` has the
    gradients of all outputs, then these outputs, then the inputs; `outputs` are the gradients of
    the inputs. With `separate_gradients`, there is a function `Callback_grad_k` instead for each
    input k, with one output. A gradient of a gradient is an error.

    If it exports `std::int32_t custom_op_api_level`, that must be 4 or 5, whose functions on the
    host are these.

    XLA cannot compile the call: steps of a model or a strategy that have it run without XLA. It
    lives in this process, and is not saved with a model.

    Args:
        inputs: Tensors of numbers that the function is given.
        library_path: Path of the compiled library.
        outs: What the function writes: a dictionary with `"output_types"`, a list of types, and
            `"output_shapes"`, a list of shapes that are fully defined. Defaults to no outputs.
        name: Name of the operation, which the function is told.
        op_name: Name of the function, and the start of those of its gradients.
        separate_gradients: Whether the gradient of each input is an operation of its own.
        inputs_with_gradients: Indices of the inputs that gradients are computed of; others have
            none. Defaults to all.
        attributes: A string that the function is given. Defaults to an empty one.
        gradient_attributes: A string that the functions of gradients are given. Defaults to an
            empty one.

    Returns:
        A list of tensors. Without outputs: an empty one, or in a graph, the operation.

    Raises:
        TypeError: `attributes` or a name is not a string, or an input or an output is not of
            numbers.
        ValueError: The library or its function does not exist, or has another API level; or
            `outs` or `inputs_with_gradients` are malformed. For the function of the gradient,
            when that is asked for.

    Example:

        squares, = cpu_user_operation(
            [x],
            "./libsquare.so",
            outs={"output_types": [tf.float32], "output_shapes": [x.shape]},
        )
    """
    _check_name("op_name", op_name)
    return _host_operation(
        "CpuUserOperation",
        UserLibrary(library_path),
        inputs,
        outs,
        symbol=op_name,
        name=name,
        separate_gradients=separate_gradients,
        inputs_with_gradients=inputs_with_gradients,
        attributes=attributes,
        gradient_attributes=gradient_attributes,
    )


def precompiled_user_op(
    inputs: Sequence[Any],
    library_path: str | os.PathLike,
    gp_path: str | os.PathLike = "",
    outs: Mapping[str, Sequence[Any]] | None = None,
    name: str = "UserOp",
    op_name: str = "Build",
    separate_gradients: bool = False,
    inputs_with_gradients: Sequence[int] | None = None,
    attributes: str | bytes | None = None,
    gradient_attributes: str | bytes | None = None,
) -> Any:
    """Computes on the host what a user's operation for IPUs would.

    `library_path` has a function `Build` that adds vertices to a Poplar graph. Without Poplar it
    cannot be called, so the library must say what the operation computes on a host: it exports
    `Build_host`, and `Build_host_grad` or `Build_host_grad_k` for training, which are called as
    those of `cpu_user_operation` are. `Build` itself is not needed.

    Args:
        inputs: Tensors of numbers that the function is given.
        library_path: Path of the compiled library.
        gp_path: Path of compiled codelets for IPUs, which must exist. Has no effect: the host
            computes.
        outs: What the function writes, as for `cpu_user_operation`.
        name: Name of the operation, which the function is told.
        op_name: The start of the names of the functions.
        separate_gradients: Whether the gradient of each input is an operation of its own.
        inputs_with_gradients: Indices of the inputs that gradients are computed of; `None` for
            all.
        attributes: A string that the function is given. Defaults to an empty one.
        gradient_attributes: A string that the functions of gradients are given. Defaults to an
            empty one.

    Returns:
        A list of tensors. Without outputs: an empty one, or in a graph, the operation.

    Raises:
        NotImplementedError: The library has no function for the host.
        TypeError: `cpu_user_operation` would refuse the type of an argument.
        ValueError: `cpu_user_operation` would refuse an argument, or there is no file at
            `gp_path`.
    """
    library = UserLibrary(library_path)
    codelets = file_path("gp_path", gp_path)
    if codelets and not os.path.isfile(codelets):
        raise ValueError(
            "`gp_path` must be the path of compiled codelets, or be left out. "
            f"Received: gp_path={codelets!r}, which is no file"
        )
    _check_name("op_name", op_name)
    symbol = f"{op_name}{_HOST}"
    if not library.has(symbol):
        raise NotImplementedError(
            f"{op_name!r} builds a Poplar graph, and there is no Poplar here to run it. Export "
            f"the function {symbol!r} from the library, with the parameters of a callback of "
            "`cpu_user_operation`: it computes the same on the host. Received: "
            f"library_path={library.path!r}, which has no such symbol"
        )
    return _host_operation(
        "PrecompiledUserOp",
        library,
        inputs,
        outs,
        symbol=symbol,
        name=name,
        separate_gradients=separate_gradients,
        inputs_with_gradients=inputs_with_gradients,
        attributes=attributes,
        gradient_attributes=gradient_attributes,
    )


def _host_operation(
    kind: str,
    library: UserLibrary,
    inputs: Sequence[Any],
    outs: Mapping[str, Sequence[Any]] | None,
    *,
    symbol: str,
    name: str,
    separate_gradients: bool,
    inputs_with_gradients: Sequence[int] | None,
    attributes: str | bytes | None,
    gradient_attributes: str | bytes | None,
) -> Any:
    tensors = _tensors(inputs)
    specs = _output_specs(outs)
    indices = _indices(inputs_with_gradients, len(tensors))
    _check_name("name", name)
    library.address(symbol)  # raises now, where the user's call is
    function = UserFunction(library, symbol, _text("attributes", attributes), name)
    return host_operation(
        kind,
        function,
        tensors,
        specs,
        separate_gradients=separate_gradients,
        inputs_with_gradients=indices,
        gradient_attributes=_text("gradient_attributes", gradient_attributes),
    )


def _tensors(inputs: Sequence[Any]) -> list[tf.Tensor]:
    if isinstance(inputs, str | bytes) or not isinstance(inputs, Iterable):
        raise TypeError(f"`inputs` must be a list of tensors. Received: inputs={inputs!r}")
    tensors = [check_tensor("inputs", given) for given in inputs]
    for position, tensor in enumerate(tensors):
        if not holds_numbers(tensor.dtype):
            raise TypeError(
                "`inputs` must be tensors of numbers; encode others first. "
                f"Received: a tensor of {tensor.dtype.name} at position {position}"
            )
    return tensors


def _output_specs(outs: Mapping[str, Sequence[Any]] | None) -> list[tf.TensorSpec]:
    if outs is None:
        return []
    is_complete = isinstance(outs, Mapping) and set(outs) == set(_OUTS)
    if not is_complete or not all(isinstance(outs[key], list | tuple) for key in _OUTS):
        raise ValueError(
            '`outs` must be a dictionary with the lists "output_types" and "output_shapes". '
            f"Received: outs={outs!r}"
        )
    types, shapes = (list(outs[key]) for key in _OUTS)
    if len(types) != len(shapes):
        raise ValueError(
            f"`outs` must have a type and a shape for each output. Received: {len(types)} types "
            f"and {len(shapes)} shapes"
        )
    specs = [
        tf.TensorSpec(_output_shape(shape), _output_type(dtype))
        for shape, dtype in zip(shapes, types, strict=True)
    ]
    unknown = [spec.shape for spec in specs if not spec.shape.is_fully_defined()]
    if unknown:
        raise ValueError(
            "The shapes in `outs` must be fully defined, because their memory is reserved before "
            f"the function runs. Received: {', '.join(map(str, unknown))}"
        )
    return specs


def _output_type(given: Any) -> tf.DType:
    try:
        dtype = tf.as_dtype(given)
    except TypeError:
        dtype = None
    # The function writes plain memory, and elements such as strings are objects.
    if dtype is None or not holds_numbers(dtype):
        raise TypeError(
            'The "output_types" in `outs` must be types of numbers, such as tf.float32; write '
            "others as bytes, in an output of tf.uint8. Received: "
            f"{given!r}"
        )
    return dtype


def _output_shape(given: Any) -> tf.TensorShape:
    try:
        return tf.TensorShape(given)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f'The "output_shapes" in `outs` must be shapes, such as (2, 3). Received: {given!r}'
        ) from error


def _indices(given: Sequence[int] | None, num_inputs: int) -> list[int] | None:
    if given is None:
        return None
    indices = [integer_in(index) for index in given] if isinstance(given, Iterable) else [None]
    if not set(indices) <= set(range(num_inputs)) or len(set(indices)) < len(indices):
        raise ValueError(
            f"`inputs_with_gradients` must be different indices of the {num_inputs} inputs. "
            f"Received: inputs_with_gradients={given!r}"
        )
    return [index for index in indices if index is not None]


def _check_name(argument: str, given: Any) -> None:
    if not isinstance(given, str) or not given or "\0" in given:
        raise TypeError(f"`{argument}` must be a name. Received: {argument}={given!r}")


def _text(argument: str, given: str | bytes | None) -> str | bytes:
    if given is None:
        return ""
    if not isinstance(given, str | bytes):
        raise TypeError(
            f"`{argument}` must be a string; encode it, for instance with `json.dumps`. "
            f"Received: {argument}={given!r}"
        )
    return given
