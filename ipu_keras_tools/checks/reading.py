"""Follows the statements of a script without executing them."""

import ast
import builtins
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ipu_keras_tools.checks.deep_recursion import with_deep_recursion
from ipu_keras_tools.checks.expressions import OWNER, Expressions
from ipu_keras_tools.checks.findings import Findings
from ipu_keras_tools.checks.known_values import (
    UNKNOWN,
    Instance,
    Known,
    Options,
    ScriptFunction,
    Several,
    UserClass,
    UserModule,
    makes_names,
)
from ipu_keras_tools.checks.libraries import imported
from ipu_keras_tools.checks.parsing import parsed
from ipu_keras_tools.checks.script_scopes import Notes, Scope, SharedByScripts
from ipu_keras_tools.checks.without_effect import idle_option, refused_option

# The most calls of the script's own functions that are followed: nested, of one function, and in
# all. What a script does in so many places, it does in one of the first.
_MOST_CALLS, _MOST_CALLS_OF_ONE, _MOST_CALLS_IN_ALL = 8, 32, 10_000


def findings_of(source: str | bytes, path: str) -> Findings:
    """Returns what of one script will not run here, without modules of its own.

    Example:

    >>> found = findings_of("from tensorflow import keras\\nkeras.Input(shape=(80))", "net.py")
    >>> [(one.line, one.said) for one in found.problems]
    [(2, "Cannot convert '80' to a shape.")]
    """
    notes = Notes(SharedByScripts())
    reader = Reader(notes, lambda *_: None)

    def read() -> None:
        reader.read_script(parsed(source, path))
        reader.read_rest()

    followed(read)
    return findings_in(path, notes)


def followed(read: Callable[[], object]) -> None:
    """Calls a function that reads scripts, which may be nested very deeply."""
    try:
        with_deep_recursion(read)
    except (MemoryError, RecursionError) as error:
        raise SyntaxError("it is nested too deeply") from error


def findings_in(path: str, notes: Notes) -> Findings:
    """Returns what notes have of a script."""
    return Findings(path, notes.problems(), notes.names.uses(), notes.idle())


class Reader(ast.NodeVisitor):
    """Visits statements, and has `Expressions` say what is in them.

    Args:
        own_module: Gives a module beside the script, by its name and by how many folders above
            the script `from` looks for it; `None` if there is none.
    """

    def __init__(self, notes: Notes, own_module: Callable[[str, int], UserModule | None]):
        self.notes = notes
        self.module = UserModule(Scope())
        self._own_module = own_module
        self._scope = self.module.scope
        self._expressions = Expressions(notes, self._call_of_script)
        self._waiting: deque[ScriptFunction] = deque()
        self._calls: Counter[ast.AST] = Counter()
        self._num_calls = 0
        self._read: set[ast.AST] = set()
        self._returned: list[Any] = []
        self._depth = 0

    def read_script(self, tree: ast.Module) -> None:
        """Reads all statements, and the functions that they call."""
        self.notes.surroundings.mention(_attributes_in(tree))
        self.notes.ask_for(_names_asked_for(tree))
        self._statements(tree.body)

    def read_rest(self) -> None:
        """Reads the functions that nothing has called."""
        while self._waiting:
            function = self._waiting.popleft()
            if function.node not in self._read:
                self._run(function, [], {})

    def _statements(self, nodes: Sequence[ast.stmt]) -> None:
        for node in nodes:
            self.visit(node)

    def _value(self, node: ast.expr | None) -> Any:
        return UNKNOWN if node is None else self._expressions.value(node, self._scope)

    def generic_visit(self, node: ast.AST) -> None:
        # Statements without a method of their own are read part by part.
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._value(child)
            else:
                self.visit(child)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root = alias.name.partition(".")[0]
            own = self._own_module(root, 0)
            if own is not None:
                inner = self._own_module(alias.name, 0)
                self._scope.set(alias.asname or root, own if alias.asname is None else inner)
                continue
            found = imported(alias.name, None, node, self.notes)
            if alias.asname is None:
                self._scope.set(root, imported(root, None, node, self.notes))
            else:
                self._scope.set(alias.asname, found)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        name = node.module or ""
        own = self._own_module(name, node.level)
        if own is not None:
            names = own.scope.names()
            for alias in node.names:
                if alias.name == "*":
                    for each, found in [*names.items()]:
                        self._scope.set(each, found)
                    continue
                inner = None
                if alias.name not in names:
                    inner = self._own_module(f"{name}.{alias.name}".lstrip("."), node.level)
                self._scope.set(alias.asname or alias.name, names.get(alias.name, inner))
            return
        for alias in node.names:
            found = UNKNOWN
            if node.level == 0 and node.module is not None and alias.name != "*":
                found = imported(node.module, alias.name, node, self.notes)
            self._scope.set(alias.asname or alias.name, found)

    def visit_Try(self, node: ast.Try) -> None:
        with self.notes.guarded(tuple(_caught(node, self._value))):
            self._statements(node.body)
        for handler in node.handlers:
            self._statements(handler.body)
        self._statements([*node.orelse, *node.finalbody])

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self._value(item.context_expr)
            if item.optional_vars is not None:
                self._assign(item.optional_vars, UNKNOWN)
        self._statements(node.body)

    visit_AsyncWith = visit_With

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._value(node.iter)
        self._assign(node.target, UNKNOWN)
        self._statements([*node.body, *node.orelse])

    visit_AsyncFor = visit_For

    def visit_Assign(self, node: ast.Assign) -> None:
        found = self._value(node.value)
        for target in node.targets:
            self._assign(target, found)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, self._value(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._value(node.value)
        self._assign(node.target, UNKNOWN)

    def visit_Return(self, node: ast.Return) -> None:
        self._returned.append(self._value(node.value))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self._value(decorator)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            self._value(default)
        function = ScriptFunction(node, self._scope, self._call_of_script)
        # A decorator may make something else of the function, whose body is read anyhow.
        self._scope.set(node.name, UNKNOWN if node.decorator_list else function)
        self._waiting.append(function)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        bases = tuple(map(self._value, node.bases))
        made = UserClass(node.name, bases, {}, is_open=bool(node.decorator_list))
        self._scope.set(node.name, made)
        outer, self._scope = self._scope, Scope(self._scope)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                for decorator in statement.decorator_list:
                    self._value(decorator)
                # Names of a class are in reach in the rest of its body, but not in its methods.
                self._scope.set(statement.name, UNKNOWN)
                is_plain = not statement.decorator_list
                method = ScriptFunction(statement, outer, self._call_of_script, made)
                made.methods[statement.name] = method if is_plain else UNKNOWN
                # Constructors are read first: other methods use the attributes that they set.
                if statement.name == "__init__":
                    self._waiting.appendleft(method)
                else:
                    self._waiting.append(method)
            else:
                self.visit(statement)
                made.methods |= dict.fromkeys(_names_in(statement), UNKNOWN)
        self._scope = outer

    def _assign(self, target: ast.expr, found: Any) -> None:
        if isinstance(target, ast.Name):
            self._scope.set(target.id, found)
        elif isinstance(target, ast.Tuple | ast.List):
            members = found.members if isinstance(found, Several) else ()
            known = len(members) == len(target.elts)
            for place, one in enumerate(target.elts):
                self._assign(one, members[place] if known else UNKNOWN)
        elif isinstance(target, ast.Attribute):
            owner = self._value(target.value)
            if isinstance(owner, Options):
                self._expressions.option(owner, target, found)
            elif isinstance(owner, Instance) and isinstance(owner.kind, UserClass):
                owner.kind.attributes[target.attr] = found
            elif error := refused_option(owner, target.attr):
                self.notes.refuse(target, error)
            elif why := idle_option(owner, target.attr, found):
                self.notes.changes_nothing(target, owner.kind.__name__, target.attr, why)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, UNKNOWN)
        else:
            self._value(target)

    def _call_of_script(
        self, function: ScriptFunction, positional: list[Any], named: dict[str, Any]
    ) -> Any:
        """Returns what is known of the result of calling a function of the script."""
        # A function that calls itself, or is called in ever new ways, has been read often enough.
        if (
            self._depth == _MOST_CALLS
            or self._calls[function.node] == _MOST_CALLS_OF_ONE
            or self._num_calls == _MOST_CALLS_IN_ALL
        ):
            if function.node not in self._read:
                self._waiting.append(function)
            return UNKNOWN
        self._num_calls += 1
        self._calls[function.node] += 1
        return self._run(function, positional, named)

    def _run(self, function: ScriptFunction, positional: list[Any], named: dict[str, Any]) -> Any:
        self._read.add(function.node)
        outer = self._scope, self._returned
        self._scope, self._returned = Scope(function.scope), []
        self._depth += 1
        if function.owner is not None:
            self._scope.set(OWNER, function.owner)
            positional = [Instance(function.owner), *positional]
        self._bind(function.node.args, positional, named)
        body = function.node.body
        if isinstance(body, ast.expr):
            self._returned.append(self._value(body))
        else:
            self._statements(body)
        returned = self._returned
        self._depth -= 1
        self._scope, self._returned = outer
        return returned[0] if len({*map(id, returned)}) == 1 else _same(returned)

    def _bind(self, arguments: ast.arguments, positional: list[Any], named: dict[str, Any]) -> None:
        places = [*arguments.posonlyargs, *arguments.args]
        for place, one in enumerate(places):
            given = positional[place] if place < len(positional) else UNKNOWN
            self._scope.set(one.arg, named.get(one.arg, given))
        for one in arguments.kwonlyargs:
            self._scope.set(one.arg, named.get(one.arg, UNKNOWN))
        for rest in (arguments.vararg, arguments.kwarg):
            if rest is not None:
                self._scope.set(rest.arg, UNKNOWN)


def _attributes_in(tree: ast.AST) -> set[str] | None:
    """Returns attributes that a script gives to an object, defines, or asks for by their names.

    They are `None` if it may give any.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                found.add(node.attr)
            elif makes_names(node.attr):
                return None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        # Any text may be a name for `setattr` or `hasattr`: to believe too much here hides
        # errors, but invents none.
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.Name) and makes_names(node.id):
            return None
    return found


def _names_asked_for(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("hasattr"), args=[_, ast.Constant(str(name))]):
                yield name


def _same(values: Sequence[Any]) -> Any:
    first = values[0] if values else UNKNOWN
    return first if all(one == first for one in values) else UNKNOWN


def _names_in(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _caught(node: ast.Try, value: Any) -> Iterator[type[BaseException]]:
    for handler in node.handlers:
        if handler.type is None:
            yield BaseException
            continue
        named = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        for one in named:
            found = value(one)
            if isinstance(found, Known) and isinstance(found.value, type):
                yield found.value
            elif isinstance(one, ast.Name) and isinstance(getattr(builtins, one.id, 0), type):
                yield getattr(builtins, one.id)
