"""Defines graphs as frozen values: what a step computes, op by op."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ipu_keras.ir.tensor_spec import TensorSpec

# Marks an operation that is in TensorFlow's words within an HLO graph, because XLA lacks it.
NOT_LOWERED = "not_lowered"

# Kinds of operations of HLO graphs that XLA does not have: what one operation of Poplar's
# libraries computes, by the graph that is its `body`; a value that recomputation keeps; and
# gradients where features are positive, else zeros.
POPLAR_CALL = "poplar-call"
CHECKPOINT = "recomputation-checkpoint"
RELU_GRADIENT = "relu-gradient"

# Activation functions for which popnn has a vertex, and another for the gradient, by the names
# of the operations that trace them; their kinds as elementwise operations, which XLA lacks.
POPNN_ACTIVATIONS = {"Gelu": "gelu", "Swish": "swish"}


@dataclass(frozen=True)
class Op:
    """One operation of a graph.

    Args:
        name: Unique within its graph; carries the layer's name scope.
        kind: The operation type, in the words of the graph's `form`: XLA's, such as `"dot"`, or
            TensorFlow's, such as `"MatMul"`.
        outputs: Specs of its results. A dimension that tracing could not find is -1.
        stateful: Whether it writes something that outlives the graph's run.
        body: Names of the graphs that it calls: loop bodies, branches, called functions.
        inputs: The values that it takes: the name of an op for its only result, `"name:k"` for
            result k of several.
        after: Names of operations that must have run before, without a value.
        attributes: What else the operation's work depends on, by XLA's names, such as the
            contracted dimensions of a `"dot"`; for TensorFlow's operations only the `"seeds"` of
            draws, and the most `"turns"` of loops that say them.
        layer: Path of the Keras layer or name scope that asked for it; empty if unknown.
        backward: Whether it belongs to the gradient of that layer.
        poplar_operation: The scope of one operation of Poplar's libraries that it is a part of,
            together with all others of that scope; empty if it is none, or the whole.
        shard: Which of a replica's IPUs it was traced for, if that was said.
        partials_dtype: In which its products are added up, `"float16"` or `"float32"`; empty if
            that was not chosen for it alone.
        memory_proportion: Share of a tile's memory that temporaries of its products may take;
            `None` if that was not chosen for it alone.
    """

    name: str
    kind: str
    outputs: tuple[TensorSpec, ...] = ()
    stateful: bool = False
    body: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    layer: str = ""
    backward: bool = False
    stage: int | None = None
    weight_update: bool = False
    poplar_operation: str = ""
    shard: int | None = None
    partials_dtype: str = ""
    memory_proportion: float | None = None


@dataclass(frozen=True)
class Graph:
    """A traced computation and the graphs that its operations call.

    Args:
        ops: Operations in the order of tracing: each after those whose results it takes.
        functions: Called graphs by name; they have no functions of their own.
        results: What the graph returns, named as in `Op.inputs`.
        form: In whose words the ops are: `"tensorflow"` or `"hlo"`.
    """

    name: str
    ops: tuple[Op, ...]
    functions: Mapping[str, "Graph"] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    form: str = "tensorflow"

    @property
    def kinds(self) -> frozenset[str]:
        """Types of its operations, those of called graphs included."""
        return frozenset(op.kind for op in self.walk())

    @property
    def writes_state(self) -> bool:
        """Whether running it changes what a later run sees."""
        return any(op.stateful for op in self.walk())

    def of_op(self, op: Op) -> "Graph":
        """Returns the graph of one of its operations, with what that one calls."""
        return Graph(op.name, (op,), self.functions, form=self.form)

    def walk(self) -> Iterator[Op]:
        """Yields every operation once, those of called graphs included."""
        seen: set[str] = set()
        pending = [self]
        while pending:
            graph = pending.pop()
            for op in graph.ops:
                yield op
                for name in op.body:
                    if name in self.functions and name not in seen:
                        seen.add(name)
                        pending.append(self.functions[name])


@dataclass(frozen=True, kw_only=True)
class LayeredStep:
    """A step whose layer k was traced in the scope of stage k, for pipelines of any stages.

    Args:
        together: First and last layer of runs that may not be cut, as they share variables.
    """

    graph: Graph
    num_layers: int
    together: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Variants:
    """Traces the step of a Keras model as it would be if the model were written in another way.

    What is promised of a change is traced so first.

    Each function gives `None` if the model cannot be written so.

    Args:
        in_dtype: Gives the graph with layers of a dtype, by its name. Losses and what layers keep
            in float32 stay so, unlike in `with_precision`.
        by_layer: Gives the step by layer; of a dtype, or of that of the model for `None`.
    """

    in_dtype: Callable[[str], Graph | None]
    by_layer: Callable[[str | None], LayeredStep | None]
