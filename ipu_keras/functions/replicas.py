"""Has all replicas of a device run functions together, with what they read and send."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.feeds.result_queues import ResultQueue
from ipu_keras.functions.graph_programs import GraphProgram, note_outfeed, programs_in
from ipu_keras.functions.parts_for_xla import is_worth_compiling
from ipu_keras.functions.place import Place, outermost_graph, refuse_replicas
from ipu_keras.host.operation_kinds import lacked_by_xla
from ipu_keras.host.replicas.inlining import inlined
from ipu_keras.host.replicas.replica_variables import ReplicaVariables, written_captures
from ipu_keras.host.replicas.segments import replicate
from ipu_keras.host.replicas.together import (
    Together,
    by_all_replicas,
    done_together,
    label_of,
)
from ipu_keras.ir import Graph
from ipu_keras.tracing import has_exchanges
from ipu_keras.tracing.extraction import feeds_of
from ipu_keras.tracing.replication import current_replicas, num_shards_of

# Collection of a function's graph: whether replicas take elements in turn, or write outfeeds.
_FEEDS = "ipu_feeds_of_replicas"


def note_read() -> None:
    """Notes in the graph that is being traced that each replica reads an infeed.

    A trace for one replica is refused if the device has several.
    """
    if _replicas_of_trace("An infeed is read") > 1:
        outermost_graph().add_to_collection(_FEEDS, True)


def send(queue_for: Callable[[int], ResultQueue], tensors: Sequence[tf.Tensor]) -> Any:
    """Has each replica send a result; returns the operation that does it.

    A trace for one replica is refused if the device has several.
    """
    num_replicas = _replicas_of_trace("An outfeed is written")
    queue = queue_for(num_replicas)
    note_outfeed(queue, 1)
    if num_replicas == 1:
        return queue.write([tensor[None] for tensor in tensors])
    outermost_graph().add_to_collection(_FEEDS, True)
    # The queue holds the results of all replicas, which have another shape than those of one.
    # This write stands for one write of all.
    with by_all_replicas(lambda _: _writer(queue)):
        return tf.raw_ops.QueueEnqueueV2(handle=queue.handle, components=list(tensors))


def run_by_all(
    concrete: Any, graph: Graph, place: Place, *, jit_compile: bool | None
) -> tuple[ReplicaVariables, Callable] | None:
    """Makes what all replicas of a device do that run a function, traced for one of them.

    Returns:
        The replicas' variables, and a function of the tensors that each of them gets, which
        returns what replica 0 does. `None` if nobody would notice that there are several.

    Raises:
        NotImplementedError: A loop or a pipeline in it is a program of another number of
            replicas, and replicas exchange values, read or send outside of that too.
        ValueError: The device has not enough IPUs.
    """
    num_replicas = place.num_replicas_with_shards(num_shards_of(concrete.graph))
    programs = programs_in(concrete.graph)
    exchanges = has_exchanges(concrete.graph)
    is_each_alone = exchanges or concrete.graph.get_collection(_FEEDS)
    if num_replicas == 1 and not exchanges:  # which it may do with other processes
        return None
    if not (is_each_alone or _are_shared(concrete, programs)):
        return None
    if any(one.num_replicas != num_replicas for one in programs):
        if is_each_alone:
            _refuse_other_replicas(programs, num_replicas)
        return None
    variables = ReplicaVariables(
        [concrete], num_replicas, place.device, [one.variables for one in programs if one.variables]
    )
    lacked = lacked_by_xla(graph)
    together = replicate(
        concrete,
        num_replicas,
        variables.captures_of,
        parts_for_xla=bool(jit_compile and lacked) and is_worth_compiling(concrete, graph),
        labelled=done_together(concrete.graph, variables),
    )

    def run(*tensors: tf.Tensor) -> Any:
        return together([list(tensors)] * num_replicas)[0]

    compiled = bool(jit_compile) and not lacked
    function = tf.function(run, autograph=False, jit_compile=compiled)
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in feeds_of(concrete)]
    # Calling the function would have TensorFlow count how often a function of this place is
    # traced, and warn.
    return variables, function.get_concrete_function(*specs)


def _are_shared(concrete: Any, programs: Sequence[GraphProgram]) -> bool:
    """Whether others in the function may need what a program makes of a replica's values."""
    if len(programs) != 1:
        return bool(programs)
    flat = inlined(concrete, lambda op: label_of(op) is not None)
    written = {handle.ref() for handle in written_captures(flat)}
    used = [
        inside.consumers() for outside, inside in flat.graph.captures if outside.ref() in written
    ]
    return any(len(users) > 1 and any(map(label_of, users)) for users in used)


def _refuse_other_replicas(programs: Sequence[GraphProgram], num_replicas: int) -> None:
    found = [f"{one.executable.program.name!r} with {one.num_replicas}" for one in programs]
    raise NotImplementedError(
        "A function in which replicas exchange values, read or send beside a loop of a fixed "
        "length or a pipeline has as many replicas as each of these. If a replica has several "
        "IPUs, enter their scopes of `ipu_shard` before all of them. Received: "
        f"{', '.join(found)}, in a function with {num_replicas} replicas"
    )


def _replicas_of_trace(what: str) -> int:
    num_replicas = current_replicas()
    if num_replicas == 1:
        # This may be a trace that a user has made, for one replica.
        refuse_replicas(what)
    return num_replicas


def _writer(queue: ResultQueue) -> Together:
    def write(by_replica: Sequence[Sequence[tf.Tensor]]) -> list[list[tf.Tensor]]:
        _, *tensors = zip(*by_replica, strict=True)
        queue.write([tf.stack(values)[None] for values in tensors])
        return [[] for _ in by_replica]

    return write
