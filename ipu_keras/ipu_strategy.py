"""IPUStrategy: a real `tf.distribute.Strategy` for one emulated IPU device."""

import contextlib
import copy
import functools
import inspect
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.config import IPUConfig
from ipu_keras.device import IpuDevice, device_for
from ipu_keras.device.connection import runs_programs
from ipu_keras.functions.function_programs import FunctionPrograms
from ipu_keras.functions.graph_programs import programs_in
from ipu_keras.functions.parts_for_xla import compiled_in_parts
from ipu_keras.functions.place import placed_on
from ipu_keras.functions.refused_types import refuse_computed_dtypes, refuse_dtypes
from ipu_keras.functions.replicated_function import ReplicatedFunction
from ipu_keras.hooks.tensorflow.eager import replace_iterators
from ipu_keras.host.operation_kinds import lacked_by_xla
from ipu_keras.internals.keras_2_habits import explain, explained
from ipu_keras.internals.tensorflow.decorators import left_by_autograph
from ipu_keras.internals.tensorflow.functions import jit_compile_of, tensors_given
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.internals.tensorflow.strategies import (
    OneDeviceExtended,
    replica_context,
    update_context,
)
from ipu_keras.machine.system import SYSTEM
from ipu_keras.machine.world import ALONE, World
from ipu_keras.ops import distributed_batch_norm
from ipu_keras.profiling.compilation import compiled
from ipu_keras.settings.arguments import checked_switch, noted
from ipu_keras.tracing import graph_of, layer_scopes
from ipu_keras.tracing.frontend_attributes import numerics_scopes
from ipu_keras.tracing.infeeds import infeed_of

# Functions that are a program, or become one when they are called.
_TRACED = (tf.types.experimental.GenericFunction, tf.types.experimental.ConcreteFunction)


class IPUStrategy(tf.distribute.Strategy):
    """Places models, variables and functions on one IPU device.

    Everything inside `scope()` targets the device: a Keras model made there trains on it, and a
    `tf.function` called with `run` is dispatched to it as one program. A process without a
    configured IPU system gets the default one, a single device with one IPU.

    Args:
        ipu_device: Name of the TensorFlow device.
        enable_dataset_iterators: Whether reading datasets eagerly inside the scope is refused,
            as it is on hardware, where it would move every element to the IPU and back. Datasets
            that the strategy has distributed can be read.
        enable_keras_extensions: Whether Keras models made inside the scope get the IPU
            extensions. Without them a model keeps Keras's own training loop, with its steps
            dispatched to the device one by one.

    Raises:
        TypeError: `ipu_device` is not a text.
        ValueError: The device is an IPU that is not configured.

    Example:

    >>> import tensorflow as tf
    >>> strategy = IPUStrategy()
    >>> @tf.function
    ... def double(x):
    ...     return x + x
    >>> print(strategy.run(double, [tf.constant(2.0)]).device[-5:])
    IPU:0
    """

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ):
        _check_device_name(ipu_device)
        guards_iterators = checked_switch("enable_dataset_iterators", enable_dataset_iterators)
        has_extensions = checked_switch("enable_keras_extensions", enable_keras_extensions)
        if not SYSTEM.devices:
            IPUConfig().configure_ipu_system()
        super().__init__(self._make_extended(ipu_device))
        self._ipu_device = device_for(ipu_device) if "IPU" in ipu_device.upper() else None
        self._guards_iterators = guards_iterators
        self.enable_keras_extensions = has_extensions
        # All are by the user's function, and weak, so that a function that is dropped is freed:
        # its programs, its function for all replicas, and for XLA, which may not compile it as a
        # whole, the same function in parts; and, by what it is called with, what exceptions stop.
        self._programs: weakref.WeakKeyDictionary[Any, FunctionPrograms]
        self._programs = weakref.WeakKeyDictionary()
        self._replicated: weakref.WeakKeyDictionary[Any, ReplicatedFunction]
        self._replicated = weakref.WeakKeyDictionary()
        self._in_parts: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._watched: weakref.WeakKeyDictionary[Any, dict[Any, Any]]
        self._watched = weakref.WeakKeyDictionary()
        replace_iterators(_infeed_instead)

    def _make_extended(self, ipu_device: str) -> "IPUExtended":
        return IPUExtended(self, ipu_device)

    @property
    def device(self) -> IpuDevice | None:
        """The IPU device; `None` for a strategy on another kind of device."""
        return self._ipu_device

    @property
    def world(self) -> World:
        """The processes that train together; with this strategy each trains by itself."""
        return ALONE

    def scope(self) -> "StrategyScope":
        """Returns a context in which what is made and called is for the device.

        Returns:
            The context, for a `with` statement. It raises a `ValueError`, and changes nothing, if
            the device is not configured any longer when it is entered.
        """
        return StrategyScope(super().scope(), self._check_device)

    # Else AutoGraph rewrites this method, not only `fn`, when it is called in a
    # tf.function: it leaves methods of TensorFlow's own strategies alone.
    @left_by_autograph
    @explained
    def run(self, fn: Callable, args=(), kwargs=None, options=None) -> Any:
        """Runs a `tf.function` on the device as one program.

        A device of several IPUs runs it as so many replicas, with the same arguments; the
        operations of `ipu.cross_replica_ops` and its like exchange values among them.

        For each shape of its arguments, the function is a program: it is refused if it would not
        fit on an IPU, reported if `POPLAR_ENGINE_OPTIONS` asks for it, and what it would cost is
        what `ipu_keras.last_report` says after the call. Iterators of datasets count as infeeds.
        What `jit_compile=True` asks XLA for and XLA lacks on CPU, as it lacks the reading of
        datasets, is left to TensorFlow; XLA compiles what is before and after it, in loops too.

        Args:
            fn: A `tf.function`. Inside another one, any callable.
            args: Positional arguments of `fn`.
            kwargs: Keyword arguments of `fn`.
            options: Accepted for `tf.distribute`; a single device has none.

        Returns:
            What `fn` returns, on the device; with several replicas, what the first one returns.

        Raises:
            ValueError: `fn` is a plain function, called eagerly.
            TypeError: An input, an element of a dataset or an output is of a type that IPUs lack,
                such as float64, int64 or string, or `fn` computes in bfloat16.
            tf.errors.ResourceExhaustedError: The program would not fit on an IPU. It has not run.
            tf.errors.InvalidArgumentError: The device is configured with
                `DeviceConnectionType.NEVER`, so that programs are compiled only.
        """
        if not tf.executing_eagerly():
            return super().run(self._compilable(fn, args, kwargs), args, kwargs, options)
        if not isinstance(fn, _TRACED):
            raise noted(
                ValueError(
                    "IPUStrategyV1.run(fn, ...) does not support eager execution. Either "
                    "convert `fn` into a tf.function or consider calling strategy.run inside a "
                    "tf.function."
                ),
                f"An IPU runs whole programs, not single operations. Received: fn={fn!r}",
            )
        with layer_scopes():
            return self.extended.call_for_each_replica(self._run_checked, (fn, args, kwargs or {}))

    def _check_device(self) -> None:
        if self._ipu_device is not None:
            device_for(self._ipu_device.ordinal)

    def experimental_run_v2(self, fn: Callable, args=(), kwargs=None, options=None) -> Any:
        """The older name of `run`."""
        return self.run(fn, args, kwargs, options)

    def reduce(self, reduce_op, value, axis=None) -> Any:
        """Reduces a value over replicas, of which the host sees one, and along `axis`.

        Args:
            reduce_op: `tf.distribute.ReduceOp` or its name, `"SUM"` or `"MEAN"`.
            value: The tensor to reduce.
            axis: The axis of a replica's value to reduce too; `None` for none.

        Returns:
            The reduced tensor.
        """
        is_mean = str(getattr(reduce_op, "value", reduce_op)).upper() == "MEAN"
        if axis is None or not is_mean or not tf.executing_eagerly():
            return super().reduce(reduce_op, value, axis)
        # TensorFlow's own function for it returns a count of int64, which no IPU has.
        total = super().reduce(tf.distribute.ReduceOp.SUM, value, axis)
        count = tf.size(value) // tf.maximum(tf.size(total), 1)
        # What other processes have is in the total, and may be of another length.
        count = super().reduce(tf.distribute.ReduceOp.SUM, count, None)
        return total / tf.cast(count, total.dtype)

    def _run_checked(self, fn: Any, args, kwargs) -> Any:
        """Calls `fn` after checking the trace that the call will use, and what it would cost."""
        if self._ipu_device is None:
            return self._run_traced(fn, args, kwargs)
        with placed_on(self._ipu_device), distributed_batch_norm.as_configured():
            return self._run_traced(fn, args, kwargs)

    def _run_traced(self, fn: Any, args, kwargs) -> Any:
        replicated = self._replicated_function(fn)
        programs = self._programs_of(fn)
        numerics, signature = (SYSTEM.numerics, *numerics_scopes()), _signature((args, kwargs))
        key = None if signature is None else (signature, *numerics)
        if key is None or key not in programs:
            refuse_dtypes("input", {"args": tuple(args), "kwargs": kwargs})
            concrete = self._trace_of(fn, args, kwargs)
            refuse_dtypes("output", concrete.structured_outputs)
            if key is None:
                key = (concrete.name, *numerics)
            if key not in programs:
                refuse_computed_dtypes(graph_of(concrete))
                self._take_apart(fn, concrete)
                if replicated is None and fn in self._in_parts and programs_in(concrete.graph):
                    # Programs decide before each execution how they run: those in this trace.
                    concrete = _traced(self._in_parts[fn], args, kwargs)
                programs.compile(key, concrete, args, kwargs)
                if replicated is None and self._ipu_device and SYSTEM.numerics.stops_at:
                    self._watch(fn, key, args, kwargs)
        if self._ipu_device is not None and not runs_programs(self._ipu_device):
            return programs.skip(key, self._trace_of(fn, args, kwargs))
        call = self._watched[fn].get(key) or self._in_parts.get(fn, fn)
        if replicated is not None:
            call = functools.partial(replicated, functools.partial(programs.prepared, key))
        synthetic = programs.synthetic(key)
        with programs.running(key):
            if synthetic is not None:
                return synthetic(call, args, kwargs)
            return call(*args, **kwargs)

    def _trace_of(self, fn: Any, args, kwargs) -> Any:
        """Returns the trace that a call of `fn` with these arguments runs, of one replica."""
        replicated = self._replicated_function(fn)
        return _traced(fn, args, kwargs) if replicated is None else replicated.traced(args, kwargs)

    def _watch(self, fn: Any, key: Any, args, kwargs) -> None:
        """Notes what is called instead of a function, so that exceptions stop it."""
        concrete = _traced(self._in_parts.get(fn, fn), args, kwargs)
        prepared = self._programs[fn].prepared(key, concrete)
        # Not with the function, which would keep itself alive.
        signature = None if concrete is fn else inspect.signature(fn.python_function)
        self._watched[fn][key] = functools.partial(
            _called_with_defaults, concrete, prepared, signature
        )

    def _programs_of(self, fn: Any) -> FunctionPrograms:
        if fn not in self._programs:
            self._watched[fn] = {}
            self._programs[fn] = FunctionPrograms(
                fn, self._call_in_replica, self._ipu_device, compile_program=compiled
            )
        return self._programs[fn]

    def _call_in_replica(self, fn: Any, args, kwargs) -> Any:
        """Calls `fn` in the context of a replica, unless it is in one already."""
        inside = tf.distribute.get_strategy() is self
        if inside and not tf.distribute.in_cross_replica_context():
            return fn(*args, **kwargs)
        return self.extended.call_for_each_replica(fn, args, kwargs)

    def _compilable(self, fn: Any, args, kwargs) -> Any:
        """Returns the function to call within another one, so that XLA has all operations."""
        if jit_compile_of(fn) and fn not in self._in_parts:
            # The call that follows finds this trace in the function's cache.
            traced = self.extended.call_for_each_replica(fn.get_concrete_function, args, kwargs)
            self._take_apart(fn, traced)
        return self._in_parts.get(fn, fn) if jit_compile_of(fn) else fn

    def _take_apart(self, fn: Any, concrete: Any) -> None:
        """Makes XLA compile a function in parts if it lacks one of its operations."""
        is_new = jit_compile_of(fn) and fn not in self._in_parts
        if is_new and lacked_by_xla(graph_of(concrete)):
            self._in_parts[fn] = compiled_in_parts(fn, concrete)

    def _replicated_function(self, fn: Any) -> ReplicatedFunction | None:
        """Returns the function that all replicas of the device run; `None` for one replica."""
        device = self._ipu_device
        # A trace that a user made is of one replica.
        traced = not isinstance(fn, tf.types.experimental.GenericFunction)
        if device is None or traced or len(device.ipus) * SYSTEM.joint_world.size == 1:
            return None
        if fn not in self._replicated:
            self._replicated[fn] = ReplicatedFunction(fn, device)
        return self._replicated[fn]


class IPUExtended(OneDeviceExtended):
    """Answers what TensorFlow asks of a strategy; places otherwise than one plain device.

    Ops inside a `tf.function` get no device: TensorFlow ignores a custom device there, and XLA
    refuses the name. The call as a whole is placed instead.
    """

    def __init__(self, strategy: IPUStrategy, device: str):
        super().__init__(strategy, device)
        # Tensors of datasets stay on the host until a program takes them.
        self._input_device = "/device:CPU:0"

    @property
    def _default_device(self):
        return self._device if tf.executing_eagerly() else None

    @_default_device.setter
    def _default_device(self, device):
        if device is not None:
            raise ValueError(
                f"The device of an IPUStrategy cannot be changed. Received: {device!r}"
            )

    def colocate_vars_with(self, colocate_with_variable):
        """Returns a scope in which variables are made beside another one, as optimizers do."""
        try:
            return super().colocate_vars_with(colocate_with_variable)
        except RuntimeError as error:
            # The first update makes an optimizer's variables, which the scope has to place.
            error.add_note(
                "Variables of an IPUStrategy are made in its scope. Build the optimizer there, "
                "before it updates anything: `with strategy.scope(): "
                "optimizer.build(model.trainable_variables)`."
            )
            raise

    @property
    def _replica_id(self) -> int:
        """The number of this process's replica among those of all processes."""
        return 0

    def _call_for_each_replica(self, fn, args, kwargs):
        with (
            self._placed(),
            replica_context(self._container_strategy(), self._replica_id),
        ):
            return fn(*args, **kwargs)

    def _update_non_slot(self, colocate_with, fn, args, kwargs, group):
        with self._placed(), update_context(self._device):
            result = fn(*args, **kwargs)
            return result if group else tf.nest.map_structure(self._local_results, result)

    def _experimental_distribute_dataset(self, dataset, options):
        # A copy of the Python object only. A new dataset, which `with_options` would
        # make, costs TensorFlow some 25 ms when it is first iterated.
        distributed = copy.copy(dataset)
        distributed._ipu_distributed = True
        distributed._ipu_copy_of = dataset
        return distributed

    def _distribute_datasets_from_function(self, dataset_fn, options):
        return self._experimental_distribute_dataset(
            dataset_fn(tf.distribute.InputContext()), options
        )

    def _placed(self) -> contextlib.AbstractContextManager:
        return tf.device(self._device) if tf.executing_eagerly() else contextlib.nullcontext()


class StrategyScope:
    """The scope of an `IPUStrategy`: TensorFlow's own, entered as a whole or not at all.

    TensorFlow enters the strategy first and the device last. Where that raises, the strategy
    would stay entered, and no other one could be from then on. Errors that leave the scope, of
    models made in it say, are explained if Keras 2 would not have raised them.

    Args:
        check: Raises if the device is not configured.
    """

    def __init__(
        self,
        scope: contextlib.AbstractContextManager,
        check: Callable[[], None],
    ):
        self._scope = scope
        self._check = check

    def __enter__(self) -> IPUStrategy:
        self._check()
        _forget_caching_device()
        return self._scope.__enter__()

    def __exit__(self, kind, error, traceback) -> None:
        try:
            if error is not None:
                explain(error)
        finally:
            self._scope.__exit__(kind, error, traceback)


def _forget_caching_device() -> None:
    """Takes back what `tf.map_fn` leaves behind where the function that it maps raises.

    It gives the scope of variables a device to cache them on, for as long as it traces. With
    one, no strategy can be entered outside of graphs, and TensorFlow would stay half way in it.
    """
    scope = tf.compat.v1.get_variable_scope()
    if tf.executing_eagerly() and scope.caching_device is not None:
        # It can be set in graphs only.
        with tf.Graph().as_default():
            scope.set_caching_device(None)


# The name of the class in the releases before 2.6.
IPUStrategyV1 = IPUStrategy


def current_ipu_strategy() -> IPUStrategy | None:
    """Returns the `IPUStrategy` whose scope is entered; `None` outside of one."""
    if not tf.distribute.has_strategy():
        return None
    strategy = tf.distribute.get_strategy()
    return strategy if isinstance(strategy, IPUStrategy) else None


def _called_with_defaults(
    concrete: Any,
    prepared: Callable[..., Any],
    signature: inspect.Signature | None,
    *args,
    **kwargs,
) -> Any:
    """Calls what was prepared of a trace with the defaults of its function.

    The trace does not know them; without a signature there are none.
    """
    if signature is not None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        args, kwargs = bound.args, bound.kwargs
    return prepared(*tensors_given(concrete, args, kwargs))


def _traced(fn: Any, args, kwargs) -> Any:
    if isinstance(fn, tf.types.experimental.GenericFunction):
        # The call that follows finds this trace in the function's cache.
        return fn.get_concrete_function(*args, **kwargs)
    return fn


def _check_device_name(ipu_device: Any) -> None:
    """Refuses what TensorFlow cannot read as the name of a device."""
    expected = "`ipu_device` must be the name of a TensorFlow device, such as '/device:IPU:0'."
    if not isinstance(ipu_device, str):
        raise TypeError(
            f"{expected} Received: ipu_device={ipu_device!r} of type {type(ipu_device).__name__}"
        )
    try:
        names_one = tf.DeviceSpec.from_string(ipu_device).device_type is not None
    except ValueError:
        names_one = False
    if not names_one:
        raise ValueError(f"{expected} Received: ipu_device={ipu_device!r}")


def _signature(value: Any) -> tuple | None:
    """Returns what a trace depends on, hashable; `None` if that is more than types and constants.

    Looking a trace up in TensorFlow takes as long as running a small function.
    """
    if isinstance(value, tf.Tensor | np.ndarray | np.generic):
        return value.dtype, static_sizes(value)
    if value is None or isinstance(value, bool | int | float | str | tf.TypeSpec):
        return type(value), value
    if isinstance(value, tf.data.Iterator):
        elements = _signature(value.element_spec)
        return None if elements is None else (tf.data.Iterator, elements)
    if isinstance(value, tuple | list):
        parts = [_signature(item) for item in value]
        return None if None in parts else (type(value), *parts)
    if isinstance(value, dict):
        parts = [_signature(item) for item in value.values()]
        return None if None in parts else (dict, *zip(value, parts, strict=True))
    return None


def _infeed_instead(iterator: Any) -> Iterator | None:
    """Returns what a dataset is read from in place of TensorFlow's iterator; `None` for nothing.

    That is an infeed where a function is traced to be modelled. A dataset that is read eagerly,
    inside the scope of a strategy that refuses this, is a `RuntimeError`.
    """
    if tf.executing_eagerly():
        strategy = current_ipu_strategy()
        distributed = getattr(getattr(iterator, "_dataset", None), "_ipu_distributed", False)
        if strategy is not None and strategy._guards_iterators and not distributed:
            raise noted(
                RuntimeError(
                    "Accessing dataset elements can not be accessed in eager mode when inside "
                    "'IPUStrategy'."
                ),
                "Read the dataset outside the strategy's scope, or inside a tf.function that "
                "is given to `strategy.run`.",
            )
    return infeed_of(iterator)
