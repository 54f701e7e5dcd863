"""Correct calls that configure the machine, or are of models."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from correct_call import Call, configure, numbers
from keras import ipu as keras_ipu
from tensorflow.python import ipu

import ipu_keras
from ipu_keras.machine.system import SYSTEM
from ipu_keras.pipelining_ops import PipelineSchedule, RecomputationMode

# Stands for that of a model which the call makes.
ASSIGNMENT: list = []


@functools.cache
def _dense() -> keras.Model:
    configure()
    keras.utils.set_random_seed(1)
    with ipu_keras.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=2)
    return model


def _method(name: str) -> Callable[..., Any]:
    def call(**arguments):
        configure()
        with _dense().distribute_strategy.scope():
            return getattr(_dense(), name)(**arguments)

    return call


def _configured(**values: Any) -> None:
    config = ipu.config.IPUConfig()
    for name, value in values.items():
        *path, last = name.split("__")
        setattr(functools.reduce(getattr, path, config), last, value)
    try:
        config.configure_ipu_system()
    finally:
        SYSTEM.reset()


def _profile(**options: Any) -> Any:
    configure()
    return ipu_keras.profile(_dense(), tf.TensorSpec((4, 3)), **options)


def _what_if(model_or_function: Any, **options: Any) -> Any:
    configure()
    return ipu_keras.what_if(model_or_function, tf.TensorSpec((4, 3)), **options)


def _last_report(**options: Any) -> Any:
    _method("predict")(x=numbers(4, 3), batch_size=2, verbose=0)
    return ipu_keras.last_report(**options)


def configuration_calls() -> list[Call]:
    options: dict[str, Any] = {
        "auto_select_ipus": 2,
        "allow_recompute": True,
        "device_connection__type": ipu.config.DeviceConnectionType.ALWAYS,
        "device_connection__version": "ipu2",
        "io_tiles__num_io_tiles": 32,
        "matmuls__poplar_options": {"partialsType": "half"},
        "convolutions__poplar_options": {"partialsType": "half"},
        "floating_point_behaviour__inv": True,
        "norms__experimental__distributed_batch_norm_replica_group_size": 1,
        "optimizations__maximum_cross_replica_sum_buffer_size": 1000,
        "optimizations__enable_gather_simplifier": True,
        "ipu_model__tiles_per_ipu": 4,
        "ipu_model__version": "ipu2",
        "scheduling__algorithm": ipu.config.SchedulingAlgorithm.CLUSTERING,
        "selection_order": ipu.config.SelectionOrder.AUTO,
        "experimental__always_rearrange_copies_on_the_host": False,
    }
    alone = [
        Call(f"IPUConfig.{name}", _configured, {name: value}) for name, value in options.items()
    ]
    configure = ipu.config.configure_ipu_system
    return [
        *alone,
        Call(
            "configure_ipu_system",
            configure,
            {"config": ipu.config.IPUConfig(), "device": "cpu", "reset_configuration": True},
        ),
        Call(
            "IPUStrategy",
            ipu.ipu_strategy.IPUStrategy,
            {
                "ipu_device": "/device:IPU:0",
                "enable_dataset_iterators": True,
                "enable_keras_extensions": True,
            },
        ),
        Call("reset_ipu_seed", ipu.utils.reset_ipu_seed, {"seed": 3, "device": "/device:IPU:0"}),
        Call(
            "get_num_of_ipus_in_device",
            ipu.utils.get_num_of_ipus_in_device,
            {"ipu_device": "/device:IPU:0"},
        ),
    ]


def model_calls() -> list[Call]:
    x, y = numbers(8, 3), numbers(8, 1)
    data = {"x": x, "y": y, "batch_size": 2, "verbose": 0}
    compiled = {"optimizer": "sgd", "loss": "mse", "steps_per_execution": 2}
    cost = {"target": "gc200", "num_replicas": 1, "gradient_accumulation_count": 1}

    return [
        Call("compile", _fresh("compile"), compiled),
        Call(
            "fit",
            _method("fit"),
            {
                **data,
                "epochs": 1,
                "steps_per_epoch": 4,
                "validation_split": 0.0,
                "sample_weight": None,
                "initial_epoch": 0,
            },
            cheap=False,
        ),
        Call("evaluate", _method("evaluate"), {**data, "steps": 4}, cheap=False),
        Call(
            "predict",
            _method("predict"),
            {"x": x, "batch_size": 2, "verbose": 0, "steps": 4},
            cheap=False,
        ),
        Call("train_on_batch", _method("train_on_batch"), {"x": x[:2], "y": y[:2]}),
        Call("predict_on_batch", _method("predict_on_batch"), {"x": x[:2]}),
        Call(
            "set_asynchronous_callbacks",
            _fresh("set_asynchronous_callbacks"),
            {"asynchronous": False},
        ),
        Call(
            "set_infeed_queue_options",
            _fresh("set_infeed_queue_options"),
            {"prefetch_depth": 3, "feed_name": "feed"},
        ),
        Call("set_outfeed_queue_options", _fresh("set_outfeed_queue_options"), {"buffer_depth": 3}),
        Call(
            "set_gradient_accumulation_options",
            _fresh("set_gradient_accumulation_options"),
            {
                "gradient_accumulation_steps_per_replica": 2,
                "gradient_accumulation_reduction_method": "SUM",
                "dtype": None,
                "offload_weight_update_variables": None,
                "replicated_optimizer_state_sharding": False,
                "name": "accumulation",
            },
        ),
        Call(
            "set_pipelining_options",
            _fresh("set_pipelining_options"),
            {
                "gradient_accumulation_steps_per_replica": 4,
                "device_mapping": [0, 1],
                "accumulate_outfeed": False,
                "gradient_accumulation_reduction_method": "SUM",
                "gradient_accumulation_dtype": None,
                "accumulate_outfeed_dtype": None,
                "pipeline_schedule": PipelineSchedule.Grouped,
                "recomputation_mode": RecomputationMode.Auto,
                "offload_activations": None,
                "offload_weight_update_variables": True,
                "replicated_optimizer_state_sharding": False,
                "forward_propagation_stages_poplar_options": None,
                "weight_update_poplar_options": None,
                "name": "pipeline",
            },
        ),
        Call(
            "set_pipeline_stage_assignment",
            _fresh("set_pipeline_stage_assignment"),
            {"pipeline_stage_assignment": [0]},
        ),
        Call("PipelineStage", _stage, {"stage": 0}),
        Call("profile", _profile, {**cost, "name": "model", "mode": "predict"}, cheap=False),
        Call(
            "what_if",
            _what_if,
            {**cost, "batch_size": [2, 4], "mode": "predict", "model_or_function": _dense()},
            cheap=False,
        ),
        Call(
            "suggest_pipeline",
            _suggested,
            {
                "model": _dense(),
                "num_ipus": 2,
                "mode": "predict",
                "target": "gc200",
                "schedule": PipelineSchedule.Grouped,
                "dtype": "float32",
                "available_memory_proportion": 0.6,
            },
            cheap=False,
        ),
        Call("last_report", _last_report, {"device": 0, **cost, "batch_size": 2}, cheap=False),
    ]


def _fresh(name: str) -> Callable[..., Any]:
    """The method of a model that nobody else uses."""

    def call(**arguments):
        configure()
        with ipu_keras.ipu_strategy.IPUStrategy().scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            return getattr(model, name)(**arguments)

    return call


def _stage(stage: Any) -> None:
    configure()
    with ipu_keras.ipu_strategy.IPUStrategy().scope(), keras_ipu.PipelineStage(stage):
        pass


def _suggested(model: Any, num_ipus: Any, **options: Any) -> Any:
    configure()
    return ipu_keras.suggest_pipeline(model, num_ipus, tf.TensorSpec((4, 3)), **options)
