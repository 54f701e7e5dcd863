"""Correct calls of the public names, from which wrong ones are made by changing an argument."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from correct_call import Call, configure, integers, numbers
from correct_graph_calls import graph_calls
from correct_model_calls import configuration_calls, model_calls
from tensorflow.python import ipu

import ipu_keras
from ipu_addons.keras import layers as addon_layers
from ipu_addons.keras import optimizers as addon_optimizers

with tf.Graph().as_default():
    _OPERATION = tf.identity(tf.constant(1.0)).op


def _layer(kind: Callable[..., Any], inputs: Any, **called: Any) -> Callable[..., Any]:
    """A function that constructs a layer and calls it."""

    def construct_and_call(**options):
        return kind(**options)(inputs, **called)

    return construct_and_call


def _on_ipu(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called in a program of the machine."""

    def run(**arguments):
        configure()
        with ipu_keras.ipu_strategy.IPUStrategy().scope():
            strategy = tf.distribute.get_strategy()
            return strategy.run(tf.function(lambda: function(**arguments)))

    return run


def _embedding(**arguments: Any) -> Any:
    return ipu.embedding_ops.HostEmbedding(**arguments)


def _optimizer(kind: Callable[..., Any]) -> Callable[..., Any]:
    def construct_and_apply(**options):
        variable = keras.Variable(np.ones(2, np.float32))
        kind(**options).apply([tf.constant([0.5, 0.25])], [variable])

    return construct_and_apply


def _normalization_calls() -> list[Call]:
    x = numbers(2, 4, 4, 6)
    common = {"channels_axis": -1, "center": True, "scale": True, "epsilon": 1e-3}
    ops, layers = ipu.normalization_ops, addon_layers
    return [
        Call(
            "group_norm",
            ops.group_norm,
            {
                "inputs": x,
                "groups": 2,
                **common,
                "param_initializers": None,
                "training": True,
                "trainable": True,
                "reuse": None,
                "strided_channel_grouping": True,
            },
        ),
        Call("instance_norm", ops.instance_norm, {"inputs": x, **common}),
        Call("layer_norm", ops.layer_norm, {"inputs": x, **common}),
        Call(
            "GroupNormalization",
            _layer(layers.GroupNormalization, x),
            {
                "groups": 2,
                **common,
                "beta_initializer": None,
                "strided_channel_grouping": False,
                "dtype": tf.float32,
            },
        ),
        Call("InstanceNormalization", _layer(layers.InstanceNormalization, x), common),
        Call(
            "LayerNormalization",
            _layer(layers.LayerNormalization, x),
            {"axis": -1, "epsilon": 1e-3, "center": True, "scale": True},
        ),
    ]


def _ctc_calls() -> list[Call]:
    logits, labels = numbers(5, 2, 4), integers([1, 2], [2, 1])
    lengths = {"label_length": integers(2, 1), "logit_length": integers(5, 4)}
    decoded = {"beam_width": 3, "top_paths": 2, "blank_index": 0}
    data = {"label_length": integers(2, 1), "data_length": integers(5, 4)}
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
            {"logits": logits, "logits_lengths": integers(5, 4), **decoded},
        ),
        Call(
            "ctc_beam_search_decoder_with_log_probs",
            ipu.nn_ops.ctc_beam_search_decoder_with_log_probs,
            {"log_probs": np.log(logits), "input_lengths": integers(5, 4), **decoded},
        ),
    ]


def _recurrent_calls() -> list[Call]:
    x = numbers(2, 3, 4)
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
        "dropout_seed": None,
        "stateful": False,
        "seed": 1,
        "partials_dtype": tf.float32,
        "available_memory_proportion_fwd": 0.5,
    }
    dynamic = {"num_units": 3, "dtype": tf.float32, "partials_dtype": tf.float32, "seed": 1}
    dynamic |= {"activation": "tanh", "available_memory_proportion_bwd": None}
    rnn = ipu.rnn_ops

    def unrolled(kind, **called):
        def run(**given):
            with tf.Graph().as_default():
                return kind(**given)(tf.constant(numbers(3, 2, 4)), training=False, **called)

        return run

    lengths = {"seq_len": integers(3, 2)}
    return [
        Call("PopnnLSTM", _layer(addon_layers.PopnnLSTM, x), options),
        Call("PopnnGRU", _layer(addon_layers.PopnnGRU, x), options | {"reset_after": True}),
        Call("rnn_ops.PopnnLSTM", unrolled(rnn.PopnnLSTM), dynamic),
        Call("rnn_ops.PopnnGRU", unrolled(rnn.PopnnGRU), dynamic),
        Call("rnn_ops.PopnnDynamicGRU", unrolled(rnn.PopnnDynamicGRU, **lengths), dynamic),
    ]


def _layer_calls() -> list[Call]:
    x = numbers(2, 4)
    return [
        Call("Dropout", _layer(addon_layers.Dropout, x, training=True), {"rate": 0.3, "seed": 1}),
        Call(
            "Embedding",
            _layer(addon_layers.Embedding, integers([1, 2])),
            {
                "input_dim": 4,
                "output_dim": 3,
                "embeddings_initializer": "uniform",
                "serialization_factor": 2,
            },
        ),
        Call(
            "CTCLoss",
            lambda **given: addon_layers.CTCLoss(**given)(
                integers([1, 2], [2, 1]), numbers(5, 2, 4), integers(2, 1), integers(5, 4)
            ),
            {"blank_index": 0, "from_logits": True},
        ),
        Call(
            "CTCPredictionsLayer",
            _layer(addon_layers.CTCPredictionsLayer, numbers(5, 2, 4), data_length=integers(5, 4)),
            {"blank_index": 0, "beam_width": 3, "top_paths": 1, "from_logits": True},
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
                [numbers(2, 4, 6), integers(3, 2)] * 2
            ),
            {
                "output_layer_size": 6,
                "max_batch_size": 2,
                "num_attention_heads": 2,
                "attention_head_size": 4,
                "sequences_per_iter": 1,
                "attention_dropout_prob": 0.25,
                "output_dropout_prob": 0.25,
            },
        ),
        Call(
            "CTCInferenceLayer",
            _layer(addon_layers.CTCInferenceLayer, numbers(5, 2, 4), data_length=integers(5, 4)),
            {"blank_index": 0, "beam_width": 3, "top_paths": 1, "from_logits": False},
        ),
        Call(
            "AssumeEqualAcrossReplicas",
            _layer(addon_layers.AssumeEqualAcrossReplicas, x),
            {"inplace": False},
        ),
    ]


def _op_calls() -> list[Call]:
    x, rows = numbers(4, 6), numbers(5, 3)
    slices = {"num_elems": integers(2, 1), "zero_unused": False}
    sources, targets = {"src_offsets": integers(0, 2)}, {"dst_offsets": integers(0, 3)}
    sampled = {
        "weights": numbers(9, 4),
        "biases": numbers(9),
        "labels": integers([1], [2]),
        "inputs": numbers(2, 4),
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
                "b": numbers(6, 4),
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
            {"src": rows, "num_elems": integers(2, 1), **sources, "total_elements": 3},
        ),
        Call(
            "histogram",
            statistics.histogram,
            {"inputs": x[0], "levels": numbers(3), "absolute_of_input": False},
        ),
        Call(
            "histogram_update",
            statistics.histogram_update,
            {
                "hist": numbers(4),
                "inputs": x[0],
                "levels": np.sort(numbers(3)),
                "absolute_of_input": False,
            },
        ),
        Call("fixed_width_bins", statistics.fixed_width_bins, {"inputs": x[0], "n_bins": 4}),
        Call(
            "embedding_lookup",
            ipu.embedding_ops.embedding_lookup,
            {"params": rows, "ids": integers(1, 4), "serialization_factor": 1},
        ),
        Call("nce_loss", ipu.nn_ops.nce_loss, sampled),
        Call("sampled_softmax_loss", ipu.nn_ops.sampled_softmax_loss, sampled),
        Call(
            "normalise_image",
            ipu.image_ops.normalise_image,
            {
                "image": numbers(1, 2, 2, 3),
                "channel_offsets": numbers(3),
                "channel_scales": numbers(3),
                "scale": 2.0,
            },
        ),
        Call(
            "codelet_expression_op",
            lambda **given: ipu.custom_ops.codelet_expression_op(
                lambda a, b: a + b, *given.values()
            ),
            {"a": x, "b": x},
            called={"a": "args", "b": "args"},
        ),
        Call(
            "cross_replica_sum",
            _on_ipu(ipu.cross_replica_ops.cross_replica_sum),
            {"x": x, "replica_group_size": 1},
        ),
        Call(
            "cross_replica_mean",
            _on_ipu(ipu.cross_replica_ops.cross_replica_mean),
            {"x": x, "replica_group_size": 1},
        ),
        Call(
            "assume_equal_across_replicas",
            ipu.cross_replica_ops.assume_equal_across_replicas,
            {"tensors": x, "inplace": False},
        ),
        Call(
            "create_host_embedding",
            ipu.embedding_ops.create_host_embedding,
            {
                "name": "made",
                "shape": (4, 2),
                "dtype": tf.float32,
                "partition_strategy": "TOKEN",
                "optimizer_spec": None,
                "initializer": None,
            },
        ),
        Call(
            "all_gather", _on_ipu(ipu.all_to_all_op.all_gather), {"x": x, "replication_factor": 1}
        ),
        Call(
            "all_to_all",
            _on_ipu(ipu.all_to_all_op.all_to_all),
            {
                "x": numbers(1, 4),
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
        Call("sharding.dependencies", ipu.sharding.dependencies, {"roots": [_OPERATION]}),
        Call("sharding.has_attr", ipu.sharding.has_attr, {"o": _OPERATION, "attr_name": "T"}),
        Call(
            "get_shard_from_colocation",
            ipu.sharding.get_shard_from_colocation,
            {"op": _OPERATION},
        ),
        Call("propagate_sharding", ipu.sharding.propagate_sharding, {"g": _OPERATION.graph}),
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
            {
                **adam,
                "amsgrad": True,
                "m_dtype": None,
                "v_dtype": "float32",
                "debiasing": True,
                "decay": 0.1,
                "optimizer_compute_precisions": ("float32", "float16"),
            },
        ),
        Call(
            "LAMBIpuOptimizer",
            _optimizer(addon_optimizers.LAMBIpuOptimizer),
            {
                **adam,
                "weight_decay_rate": 0.1,
                "exclude_from_weight_decay": ["bias"],
                "exclude_from_layer_adaptation": None,
                "weight_norm_clip": 2.0,
                "debiasing": False,
            },
        ),
        Call(
            "SGDIpuOptimizer",
            _optimizer(addon_optimizers.SGDIpuOptimizer),
            {
                "learning_rate": 0.1,
                "momentum": 0.9,
                "nesterov": False,
                "momentum_accum_dtype": None,
                "optimizer_compute_precisions": (tf.float32,),
                "outline_apply_gradients": None,
            },
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
            "MapGradientOptimizer",
            optimizers.MapGradientOptimizer,
            {
                "wrapped_optimizer": tf.compat.v1.train.GradientDescentOptimizer(0.1),
                "gradient_mapping_function": lambda gradient, variable: gradient,
            },
        ),
        Call(
            "ShardedOptimizer",
            optimizers.ShardedOptimizer,
            {"optimizer": tf.compat.v1.train.GradientDescentOptimizer(0.1)},
        ),
        Call(
            "CrossReplicaOptimizer",
            lambda **given: optimizers.CrossReplicaOptimizer(**given),
            {"opt": tf.compat.v1.train.GradientDescentOptimizer(0.1)},
        ),
    ]


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
        *configuration_calls(),
        *model_calls(),
        *graph_calls(),
    ]
