"""What the host runs in place of functions and single operations that a device is given."""

import itertools
from typing import Any

import tensorflow as tf

from ipu_keras.device import IpuDevice
from ipu_keras.host.half_operations import computes_halves
from ipu_keras.host.halves import definitions_with_halves
from ipu_keras.internals.tensorflow.contexts import (
    add_definition,
    function_definition,
    knows_function,
    remove_function,
)
from ipu_keras.internals.tensorflow.operations import definition_of, types_of
from ipu_keras.internals.tensorflow.protos import function_definition as empty_definition
from ipu_keras.machine.system import SYSTEM
from ipu_keras.tracing.frontend_attributes import (
    eager_attributes,
    give_attributes,
    numerics_in_scopes,
    numerics_scopes,
)


class SubstitutesOfHalves:
    """Has a device compute halves as an IPU does, whatever it is called with.

    These are functions, also those that a tape makes of them, and operations by themselves.
    """

    def __init__(self, device: IpuDevice):
        self._device = device
        # The functions made, by the function that they take the place of.
        self._made: dict[str, list[str]] = {}
        # Traced functions that these and those of operations call, which TensorFlow has to know.
        self._called: dict[str, list[Any]] = {}
        # The functions of operations, by their attributes and what scopes say of them; those of
        # functions, by their names and what scopes around the calls say.
        self._operations: dict[tuple[Any, ...], str | None] = {}
        self._functions: dict[tuple[Any, ...], str | None] = {}
        self._numbers = itertools.count()

    def forget(self) -> None:
        """Says that the device may compute otherwise from now on."""
        # Others may be about to run what was made before, which therefore stays.
        self._operations, self._functions = {}, {}

    def of_function(self, name: str) -> str | None:
        """Returns the name of what runs in place of a function; `None` if that runs as it is."""
        functions = self._functions
        key = (name, *numerics_scopes())
        if key not in functions:
            self._remove_unused()
            made = self._add_with_halves(function_definition(name))
            self._made.setdefault(name, []).extend(made)
            functions[key] = made[-1] if made else None
        return functions[key]

    def of_operation(self, attributes: bytes) -> str | None:
        """Returns the name of a function that runs in place of an operation, or `None`.

        Args:
            attributes: A serialized `NameAttrList`, whose name is the kind of the operation.
        """
        operations, texts = self._operations, eager_attributes()
        key = (attributes, *texts.items())
        if key not in operations:
            node = _node_of(attributes)
            give_attributes(node, texts)
            name = f"ipu_operation_{node.op}_{self._device.ordinal}_{next(self._numbers)}"
            made = self._add_with_halves(_function_of(node, name)) if computes_halves(node) else []
            operations[key] = made[-1] if made else None
        return operations[key]

    def _add_with_halves(self, definition: Any) -> list[str]:
        """Makes functions known that compute halves; returns their names."""
        numerics = numerics_in_scopes(SYSTEM.numerics).of_replicas(1)
        keys = self._device.engine.rounding_keys
        definitions, called = definitions_with_halves(definition, numerics, keys)
        made = [function for _, function in definitions]
        for function in made:
            add_definition(function)
        if made:
            self._called[made[-1].signature.name] = called
        return [function.signature.name for function in made]

    def _remove_unused(self) -> None:
        """Removes what took the place of functions that are no more."""
        gone = {name for name in self._made if not knows_function(name)}
        for name in gone:
            for made in self._made.pop(name, []):
                self._called.pop(made, None)
                remove_function(made)
        functions = self._functions
        for key in [key for key in functions if key[0] in gone]:
            functions.pop(key, None)


def _node_of(attributes: bytes) -> Any:
    """Returns an operation as the node of a definition, with all its attributes."""
    given = tf.compat.v1.AttrValue().func
    given.ParseFromString(attributes)
    node = tf.compat.v1.NodeDef(name="operation", op=given.name)
    for attribute in definition_of(node.op).attr:
        node.attr[attribute.name].CopyFrom(attribute.default_value)
    for name, value in given.attr.items():
        node.attr[name].CopyFrom(value)
    return node


def _function_of(node: Any, name: str) -> Any:
    """Returns the definition of a function that is one operation."""
    function, kind = empty_definition(), definition_of(node.op)
    function.signature.name = name
    function.signature.is_stateful = kind.is_stateful
    for argument in kind.input_arg:
        for dtype in types_of(argument, node):
            given = f"given_{len(function.signature.input_arg)}"
            function.signature.input_arg.add(name=given, type=dtype)
            node.input.append(given)
    for argument in kind.output_arg:
        for k, dtype in enumerate(types_of(argument, node)):
            result = f"result_{len(function.signature.output_arg)}"
            function.signature.output_arg.add(name=result, type=dtype)
            function.ret[result] = f"{node.name}:{argument.name}:{k}"
    if kind.is_stateful:
        function.signature.control_output.append(node.name)
        function.control_ret[node.name] = node.name
    function.node_def.append(node)
    return function
