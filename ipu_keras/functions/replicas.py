"""Functions that all replicas of a device run together, with what they read and send."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.device import IpuDevice
from ipu_keras.feeds.result_queues import ResultQueue
from ipu_keras.functions.graph_programs import outermost_graph, programs_in
from ipu_keras.functions.parts_for_xla import is_worth_compiling
from ipu_keras.functions.place import Place, refuse_replicas
from ipu_keras.host.operation_kinds import lacked_by_xla
from ipu_keras.host.replica_variables import ReplicaVariables
from ipu_keras.host.segments import replicate
from ipu_keras.ir import Graph
from ipu_keras.tracing import EXCHANGES
from ipu_keras.tracing.outfeeds import mark_results
from ipu_keras.tracing.replication import current_replicas, num_shards_of

# In the graphs of functions: that replicas take elements in turn, and the outfeeds they write.
_READS = "ipu_reads_of_replicas"
_OUTFEEDS = "ipu_outfeeds_of_replicas"


def note_read() -> None:
    """Notes in the graph that is being traced that each replica reads an infeed.

    Raises:
        NotImplementedError: The device has several replicas, and the trace is for one.
    """
    if _replicas_of_trace("An infeed is read") > 1:
        outermost_graph().add_to_collection(_READS, True)


def send(queue_for: Callable[[int], ResultQueue], tensors: Sequence[tf.Tensor]) -> Any:
    """Has each replica send a result.

    Args:
        queue_for: The queue for a number of replicas.
        tensors: Of the result of one.

    Returns:
        The operation that does it.

    Raises:
        NotImplementedError: The device has several replicas, and the trace is for one.
    """
    num_replicas = _replicas_of_trace("An outfeed is written")
    queue = queue_for(num_replicas)
    if num_replicas == 1:
        return queue.write([tensor[None] for tensor in tensors])
    outfeeds = outermost_graph().get_collection_ref(_OUTFEEDS)
    outfeeds.append(queue)
    return mark_results(queue.handle, tensors, str(len(outfeeds) - 1))


def run_by_all(
    concrete: Any, graph: Graph, device: IpuDevice, *, jit_compile: bool | None
) -> tuple[ReplicaVariables, Callable] | None:
    """What all replicas of a device do that run a function.

    Args:
        concrete: Its trace for one of them, a `tf.ConcreteFunction`.
        graph: Its graph.
        device: Which runs it.
        jit_compile: Whether XLA should compile it.

    Returns:
        Their variables, and a function of the tensors that each of them gets, which returns what
        replica 0 does. `None` if nobody would notice that there are several.

    Raises:
        NotImplementedError: There is a loop or a pipeline in it that is a program, and replicas
            exchange values, read or send outside of that too.
        ValueError: The device has not enough IPUs.
    """
    num_replicas = Place(device).num_replicas_with_shards(num_shards_of(concrete.graph))
    outfeeds = concrete.graph.get_collection(_OUTFEEDS)
    exchanges = bool(EXCHANGES & graph.kinds)
    if num_replicas == 1 or not (exchanges or outfeeds or concrete.graph.get_collection(_READS)):
        return None
    if programs_in(concrete.graph):
        refuse_replicas("Beside a program in the same function, something is done", num_replicas)
    variables = ReplicaVariables([concrete], num_replicas, device)
    lacked = lacked_by_xla(graph)
    together = replicate(
        concrete,
        num_replicas,
        variables.captures_of,
        parts_for_xla=bool(jit_compile and lacked) and is_worth_compiling(concrete, graph),
        outfeeds={str(k): _writer(queue) for k, queue in enumerate(outfeeds)},
    )

    def run(*tensors: tf.Tensor) -> Any:
        return together([list(tensors)] * num_replicas)[0]

    compiled = bool(jit_compile) and not lacked
    return variables, tf.function(run, autograph=False, jit_compile=compiled)


def _replicas_of_trace(what: str) -> int:
    num_replicas = current_replicas()
    if num_replicas == 1:
        # In a trace that a user has made, say.
        refuse_replicas(what)
    return num_replicas


def _writer(queue: ResultQueue) -> Callable[[Sequence[Sequence[tf.Tensor]]], Any]:
    def write(by_replica: Sequence[Sequence[tf.Tensor]]) -> Any:
        return queue.write([tf.stack(values)[None] for values in zip(*by_replica, strict=True)])

    return write
