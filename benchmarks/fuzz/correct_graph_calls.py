"""Correct calls of what programs in graphs are made of, and of the older functions of `utils`."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from correct_call import Call, configure
from tensorflow.python import ipu

import ipu_keras

v1 = tf.compat.v1
IPU = "/device:IPU:0"


def graph_calls() -> list[Call]:
    """All of them."""
    return [*_loop_calls(), *_queue_calls(), *_pipeline_calls(), *_scope_calls(), *_util_calls()]


def _dataset(*shape: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(np.ones(shape, np.float32)).repeat()


def _traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, traced for the machine and not run, as wrong loops may have no end."""

    def run(**arguments):
        configure()
        with tf.Graph().as_default(), ipu.scopes.ipu_scope(IPU):
            ipu.ipu_compiler.compile(lambda: function(**arguments))

    return run


def _loop_calls() -> list[Call]:
    # Whatever they are given: errors of users' functions name no argument.
    def same(*given):
        return given

    def never(*given):
        return tf.constant(False)

    return [
        Call(
            "loops.repeat",
            _traced(ipu.loops.repeat),
            {
                "n": 2,
                "body": same,
                "inputs": [1.0],
                "infeed_queue": None,
                "use_while_v1": True,
            },
        ),
        Call(
            "loops.while_loop",
            _traced(ipu.loops.while_loop),
            {
                "condition": never,
                "body": same,
                "inputs": [1.0],
                "infeed_queue": None,
                "maximum_iterations": 4,
                "use_while_v1": True,
            },
        ),
        Call(
            "ipu_compiler.compile",
            _compiled,
            {"computation": lambda *given: tf.nest.flatten(given), "inputs": [1.0]},
        ),
    ]


def _compiled(**arguments: Any) -> Any:
    configure()
    with tf.Graph().as_default(), ipu.scopes.ipu_scope(IPU):
        return ipu.ipu_compiler.compile(**arguments)


def _queue_calls() -> list[Call]:
    def sent(**arguments):
        queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        _traced(queue.enqueue)(**arguments)

    return [
        Call(
            "IPUInfeedQueue",
            ipu.ipu_infeed_queue.IPUInfeedQueue,
            {
                "dataset": _dataset(2, 3),
                "feed_name": "feed",
                "device_ordinal": 0,
                "replication_factor": 1,
                "data_to_prefetch": 1,
                "prefetch_depth": 2,
            },
        ),
        Call(
            "IPUOutfeedQueue",
            ipu.ipu_outfeed_queue.IPUOutfeedQueue,
            {
                "feed_name": "feed",
                "outfeed_mode": ipu.ipu_outfeed_queue.IPUOutfeedMode.ALL,
                "device_ordinal": 0,
                "replication_factor": 1,
                "io_batch_size": 1,
            },
        ),
        Call("IPUOutfeedQueue.enqueue", sent, {"tensors": np.ones(2, np.float32)}),
        Call(
            "BufferDataset",
            ipu.data.ops.dataset_ops.BufferDataset,
            {"input_dataset": _dataset(2), "buffer_size": 3},
        ),
        Call(
            "dataset_benchmark",
            ipu.dataset_benchmark.dataset_benchmark,
            {
                "dataset": _dataset(2),
                "number_of_epochs": 1,
                "elements_per_epochs": 2,
                "print_stats": False,
                "apply_options": True,
                "do_memcpy": True,
            },
        ),
    ]


def _pipeline_calls() -> list[Call]:
    def first(x):
        return x @ v1.get_variable("weights", [3, 3], use_resource=True)

    def optimizer(loss):
        return ipu.pipelining_ops.OptimizerFunctionOutput(
            v1.train.GradientDescentOptimizer(0.1), loss
        )

    def pipelined(**given):
        configure()
        with tf.Graph().as_default(), ipu.scopes.ipu_scope(IPU):
            infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(_dataset(2, 3))
            outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
            feeds = {"infeed_queue": infeed, "outfeed_queue": outfeed}
            feeds = {name: queue for name, queue in feeds.items() if given[name] is _QUEUE}
            ipu.ipu_compiler.compile(lambda: ipu.pipelining_ops.pipeline(**given | feeds))

    arguments = {
        name: parameter.default
        for name, parameter in inspect.signature(ipu.pipelining_ops.pipeline).parameters.items()
    }
    arguments |= {
        "computational_stages": [first, tf.reduce_sum],
        "gradient_accumulation_count": 4,
        "infeed_queue": _QUEUE,
        "outfeed_queue": _QUEUE,
        "optimizer_function": optimizer,
        "device_mapping": [0, 0],
        "pipeline_schedule": ipu.pipelining_ops.PipelineSchedule.Grouped,
    }
    del arguments["inputs"]
    return [
        Call("pipeline", pipelined, arguments),
        Call(
            "OptimizerFunctionOutput",
            ipu.pipelining_ops.OptimizerFunctionOutput,
            {
                "opt": v1.train.GradientDescentOptimizer(0.1),
                "compute_gradients_args": [],
                "compute_gradients_kwargs": {},
                "apply_gradients_args": [],
                "apply_gradients_kwargs": {},
                "loss": tf.constant(1.0),
            },
        ),
    ]


# Stands for the queues of a graph that is made for each call.
_QUEUE = "a queue"


def _scope_calls() -> list[Call]:
    def opened(scope: Callable[..., Any]) -> Callable[..., Any]:
        def run(**arguments):
            configure()

            def computation():
                with scope(**arguments):
                    return tf.constant(1.0) + 1.0

            _traced(computation)()

        return run

    scopes = ipu.scopes
    return [
        Call("ipu_scope", opened(scopes.ipu_scope), {"device": IPU}),
        Call("ipu_shard", opened(scopes.ipu_shard), {"index": 0}),
        Call("ipu_jit_scope", opened(scopes.ipu_jit_scope), {"ipu_scope": "group"}),
        Call(
            "outside_compilation_scope",
            opened(scopes.outside_compilation_scope),
            {"name": "outside"},
        ),
        Call(
            "frontend_attribute",
            opened(scopes.frontend_attribute),
            {"attribute_name": "name", "attribute_value": "value", "restore_to": "before"},
        ),
        Call("stochastic_rounding", opened(scopes.stochastic_rounding), {"override": False}),
        Call("partials_type", opened(scopes.partials_type), {"override_type": np.float16}),
    ]


# Of the older functions of `utils`, what they need besides what they have by default.
_SETTERS: dict[str, dict[str, Any]] = {
    "set_compilation_options": {"compilation_options": {"target.type": "IPU"}},
    "set_convolution_options": {"convolution_options": {"partialsType": "half"}},
    "set_experimental_multi_replica_distribution_options": {
        "process_count": 2,
        "process_index": 1,
    },
    "set_floating_point_behaviour_options": {},
    "set_gcl_options": {"gcl_options": {"useSynclessCollectives": "true"}},
    "set_io_tile_options": {"num_io_tiles": 32, "place_ops_on_io_tiles": True},
    "set_ipu_connection_type": {"ipu_version": "ipu2"},
    "set_ipu_model_options": {"tiles_per_ipu": 4},
    "set_matmul_options": {"matmul_options": {"partialsType": "half"}},
    "set_norm_options": {},
    "set_optimization_options": {},
    "set_pooling_options": {"pooling_options": {"poolUseIntrospectiveMapping": "true"}},
    "set_recomputation_options": {},
    "set_serialization_options": {},
    "set_transfer_options": {},
    "auto_select_ipus": {"num_ipus": 1},
    "select_ipus": {"indices": [0]},
}


def _util_calls() -> list[Call]:
    def setter(name: str) -> Callable[..., Any]:
        def run(**arguments):
            given = {"opts": ipu.config.IPUConfig(), **arguments}
            return getattr(ipu.utils, name)(**given)

        return run

    calls = [
        Call(f"utils.{name}", setter(name), _arguments(getattr(ipu.utils, name)) | own)
        for name, own in _SETTERS.items()
    ]
    for call in calls:
        call.arguments.pop("opts", None)
    create = _arguments(ipu.utils.create_ipu_config)
    return [
        *calls,
        Call("create_ipu_config", ipu.utils.create_ipu_config, create),
        Call(
            "opts",
            lambda **arguments: ipu_keras.utils.set_norm_options(**arguments),
            {"opts": ipu.config.IPUConfig()},
        ),
    ]


def _arguments(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}
