"""Correct calls of the public names, from which wrong ones are made by changing an argument."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ipu as keras_ipu
from tensorflow.python import ipu

import ipu_keras
from ipu_addons.keras import layers as addon_layers
from ipu_addons.keras import optimizers as addon_optimizers
from ipu_keras.machine.system import SYSTEM


@dataclass
class Call:
    """A call that works.

    Attributes:
        name: What people call it.
        function: Called with `arguments` by name.
        arguments: Those that are changed.
        cheap: Whether it can be repeated after each wrong call.
    """

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    cheap: bool = True


def _numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(1).uniform(0.1, 1, shape).astype(dtype)


def _integers(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def _layer(kind: Callable[..., Any], inputs: Any, **called: Any) -> Callable[..., Any]:
    """A function that constructs a layer and calls it."""

    def construct_and_call(**options):
        return kind(**options)(inputs, **called)

    return construct_and_call


def _on_ipu(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called in a program of the machine."""

    def run(**arguments):
        _configure()
        with ipu_keras.ipu_strategy.IPUStrategy().scope():
            strategy = tf.distribute.get_strategy()
            return strategy.run(tf.function(lambda: function(**arguments)))

    return run


def _configure() -> None:
    """Four IPUs, unless another call configured some."""
    if SYSTEM.config is None:
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 4
        config.configure_ipu_system()


@functools.cache
def _dense() -> keras.Model:
    _configure()
    keras.utils.set_random_seed(1)
    with ipu_keras.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=2)
    return model


def _method(name: str) -> Callable[..., Any]:
    def call(**arguments):
        _configure()
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
    return ipu_keras.profile(_dense(), tf.TensorSpec((4, 3)), **options)


def _profile_of(model: Any, spec: Any) -> Any:
    return ipu_keras.profile(model, spec)


def _what_if(**options: Any) -> Any:
    return ipu_keras.what_if(_dense(), tf.TensorSpec((4, 3)), **options)


def _embedding(**arguments: Any) -> Any:
    return ipu.embedding_ops.HostEmbedding(**arguments)


def _optimizer(kind: Callable[..., Any]) -> Callable[..., Any]:
    def construct_and_apply(**options):
        variable = keras.Variable(np.ones(2, np.float32))
        kind(**options).apply([tf.constant([0.5, 0.25])], [variable])

    return construct_and_apply


def _normalization_calls() -> list[Call]:
    x = _numbers(2, 4, 4, 6)
    common = {"channels_axis": -1, "center": True, "scale": True, "epsilon": 1e-3}
    ops, layers = ipu.normalization_ops, addon_layers
    return [
        Call("group_norm", ops.group_norm, {"inputs": x, "groups": 2, **common}),
        Call("instance_norm", ops.instance_norm, {"inputs": x, **common}),
        Call("layer_norm", ops.layer_norm, {"inputs": x, **common}),
        Call("GroupNormalization", _layer(layers.GroupNormalization, x), {"groups": 2, **common}),
        Call("InstanceNormalization", _layer(layers.InstanceNormalization, x), common),
        Call(
            "LayerNormalization",
            _layer(layers.LayerNormalization, x),
            {"axis": -1, "epsilon": 1e-3, "center": True, "scale": True},
        ),
    ]


def _ctc_calls() -> list[Call]:
    logits, labels = _numbers(5, 2, 4), _integers([1, 2], [2, 1])
    lengths = {"label_length": _integers(2, 1), "logit_length": _integers(5, 4)}
    decoded = {"beam_width": 3, "top_paths": 2, "blank_index": 0}
    data = {"label_length": _integers(2, 1), "data_length": _integers(5, 4)}
    return [
        Call(
            "ctc_loss_v2",
            ipu.nn_ops.ctc_loss_v2,
            {"labels": labels, "logits": logits, **lengths, "blank_index": 0, "out_dtype": None},
        ),
        Call(
            "ctc_loss_with_log_probs",
            ipu.nn_ops.ctc_loss_with_log_probs,
            {"labels": labels, "data": np.log(logits), **data, "blank_index": 0},
        ),
        Call(
            "ctc_beam_search_decoder",
            ipu.nn_ops.ctc_beam_search_decoder,
            {"logits": logits, "logits_lengths": _integers(5, 4), **decoded},
        ),
        Call(
            "ctc_beam_search_decoder_with_log_probs",
            ipu.nn_ops.ctc_beam_search_decoder_with_log_probs,
            {"log_probs": np.log(logits), "input_lengths": _integers(5, 4), **decoded},
        ),
    ]


def _recurrent_calls() -> list[Call]:
    x = _numbers(2, 3, 4)
    options = {
        "units": 3,
        "activation": "tanh",
        "recurrent_activation": "sigmoid",
        "use_bias": True,
        "kernel_initializer": "glorot_uniform",
        "bias_initializer": "zeros",
        "return_sequences": True,
        "return_state": False,
        "time_major": False,
        "dropout": 0.0,
    }
    dynamic = {"num_units": 3, "dtype": tf.float32, "partials_dtype": tf.float32, "seed": 1}
    rnn = ipu.rnn_ops

    def unrolled(kind, **called):
        def run(**given):
            with tf.Graph().as_default():
                return kind(**given)(tf.constant(_numbers(3, 2, 4)), training=False, **called)

        return run

    lengths = {"seq_len": _integers(3, 2)}
    return [
        Call("PopnnLSTM", _layer(addon_layers.PopnnLSTM, x), options),
        Call("PopnnGRU", _layer(addon_layers.PopnnGRU, x), options | {"reset_after": True}),
        Call("rnn_ops.PopnnLSTM", unrolled(rnn.PopnnLSTM), dynamic),
        Call("rnn_ops.PopnnGRU", unrolled(rnn.PopnnGRU), dynamic),
        Call("rnn_ops.PopnnDynamicGRU", unrolled(rnn.PopnnDynamicGRU, **lengths), dynamic),
    ]


def _layer_calls() -> list[Call]:
    x = _numbers(2, 4)
    return [
        Call("Dropout", _layer(addon_layers.Dropout, x, training=True), {"rate": 0.3, "seed": 1}),
        Call(
            "Embedding",
            _layer(addon_layers.Embedding, _integers([1, 2])),
            {"input_dim": 4, "output_dim": 3, "serialization_factor": 2},
        ),
        Call(
            "SerialDense",
            _layer(addon_layers.SerialDense, x),
            {
                "units": 4,
                "serialization_factor": 2,
                "serialization_dimension": "input_columns",
                "activation": "relu",
                "use_bias": True,
            },
        ),
        Call(
            "EffectiveTransformer",
            lambda **options: addon_layers.EffectiveTransformer(**options)(
                [_numbers(2, 4, 6), _integers(3, 2)] * 2
            ),
            {
                "output_layer_size": 6,
                "max_batch_size": 2,
                "num_attention_heads": 2,
                "attention_head_size": 4,
            },
        ),
        Call(
            "CTCInferenceLayer",
            _layer(addon_layers.CTCInferenceLayer, _numbers(5, 2, 4), data_length=_integers(5, 4)),
            {"blank_index": 0, "beam_width": 3, "top_paths": 1, "from_logits": False},
        ),
        Call(
            "AssumeEqualAcrossReplicas",
            _layer(addon_layers.AssumeEqualAcrossReplicas, x),
            {"inplace": False},
        ),
    ]


def _op_calls() -> list[Call]:
    x, rows = _numbers(4, 6), _numbers(5, 3)
    slices = {"num_elems": _integers(2, 1), "zero_unused": False}
    sources, targets = {"src_offsets": _integers(0, 2)}, {"dst_offsets": _integers(0, 3)}
    sampled = {
        "weights": _numbers(9, 4),
        "biases": _numbers(9),
        "labels": _integers([1], [2]),
        "inputs": _numbers(2, 4),
        "num_sampled": 3,
        "num_classes": 9,
        "num_true": 1,
    }
    statistics, slicing = ipu.statistics_ops, ipu.slicing_ops
    return [
        Call("gelu", ipu.nn_ops.gelu, {"x": x, "approximate": True}),
        Call("swish", ipu.nn_ops.swish, {"x": x}),
        Call("hard_sigmoid", ipu.nn_ops.hard_sigmoid, {"x": x}),
        Call(
            "serialized_matmul",
            ipu.math_ops.serialized_matmul,
            {
                "a": x,
                "b": _numbers(6, 4),
                "serialization_factor": 2,
                "serialization_dimension": "a_columns",
                "transpose_a": False,
                "transpose_b": False,
            },
        ),
        Call(
            "rand_ops.dropout",
            ipu.rand_ops.dropout,
            {"x": x, "rate": 0.5, "seed": [1, 2], "noise_shape": [4, 1]},
        ),
        Call(
            "sequence_slice",
            slicing.sequence_slice,
            {"dst": rows, "src": rows, **slices, **sources, **targets},
        ),
        Call(
            "sequence_slice_pack",
            slicing.sequence_slice_pack,
            {"dst": rows, "src": rows, **slices, **targets},
        ),
        Call(
            "sequence_slice_unpack",
            slicing.sequence_slice_unpack,
            {"src": rows, "num_elems": _integers(2, 1), **sources, "total_elements": 3},
        ),
        Call(
            "histogram",
            statistics.histogram,
            {"inputs": x[0], "levels": _numbers(3), "absolute_of_input": False},
        ),
        Call(
            "histogram_update",
            statistics.histogram_update,
            {
                "hist": _numbers(4),
                "inputs": x[0],
                "levels": np.sort(_numbers(3)),
                "absolute_of_input": False,
            },
        ),
        Call("fixed_width_bins", statistics.fixed_width_bins, {"inputs": x[0], "n_bins": 4}),
        Call(
            "embedding_lookup",
            ipu.embedding_ops.embedding_lookup,
            {"params": rows, "ids": _integers(1, 4), "serialization_factor": 1},
        ),
        Call("nce_loss", ipu.nn_ops.nce_loss, sampled),
        Call("sampled_softmax_loss", ipu.nn_ops.sampled_softmax_loss, sampled),
        Call(
            "normalise_image",
            ipu.image_ops.normalise_image,
            {
                "image": _numbers(1, 2, 2, 3),
                "channel_offsets": _numbers(3),
                "channel_scales": _numbers(3),
                "scale": 2.0,
            },
        ),
        Call(
            "codelet_expression_op",
            lambda **given: ipu.custom_ops.codelet_expression_op(
                lambda a, b: a + b, *given.values()
            ),
            {"a": x, "b": x},
        ),
        Call(
            "cross_replica_sum",
            _on_ipu(ipu.cross_replica_ops.cross_replica_sum),
            {"x": x, "replica_group_size": None},
        ),
        Call(
            "all_gather", _on_ipu(ipu.all_to_all_op.all_gather), {"x": x, "replication_factor": 1}
        ),
        Call(
            "all_to_all",
            _on_ipu(ipu.all_to_all_op.all_to_all),
            {
                "x": _numbers(1, 4),
                "split_dimension": 0,
                "concat_dimension": 1,
                "replication_factor": 1,
            },
        ),
        Call(
            "reduce_scatter",
            _on_ipu(ipu.reduce_scatter_op.reduce_scatter),
            {"x": x[0], "replication_factor": 1, "op": "COLLECTIVE_OP_ADD"},
        ),
        Call(
            "HostEmbeddingOptimizerSpec",
            ipu.embedding_ops.HostEmbeddingOptimizerSpec,
            {"learning_rate": 0.1, "optimizer_name": "SGD"},
        ),
        Call(
            "HostEmbeddingSGDGAOptimizerSpec",
            ipu.embedding_ops.HostEmbeddingSGDGAOptimizerSpec,
            {"learning_rate": 0.1, "accumulation_factor": 2},
        ),
        Call(
            "HostEmbedding",
            _embedding,
            {
                "name": "table",
                "embedding_tensor": tf.constant(rows),
                "partition_strategy": "TOKEN",
                "optimizer_spec": None,
            },
        ),
        Call(
            "recomputation_checkpoint",
            ipu.pipelining_ops.recomputation_checkpoint,
            {"tensors": tf.constant(x)},
        ),
        Call(
            "outlined_function",
            lambda **given: ipu.functional_ops.outlined_function(**given)(),
            {
                "func": lambda: tf.constant(1.0),
                "unique_sharding": False,
                "keep_input_layouts": None,
            },
        ),
        Call(
            "multi_conv",
            lambda **given: ipu.nn_ops.multi_conv(**given)(),
            {"func": lambda: tf.constant(1.0), "options": None},
        ),
    ]


def _optimizer_calls() -> list[Call]:
    def wrapped(kind):
        def construct(**options):
            return kind(tf.compat.v1.train.GradientDescentOptimizer(0.1), **options)

        return construct

    adam = {"learning_rate": 0.1, "beta_1": 0.9, "beta_2": 0.99, "epsilon": 1e-6}
    count = {"num_mini_batches": 2}
    optimizers = ipu.optimizers
    return [
        Call(
            "AdamIpuOptimizer",
            _optimizer(addon_optimizers.AdamIpuOptimizer),
            {**adam, "m_dtype": None},
        ),
        Call(
            "LAMBIpuOptimizer",
            _optimizer(addon_optimizers.LAMBIpuOptimizer),
            {**adam, "weight_decay_rate": 0.1},
        ),
        Call(
            "SGDIpuOptimizer",
            _optimizer(addon_optimizers.SGDIpuOptimizer),
            {"learning_rate": 0.1, "momentum": 0.9, "nesterov": False},
        ),
        Call(
            "GradientAccumulationOptimizer",
            wrapped(optimizers.GradientAccumulationOptimizer),
            count,
        ),
        Call(
            "GradientAccumulationOptimizerV2",
            wrapped(optimizers.GradientAccumulationOptimizerV2),
            count,
        ),
        Call(
            "CrossReplicaGradientAccumulationOptimizer",
            wrapped(optimizers.CrossReplicaGradientAccumulationOptimizer),
            count,
        ),
        Call(
            "CrossReplicaOptimizer",
            lambda **given: optimizers.CrossReplicaOptimizer(**given),
            {"opt": tf.compat.v1.train.GradientDescentOptimizer(0.1)},
        ),
    ]


def _configuration_calls() -> list[Call]:
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
            {"ipu_device": "/device:IPU:0", "enable_dataset_iterators": True},
        ),
        Call("reset_ipu_seed", ipu.utils.reset_ipu_seed, {"seed": 3, "device": "/device:IPU:0"}),
        Call(
            "get_num_of_ipus_in_device",
            ipu.utils.get_num_of_ipus_in_device,
            {"ipu_device": "/device:IPU:0"},
        ),
    ]


def _model_calls() -> list[Call]:
    x, y = _numbers(8, 3), _numbers(8, 1)
    data = {"x": x, "y": y, "batch_size": 2, "verbose": 0}
    compiled = {"optimizer": "sgd", "loss": "mse", "steps_per_execution": 2}
    cost = {"target": "mk2", "num_replicas": 1, "gradient_accumulation_count": 1}

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
        Call("set_infeed_queue_options", _fresh("set_infeed_queue_options"), {"prefetch_depth": 3}),
        Call("set_outfeed_queue_options", _fresh("set_outfeed_queue_options"), {"buffer_depth": 3}),
        Call(
            "set_gradient_accumulation_options",
            _fresh("set_gradient_accumulation_options"),
            {
                "gradient_accumulation_steps_per_replica": 2,
                "gradient_accumulation_reduction_method": "SUM",
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
            },
        ),
        Call(
            "set_pipeline_stage_assignment",
            _fresh("set_pipeline_stage_assignment"),
            {"pipeline_stage_assignment": []},
        ),
        Call("PipelineStage", _stage, {"stage": 0}),
        Call("profile", _profile, {**cost, "name": "model"}, cheap=False),
        Call("what_if", _what_if, {"batch_size": [2, 4]}, cheap=False),
        Call("suggest_pipeline", _suggested, {"num_ipus": 2}, cheap=False),
    ]


def _fresh(name: str) -> Callable[..., Any]:
    """The method of a model that nobody else uses."""

    def call(**arguments):
        _configure()
        with ipu_keras.ipu_strategy.IPUStrategy().scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            if (
                name == "set_pipeline_stage_assignment"
                and arguments["pipeline_stage_assignment"] == []
            ):
                arguments["pipeline_stage_assignment"] = model.get_pipeline_stage_assignment()
                arguments["pipeline_stage_assignment"][0].pipeline_stage = 0
            return getattr(model, name)(**arguments)

    return call


def _stage(stage: Any) -> None:
    _configure()
    with ipu_keras.ipu_strategy.IPUStrategy().scope(), keras_ipu.PipelineStage(stage):
        pass


def _suggested(**arguments: Any) -> Any:
    return ipu_keras.suggest_pipeline(_dense(), arguments.pop("num_ipus"), tf.TensorSpec((4, 3)))


@functools.cache
def correct_calls() -> list[Call]:
    """All of them."""
    return [
        *_op_calls(),
        *_normalization_calls(),
        *_ctc_calls(),
        *_recurrent_calls(),
        *_layer_calls(),
        *_optimizer_calls(),
        *_configuration_calls(),
        *_model_calls(),
    ]
