"""Checks whether a graph hangs together: for graphs from files that anybody may write."""

from collections.abc import Callable, Mapping
from typing import Any

from ipu_keras.ir.graph import Graph, Op

_Check = Callable[[Any], bool]


def _integer(value: Any) -> bool:
    return type(value) is int


def _number(value: Any) -> bool:
    return type(value) in (int, float, bool)


def _text(value: Any) -> bool:
    return type(value) is str


def _truth(value: Any) -> bool:
    return type(value) is bool


def _integers(value: Any) -> bool:
    return type(value) is tuple and all(map(_integer, value))


def _pairs(value: Any) -> bool:
    return type(value) is tuple and all(_integers(pair) and len(pair) == 2 for pair in value)


def _triples(value: Any) -> bool:
    return type(value) is tuple and all(_integers(one) and len(one) == 3 for one in value)


def _truths(value: Any) -> bool:
    return type(value) is tuple and all(map(_truth, value))


def _texts(value: Any) -> bool:
    return type(value) is tuple and all(map(_text, value))


def _integer_or_none(value: Any) -> bool:
    return value is None or _integer(value)


# Checks by name of an attribute. Attributes without one may be anything. Types are compared
# exactly, as True would pass for an integer.
_KINDS: Mapping[str, _Check] = {
    **dict.fromkeys(
        (
            *("batch_group_count", "feature_group_count", "feature_index", "first_leaf"),
            *("index_vector_dim", "input_batch_dimension", "input_feature_dimension", "k"),
            *("kernel_input_feature_dimension", "kernel_output_feature_dimension", "num_drawn"),
            *("num_replicas", "number", "output_batch_dimension", "output_feature_dimension"),
            "result",
        ),
        _integer,
    ),
    **dict.fromkeys(
        (
            *("base_dilation", "collapsed_slice_dims", "dimensions", "edge_padding_high"),
            *("edge_padding_low", "fft_length", "input_batching_dims", "input_spatial_dimensions"),
            *("inserted_window_dims", "interior_padding", "kernel_spatial_dimensions"),
            *("lhs_batch_dimensions", "lhs_contracting_dimensions", "limit", "num_branch_inputs"),
            *("offset_dims", "operand_batching_dims", "output_spatial_dimensions", "progression"),
            *("rhs_batch_dimensions", "rhs_contracting_dimensions", "scatter_dims_to_operand_dims"),
            *("scatter_indices_batching_dims", "slice_sizes", "start", "start_index_map"),
            *("start_indices_batching_dims", "stride", "update_window_dims", "window_dilation"),
            *("window_size", "window_stride"),
        ),
        _integers,
    ),
    **dict.fromkeys(
        (
            *("custom_call_target", "direction", "distribution", "fft_type", "name", "operation"),
            *("rng_algorithm", "role", "select"),
        ),
        _text,
    ),
    **dict.fromkeys(
        ("indices_are_sorted", "is_stable", "largest", "not_lowered", "unique_indices"), _truth
    ),
    **dict.fromkeys(("max_trip_count", "trip_count"), _integer_or_none),
    **dict.fromkeys(("memory_proportion", "value"), _number),
    "counters": _triples,
    "operations": _texts,
    "window_padding": _pairs,
    "window_reversal": _truths,
}

_WINDOW = (
    *("window_size", "window_stride", "window_padding", "base_dilation", "window_dilation"),
    "window_reversal",
)

# Attributes that operations of HLO always have, by kind.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("broadcast", "concatenate", "iota", "reverse", "transpose"), ("dimensions",)),
    **dict.fromkeys(("all-gather", "all-reduce", "all-to-all"), ("dimensions", "num_replicas")),
    "compare": ("direction",),
    "conditional": ("num_branch_inputs",),
    "convolution": (
        *_WINDOW,
        *("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions"),
        *("kernel_input_feature_dimension", "kernel_output_feature_dimension"),
        *("kernel_spatial_dimensions", "output_batch_dimension", "output_feature_dimension"),
        *("output_spatial_dimensions", "feature_group_count", "batch_group_count"),
    ),
    "dot": (
        *("lhs_contracting_dimensions", "rhs_contracting_dimensions"),
        *("lhs_batch_dimensions", "rhs_batch_dimensions"),
    ),
    "dynamic-slice": ("slice_sizes",),
    "fft": ("fft_type", "fft_length"),
    "gather": (
        *("offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim"),
        *("operand_batching_dims", "start_indices_batching_dims", "slice_sizes"),
        "indices_are_sorted",
    ),
    "pad": ("edge_padding_low", "edge_padding_high", "interior_padding"),
    "parameter": ("number", "first_leaf"),
    "poplar-call": ("operation",),
    "reduce": ("dimensions", "operation"),
    "reduce-window": (*_WINDOW, "operation"),
    "scatter": (
        *("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims"),
        *("index_vector_dim", "input_batching_dims", "scatter_indices_batching_dims"),
        *("indices_are_sorted", "unique_indices", "operation"),
    ),
    "select-and-scatter": (*_WINDOW, "select", "operation"),
    "slice": ("start", "limit", "stride"),
    "sort": ("dimensions", "is_stable", "direction"),
    "topk": ("k", "largest"),
    "while": ("trip_count", "max_trip_count"),
}


def check_graph(graph: Graph) -> None:
    """Raises a ValueError if a graph lacks what it names, or has attributes of other types."""
    if graph.form != "hlo":
        raise ValueError(f"a traced graph is of form 'hlo', and not {graph.form!r}")
    for name, function in graph.functions.items():
        if function.functions:
            raise ValueError(f"the function {name!r} has functions of its own")
        _check_ops(function, graph.functions)
    _check_ops(graph, graph.functions)
    _check_calls(graph)


def _check_ops(graph: Graph, functions: Mapping[str, Graph]) -> None:
    made: set[str] = set()
    for op in graph.ops:
        missing = [
            *(name for name in (*op.inputs, *op.after) if name not in made),
            *(name for name in op.body if name not in functions),
        ]
        if missing:
            raise ValueError(f"{op.name!r} needs {missing[0]!r}, which is not there before it")
        _check_op(op)
        names = _values_of(op)
        if not made.isdisjoint(names):
            raise ValueError(f"there are two operations of the name {op.name!r}")
        made.update(names)
    lost = [name for name in graph.results if name not in made]
    if lost:
        raise ValueError(f"the result {lost[0]!r} is not computed")


def _values_of(op: Op) -> set[str]:
    """Returns its name, by which others wait for it, and those of its results."""
    several = {f"{op.name}:{k}" for k in range(len(op.outputs))} if len(op.outputs) != 1 else set()
    return {op.name, *several}


def _check_op(op: Op) -> None:
    for spec in op.outputs:
        if not spec.dtype or any(size < -1 for size in spec.shape):
            raise ValueError(f"{op.name!r} has an output of shape {spec.shape}, {spec.dtype!r}")
    lacking = [name for name in _NEEDED.get(op.kind, ()) if name not in op.attributes]
    if lacking:
        raise ValueError(f"{op.name!r} of kind {op.kind!r} has no attribute {lacking[0]!r}")
    for name, value in op.attributes.items():
        if name in _KINDS and not _KINDS[name](value):
            raise ValueError(f"{op.name!r} has the attribute {name!r} of {value!r:.100}")


def _check_calls(graph: Graph) -> None:
    """Checks that no function calls itself."""
    finished: set[str] = set()
    open_calls: set[str] = set()

    def visit(name: str) -> None:
        if name in open_calls:
            raise ValueError(f"the function {name!r} calls itself")
        if name in finished:
            return
        open_calls.add(name)
        for op in graph.functions[name].ops:
            for called in op.body:
                visit(called)
        open_calls.remove(name)
        finished.add(name)

    for name in graph.functions:
        visit(name)
