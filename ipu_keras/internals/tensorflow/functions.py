"""Traced functions and their graphs: how they were made, what they contain and call.

The public types show signatures and graphs, and nothing of how a function is called.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import tensorflow as tf

from ipu_keras.internals.forms import Class, Function, Module, PrivateName
from ipu_keras.internals.tensorflow.contexts import eager_context
from ipu_keras.internals.tensorflow.operations import set_input

_TF_FUNCTION = PrivateName(
    "tensorflow.python.eager.polymorphic_function.polymorphic_function",
    "Function",
    Class(assigned=("_autograph", "_jit_compile")),
)
_CALL_FLAT = PrivateName(
    "tensorflow.python.eager.polymorphic_function.concrete_function",
    "ConcreteFunction._call_flat",
    Function("self", "tensor_inputs", "captured_inputs"),
)
_BIND = PrivateName(
    "tensorflow.python.eager.polymorphic_function.function_type_utils",
    "canonicalize_function_inputs",
    Function("args", "kwargs", "function_type"),
)
_INFERENCE = PrivateName(
    "tensorflow.python.eager.polymorphic_function.concrete_function",
    "ConcreteFunction",
    Class("captured_inputs", "inference_fn"),
)
_ATOMIC = PrivateName(
    "tensorflow.python.eager.polymorphic_function.atomic_function",
    "AtomicFunction",
    Class(
        "name",
        "function_type",
        "call_options",
        "children",
        "graph",
        members={
            "__init__": Function(
                "self",
                "name",
                "bound_context",
                "function_type",
                keywords=("children", "call_options", "cached_graph"),
            )
        },
    ),
)
_FROM_DEFINITION = PrivateName(
    "tensorflow.python.framework.function", "_from_definition", Function("fdef")
)
_GRAPH_OF_DEFINITION = PrivateName(
    "tensorflow.python.framework.function_def_to_graph", "function_def_to_graph", Function("fdef")
)
_INTERPOLATION = PrivateName(
    "tensorflow.python.eager.polymorphic_function.atomic_function",
    "InterpolateRuntimeError",
    Class("__enter__", "__exit__", members={"__init__": Function("self", "top_level_func")}),
)
_GRAPH = PrivateName(
    "tensorflow",
    "Graph",
    Class(
        members={
            "_add_function_recursive": Function("self", "function"),
            "_attr_scope": Function("self", "attr_map"),
        },
        assigned=("_attr_scope_map", "_functions"),
    ),
)
_FUNC_GRAPH = PrivateName("tensorflow.python.framework.func_graph", "FuncGraph", Class("capture"))
_COND_BRANCH = PrivateName(
    "tensorflow.python.ops.control_flow_v2_func_graphs", "CondBranchFuncGraph", Class()
)
_WHILE_BODY = PrivateName(
    "tensorflow.python.ops.control_flow_v2_func_graphs", "WhileBodyFuncGraph", Class()
)
_WHILE_CONDITION = PrivateName(
    "tensorflow.python.ops.control_flow_v2_func_graphs", "WhileCondFuncGraph", Class()
)
_READ_ONLY = PrivateName(
    "tensorflow.python.framework.auto_control_deps_utils",
    "get_read_only_resource_input_indices_graph",
    Function("func_graph"),
)
_NUMBER = PrivateName("tensorflow.python.framework.ops", "uid", Function())
_COMPILATION = PrivateName(
    "tensorflow.python.eager.polymorphic_function",
    "tracing_compilation",
    Module(
        trace_function=Function("args", "kwargs", "tracing_options"),
        TracingOptions=Function("python_function", "name", keywords=("autograph",)),
    ),
)
_LIFT = PrivateName(
    "tensorflow.python.eager.lift_to_graph",
    "lift_to_graph",
    Function("tensors", "graph", "sources"),
)
_UNLIFTABLE = PrivateName("tensorflow.python.ops.op_selector", "UnliftableError", Class())
_PATHS = PrivateName(
    "tensorflow.python.util.nest", "flatten_with_tuple_paths", Function("structure")
)


def autograph_of(function: Any) -> bool:
    """Whether a `tf.function` was made with `autograph`, which it does not tell."""
    _TF_FUNCTION.get()
    return function._autograph


def jit_compile_of(function: Any) -> bool | None:
    """Returns the `jit_compile` that a `tf.function` was made with; `None` for other functions."""
    _TF_FUNCTION.get()
    return getattr(function, "_jit_compile", None)


def call_with_captures(concrete: Any, tensors: Sequence[Any], captures: Sequence[Any]) -> Any:
    """Calls a traced function with other captures than those that it was traced with."""
    _CALL_FLAT.get()
    return concrete._call_flat(list(tensors), list(captures))


def call_without_gradients(concrete: Any, tensors: Sequence[Any]) -> Any:
    """Calls a traced function in a graph, where no tape records it, nor a gradient is set."""
    _INFERENCE.get()
    _ATOMIC.get()
    function = concrete.inference_fn
    return function.function_type.pack_output(
        function.call_flat(*tensors, *concrete.captured_inputs)
    )


def watch_variables(graph: Any, variables: Iterable[Any]) -> None:
    """Notes in the graph of a function that it takes these variables."""
    _FUNC_GRAPH.get()
    for variable in variables:
        graph.watch_variable(variable)


def tensors_given(concrete: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Returns the tensors that a traced function gets of its arguments, without its captures."""
    bound = _BIND.get()(args, kwargs, concrete.function_type)
    return concrete.function_type.unpack_inputs(bound)


class EagerCall:
    """Calls a traced function with its own captures, eagerly and where no tape may record.

    A usual call comes to the same after some 50 us of questions about tapes and graphs. What is
    the same for all calls is asked once here, so the function must capture nothing more later.
    """

    def __init__(self, concrete: Any):
        _INFERENCE.get()
        _ATOMIC.get()
        function = concrete.inference_fn
        self._name = function.name
        self._captures = tuple(concrete.captured_inputs)
        self._num_outputs = len(function.function_type.flat_outputs)
        self._packed = function.function_type.pack_output
        # Adds to the error of an operation the place in the user's code that made the
        # operation.
        self._explained = _INTERPOLATION.get()(function)

    def __call__(self, tensors: Sequence[Any]) -> Any:
        """Runs the function with eager tensors of the types that it was traced with."""
        with self._explained:
            outputs = eager_context().call_function(
                self._name, [*tensors, *self._captures], self._num_outputs
            )
        return self._packed(outputs)


def defined_like(
    concrete: Any, definitions: Sequence[tuple[str, Any]], called: Sequence[Any] = ()
) -> Any:
    """Makes a traced function that runs other definitions than those of its graph.

    Args:
        concrete: A `tf.ConcreteFunction` whose signature, captures and graph it has.
        definitions: The new `FunctionDef`s of what it calls, and of itself as the last, each with
            the name of what it takes the place of.
        called: Further functions that these call, each a `tf.ConcreteFunction`, which are kept
            alive.

    Returns:
        A `tf.ConcreteFunction`, which keeps the given one alive. Gradients are those of its graph.
    """
    make, context = _ATOMIC.get(), eager_context()
    for _, definition in definitions:
        context.add_function_def(definition)
    called_by_it = _with_called(concrete.inference_fn)
    # The name of a `Defun` is a text.
    known = {tf.compat.as_str(function.name): function for function in called_by_it}
    # A graph is given the function's own children only, so all that is called is among them.
    whole = concrete.inference_fn
    made: list[Any] = []
    further = [each.inference_fn for each in called]
    for name, definition in definitions:
        like = known[name]
        if not hasattr(like, "call_options"):
            made.append(_FROM_DEFINITION.get()(definition))
            continue
        # What has effects is called as such, so that no call of it is left out.
        has_effects = like.call_options.is_stateful or definition.signature.is_stateful
        made.append(
            make(
                definition.signature.name,
                context,
                like.function_type,
                children=[*known.values(), *further, *made] if like is whole else [like],
                call_options=replace(like.call_options, is_stateful=has_effects),
                cached_graph=like.graph,
            )
        )
    found = _INFERENCE.get()(made[-1])
    # Structured calls look these up, which whoever traces a function sets.
    found._arg_keywords = concrete._arg_keywords
    found._num_positional_args = concrete._num_positional_args
    return found


def _with_called(function: Any) -> Iterator[Any]:
    """Yields an atomic function and all that it calls, once or more; a `Defun` has no children."""
    yield function
    for called in getattr(function, "children", ()):
        yield from _with_called(called)


def traced_where_variables_are_made(
    function: Callable[..., Any], specs: Sequence[Any], name: str
) -> Any:
    """Traces a function that may make variables whenever it is traced, for tensors of these specs.

    Variables are made as they would be without the function, in the graph around all functions
    if there is one. A `tf.function` would make them in its first trace only.
    """
    compilation = _COMPILATION.get()

    def making(*tensors: Any) -> Any:
        with tf.variable_creator_scope(_in_outer_graph):
            return function(*tensors)

    options = compilation.TracingOptions(making, name, autograph=False)
    return compilation.trace_function(list(specs), {}, options)


def _in_outer_graph(create: Callable[..., Any], **options: Any) -> Any:
    """Makes a variable whose initial value may come from a traced function, as random ones do."""
    value = options.get("initial_value")
    if tf.is_tensor(value) and is_trace(getattr(value, "graph", None)):
        with tf.init_scope():
            if not tf.executing_eagerly():
                graph = tf.compat.v1.get_default_graph()
                options["initial_value"] = _lifted(value, graph)
    # A function can capture only resources, not the reference variables of TensorFlow 1.
    if not options.get("use_resource", True):
        options["use_resource"] = True
    return create(**options)


def _lifted(tensor: Any, graph: Any) -> Any:
    # Where random numbers are drawn: variables of the outer graph, not what a function is given.
    handles = _handles_of(tensor, graph)
    try:
        found = _LIFT.get()([tensor], graph, sources=[inside for inside, _ in handles])
        for inside, outside in handles:
            for user in found[inside].consumers():
                set_input(user, outside)
        return found[tensor]
    except _UNLIFTABLE.get() as error:
        raise ValueError(
            "The initial value of a variable must not depend on what a function or a body is "
            "given, as the variable is initialized before that runs. Received: the initial value "
            f"{tensor!r}"
        ) from error


def _handles_of(tensor: Any, graph: Any) -> list[tuple[Any, Any]]:
    """The captured handles that a tensor is computed from, each with what it is in a graph."""
    pending, seen, found = [tensor.op], set(), []
    while pending:
        op = pending.pop()
        if op in seen:
            continue
        seen.add(op)
        pending.extend(each.op for each in op.inputs)
        if op.type == "Placeholder" and op.outputs[0].dtype == tf.resource:
            outside = _outside(op.outputs[0])
            if outside is not None and outside.graph is graph:
                found.append((op.outputs[0], outside))
    return found


def _outside(captured: Any) -> Any:
    """What a captured tensor is outside of all functions; `None` if it is no captured one."""
    while is_trace(captured.graph):
        captured = next(
            (outside for outside, inside in captured.graph.captures if inside is captured), None
        )
        if captured is None:
            return None
    return captured


def functions_in(graph: Any) -> Mapping[str | bytes, Any]:
    """Returns the functions that a graph knows, by name; its `GraphDef` has no graphs of them."""
    _GRAPH.get()
    return graph._functions


def graph_of_function(function: Any) -> Any:
    """Returns the graph of a function; that of a `Defun` of TensorFlow 1 is made."""
    if hasattr(function, "graph"):
        return function.graph
    return _GRAPH_OF_DEFINITION.get()(function.definition)


def make_functions_known(graph: Any) -> None:
    """Makes TensorFlow know the functions of a graph without the graph.

    It does so itself, but for a `Defun` of TensorFlow 1 in the graph of a session.
    """
    context = eager_context()
    for name, function in functions_in(graph).items():
        if not context.has_function(name):
            context.add_function_def(function.definition)


def add_function(graph: Any, function: Any) -> None:
    """Adds a function to a graph, with all functions that it calls, as a call there would."""
    _GRAPH.get()
    graph._add_function_recursive(function)


def attribute_scope(graph: Any, attributes: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """While this is open, all new operations of a graph get these attributes."""
    _GRAPH.get()
    return graph._attr_scope(attributes)


def attribute_of_new(graph: Any, name: str) -> Any:
    """Returns the `AttrValue` that new operations of a graph get for an attribute; or `None`."""
    _GRAPH.get()
    return graph._attr_scope_map.get(name)


def set_attribute_of_new(graph: Any, name: str, value: Any) -> None:
    """Gives new operations of a graph an attribute from now on; `None` takes it away."""
    _GRAPH.get()
    graph._attr_scope_map.pop(name, None)
    if value is not None:
        graph._attr_scope_map[name] = value


def new_trace() -> Any:
    """Makes an empty graph of a function, in which TensorFlow folds what is known statically."""
    return _FUNC_GRAPH.get()("trace")


def is_trace(graph: Any) -> bool:
    """Whether a graph belongs to a function, and not to a session."""
    return isinstance(graph, _FUNC_GRAPH.get())


def outermost_trace() -> Any:
    """Returns the graph of the outermost function that is being traced; `None` if there is none."""
    graph, found = tf.compat.v1.get_default_graph(), None
    while is_trace(graph):
        graph, found = graph.outer_graph, graph
    return found


def is_branch_or_loop(graph: Any) -> bool:
    """Whether a graph is that of a branch or a loop, which run as part of the graph around them."""
    kinds = (_COND_BRANCH.get(), _WHILE_BODY.get(), _WHILE_CONDITION.get())
    return isinstance(graph, kinds)


def read_only_inputs(graph: Any) -> Sequence[int]:
    """Returns the positions of inputs that are handles of variables which a graph only reads."""
    return _READ_ONLY.get()(graph)


def unused_number() -> int:
    """Returns a number that no other function of the process has in its name."""
    return _NUMBER.get()()


def leaves_with_paths(structure: Any) -> list[tuple[tuple, Any]]:
    """Returns the leaves of a structure with their paths, which `tf.nest.flatten` does not give."""
    return _PATHS.get()(structure)
