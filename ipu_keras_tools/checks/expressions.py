"""Finds out what is known of the expressions of a script."""

import ast
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from ipu_keras.config import IPUConfig
from ipu_keras.internals.keras_2_habits import advice
from ipu_keras.settings.config_tree import closest_option
from ipu_keras_tools.checks import calls
from ipu_keras_tools.checks.known_values import (
    UNKNOWN,
    Instance,
    Known,
    Options,
    ScriptFunction,
    Symbolic,
    UserClass,
    UserModule,
    attribute_of_instance,
    is_a,
    is_nowhere,
    is_symbolic,
    missing_attribute,
    several,
)
from ipu_keras_tools.checks.libraries import attribute_of
from ipu_keras_tools.checks.script_scopes import OF_TENSORFLOW_1, Notes, Scope
from ipu_keras_tools.checks.without_effect import idle_uses

# The name under which a scope has the class whose method it belongs to. No script has such a name.
OWNER = "class of the method"

_CallOfScript = Callable[[ScriptFunction, list[Any], dict[str, Any]], Any]


class Expressions:
    """Finds out what expressions are, and notes those that will fail.

    Args:
        call_of_script: Follows a call of one of the script's own functions, and says what it
            returns.
    """

    def __init__(self, notes: Notes, call_of_script: _CallOfScript):
        self._notes = notes
        self._call_of_script = call_of_script

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """Returns what is known of an expression, with the names of a scope in reach."""
        # A method for each kind of expression, by the name of its class, as `ast.NodeVisitor`
        # does it for statements.
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is not None:
            return method(node, scope)
        return self._parts(node, scope)

    def option(self, owner: Options, node: ast.Attribute, given: Any = UNKNOWN) -> Any:
        """Notes an option of `IPUConfig` that is read or set.

        Args:
            owner: The configuration, or a category of it.
            given: What is known of the value that it is set to.
        """
        path = f"{owner.path}.{node.attr}" if owner.path else node.attr
        entry = IPUConfig.TABLE.get(path)
        if entry is None:
            error = _refused_option(owner.path, node)
            if error is not None:
                close = closest_option(path, list(IPUConfig.TABLE))
                self._notes.refuse(node, error, f"The closest option is `{close}`.")
            return UNKNOWN
        if entry.is_category:
            return Options(path)
        self._notes.names.use_option(path, node.lineno)
        error = _refused_option(owner.path, node, given) if isinstance(given, Known) else None
        if error is not None:
            self._notes.refuse(node, error)
        return UNKNOWN

    def _parts(self, node: ast.AST, scope: Scope) -> Any:
        """Reads the parts of an expression of which nothing is known by itself."""
        parts = [self.value(one, scope) for one in _expressions_in(node)]
        # Arithmetic with a tensor of Keras gives another one; other expressions with one in
        # them need not.
        is_arithmetic = isinstance(node, ast.BinOp | ast.UnaryOp | ast.Subscript)
        return Symbolic() if is_arithmetic and Symbolic() in parts[:2] else UNKNOWN

    def _constant(self, node: ast.Constant, scope: Scope) -> Any:
        return Known(node.value)

    def _name(self, node: ast.Name, scope: Scope) -> Any:
        return scope.get(node.id)

    def _tuple(self, node: ast.Tuple | ast.List, scope: Scope) -> Any:
        return several([self.value(one, scope) for one in node.elts])

    _list = _tuple

    def _starred(self, node: ast.Starred, scope: Scope) -> Any:
        self.value(node.value, scope)
        return UNKNOWN

    def _namedexpr(self, node: ast.NamedExpr, scope: Scope) -> Any:
        found = self.value(node.value, scope)
        scope.set(node.target.id, found)
        return found

    def _lambda(self, node: ast.Lambda, scope: Scope) -> Any:
        function = ScriptFunction(node, scope, self._call_of_script)
        self._call_of_script(function, [], {})
        return function

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: Scope) -> Any:
        inner = self._comprehended(node.generators, scope)
        self.value(node.elt, inner)
        return UNKNOWN

    _generatorexp = _setcomp = _listcomp

    def _dictcomp(self, node: ast.DictComp, scope: Scope) -> Any:
        inner = self._comprehended(node.generators, scope)
        self.value(node.key, inner)
        self.value(node.value, inner)
        return UNKNOWN

    def _comprehended(self, generators: list[ast.comprehension], scope: Scope) -> Scope:
        inner = Scope(scope)
        for one in generators:
            self.value(one.iter, inner)
            for name in ast.walk(one.target):
                if isinstance(name, ast.Name):
                    inner.set(name.id, UNKNOWN)
            for condition in one.ifs:
                self.value(condition, inner)
        return inner

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        return self._attribute_of(self.value(node.value, scope), node)

    def _attribute_of(self, owner: Any, node: ast.Attribute) -> Any:
        if isinstance(owner, Options):
            return self.option(owner, node)
        if isinstance(owner, UserModule):
            return owner.scope.get(node.attr)
        if isinstance(owner, Known):
            return attribute_of(owner.value, node, self._notes)
        if isinstance(owner, Instance | Symbolic):
            error = missing_attribute(owner, node.attr)
            # Assigning an attribute adds it, and is no error.
            if error is not None and isinstance(node.ctx, ast.Load):
                is_gone = is_nowhere(owner, node.attr) and not (
                    self._notes.surroundings.may_give(node.attr)
                )
                if is_gone or advice(error):
                    of_old = is_a(owner, tf.data.Dataset)
                    self._notes.refuse(node, error, OF_TENSORFLOW_1 if of_old else "")
            return attribute_of_instance(owner, node.attr)
        return UNKNOWN

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        positional = [self.value(one, scope) for one in node.args]
        named = {
            one.arg: self.value(one.value, scope) for one in node.keywords if one.arg is not None
        }
        unpacked = [one.value for one in node.keywords if one.arg is None]
        for one in unpacked:
            self.value(one, scope)
        is_complete = not unpacked and not any(isinstance(one, ast.Starred) for one in node.args)
        if _is_constructor_of_base(node):
            return self._call_of_base(node, scope, positional, named, is_complete)
        function, owner = self._function_and_owner(node.func, scope)
        if isinstance(function, ScriptFunction):
            return function.follow(function, positional, named)
        if isinstance(function, UserClass):
            return self._made(node, function, positional, named, is_complete)
        if isinstance(function, Instance) and is_a(function, keras.layers.Layer):
            return Symbolic() if _has_symbolic([*positional, *named.values()]) else UNKNOWN
        if isinstance(function, Known) and callable(function.value):
            placed = tuple(positional[: _num_before_starred(node)])
            call = calls.Call(function.value, owner, placed, named, is_complete)
            needs_values = calls.needs_values(call)
            for error in calls.refusals(call):
                self._notes.refuse(node, error, calls.BETWEEN_LAYERS if needs_values else "")
            self._note_idle_uses(node, call)
            # After the error, go on as if a layer stood there: what follows may have errors too.
            if needs_values:
                return Symbolic()
            dataset = calls.dataset_made(call)
            if dataset is not None:
                return dataset
            return _result(function.value, positional, named)
        return UNKNOWN

    def _note_idle_uses(self, node: ast.Call, call: calls.Call) -> None:
        named = {one.arg: one.value for one in node.keywords if one.arg is not None}
        for use in idle_uses(call):
            given = node if not use.argument else named.get(use.argument)
            if given is None:
                assert use.place is not None, "it is given by name or by place"
                given = node.args[use.place]
            name = getattr(call.function, "__name__", "")
            self._notes.changes_nothing(given, name, use.argument, use.why)

    def _function_and_owner(self, node: ast.expr, scope: Scope) -> tuple[Any, Any]:
        """Returns what is called, and the instance whose method it is; each part is read once."""
        if not isinstance(node, ast.Attribute):
            return self.value(node, scope), UNKNOWN
        owner = self.value(node.value, scope)
        return self._attribute_of(owner, node), owner

    def _made(
        self, node: ast.Call, kind: UserClass, positional: list, named: dict, is_complete: bool
    ) -> Any:
        base = kind.library_base
        if not kind.defines("__init__") and base is not None:
            call = calls.Call(base, UNKNOWN, tuple(positional), named, is_complete)
            for error in calls.refusals(call):
                self._notes.refuse(node, error)
        return Instance(kind, is_exact=True)

    def _call_of_base(
        self, node: ast.Call, scope: Scope, positional: list, named: dict, is_complete: bool
    ) -> Any:
        """Follows `super().__init__(...)` and `Base.__init__(self, ...)`."""
        assert isinstance(node.func, ast.Attribute)
        owner, base = scope.get(OWNER), None
        if isinstance(node.func.value, ast.Call):
            base = owner.library_base if isinstance(owner, UserClass) else None
            if isinstance(owner, UserClass) and _inherits_constructor(owner):
                base = None
        else:
            found = self.value(node.func.value, scope)
            base = found.value if isinstance(found, Known) else None
            positional = positional[1:]
        if isinstance(base, type):
            call = calls.Call(base, UNKNOWN, tuple(positional), named, is_complete)
            for error in calls.refusals_of_base(base, call):
                self._notes.refuse(node, error)
        return UNKNOWN


def _refused_option(
    category: str, node: ast.Attribute, given: Known | None = None
) -> Exception | None:
    """Returns the error of an option that does not exist, or does not take the value."""
    # The options check values themselves, so a new configuration is asked, and no rule is
    # written twice.
    found: Any = IPUConfig()
    for part in filter(None, category.split(".")):
        found = getattr(found, part)
    try:
        if isinstance(node.ctx, ast.Load):
            getattr(found, node.attr)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                setattr(found, node.attr, None if given is None else given.value)
    except (AttributeError, TypeError, ValueError) as error:
        return error
    return None


def _inherits_constructor(owner: UserClass) -> bool:
    """Whether `super().__init__` is one that the script defines."""
    return any(isinstance(one, UserClass) and one.defines("__init__") for one in owner.bases)


def _is_constructor_of_base(node: ast.Call) -> bool:
    match node.func:
        case ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super"))):
            return True
        case ast.Attribute(attr="__init__", value=ast.Name() | ast.Attribute()):
            return bool(node.args) and isinstance(node.args[0], ast.Name)
    return False


def _expressions_in(node: ast.AST) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        else:
            yield from _expressions_in(child)


def _num_before_starred(node: ast.Call) -> int:
    """Returns how many arguments have a place that is known."""
    starred = (k for k, one in enumerate(node.args) if isinstance(one, ast.Starred))
    return next(starred, len(node.args))


def _has_symbolic(values: list[Any]) -> bool:
    return any(is_symbolic(one) for one in values)


def _result(function: Any, positional: list[Any], named: dict[str, Any]) -> Any:
    if function is keras.Input:
        return Symbolic()
    if function is IPUConfig:
        return Options()
    if isinstance(function, type):
        return Instance(function, is_exact=True)
    module = getattr(function, "__module__", None) or ""
    if module.startswith("keras.src.ops") and _has_symbolic([*positional, *named.values()]):
        return Symbolic()
    if module.startswith(("keras.src.applications", "keras.src.models.cloning")):
        return Instance(keras.Model)
    if inspect.isfunction(function) and function.__name__ in ("load_model", "model_from_json"):
        return Instance(keras.Model)
    return UNKNOWN
