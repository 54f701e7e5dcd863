"""The errors that users match on: of strategies, configuration, operations and layers.

A row is a condition, with the documented type and the words that scripts look for. What else an
error says is tested beside the module that raises it.
"""

import keras
import pytest
import tensorflow as tf
from error_rows import Table, dataset, devices, scope
from tensorflow.python import ipu

from ipu_addons.keras import layers as addon_layers
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.host_embedding import HostEmbedding
from ipu_keras.optimizers import (
    CrossReplicaOptimizer,
    GradientAccumulationOptimizer,
    GradientAccumulationOptimizerV2,
)

FailedPrecondition = tf.errors.FailedPreconditionError
row = Table()


# Strategies


@row(
    ValueError,
    "IPUStrategyV1.run(fn, ...) does not support eager execution. Either convert `fn` "
    "into a tf.function or...",
)
def plain_functions():
    with scope() as strategy:
        strategy.run(lambda: 1)


@row(TypeError, "Unsupported data type for input: float64")
def inputs_of_float64():
    with scope() as strategy:
        strategy.run(tf.function(lambda x: x), args=(tf.constant(1.0, tf.float64),))


@row(TypeError, "Unsupported data type for output: float64")
def outputs_of_float64():
    with scope() as strategy:
        strategy.run(tf.function(lambda x: tf.cast(x, tf.float64)), args=(tf.constant(1.0),))


@row(
    RuntimeError,
    "Accessing dataset elements can not be accessed in eager mode when inside 'IPUStrategy'.",
)
def datasets_read_eagerly():
    with scope(enable_dataset_iterators=True):
        next(iter(dataset()))


# Configuration


def configuring(**options):
    """Sets options of a configuration, by paths whose parts two underscores join."""

    def configure():
        config = ipu.config.IPUConfig()
        for path, value in options.items():
            *categories, option = path.split("__")
            target = config
            for category in categories:
                target = getattr(target, category)
            setattr(target, option, value)
        config.configure_ipu_system()

    return configure


row(
    ValueError,
    "'auto_select_ipu' is not a valid attribute of this config. Did you mean 'auto_select_ipus'?",
)(configuring(auto_select_ipu=1))
row(ValueError, "'num_tiles' is not a valid attribute of this config....")(
    lambda: ipu.config.IPUConfig().io_tiles.num_tiles
)
row(TypeError, "Trying to set io_tiles.num_io_tiles to 1.5, but it must be of type int")(
    configuring(io_tiles__num_io_tiles=1.5)
)
row(Exception, "io_tiles is a category and cannot be assigned to.")(configuring(io_tiles=1))
row(Exception, "Only one of `auto_select_ipus` and `select_ipus` can be set.")(
    configuring(auto_select_ipus=1, select_ipus=0)
)
row(ValueError, "Could not get attribute metadata for 'io_tiles.tiles': ...")(
    lambda: ipu.config.IPUConfig().get_attribute_metadata("io_tiles.tiles")
)


@row(
    Exception,
    "When using the IPUModel, the devices to attach to can only be specified with "
    "`auto_select_ipus`.",
)
def selection_on_the_ipu_model():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
        SYSTEM.reset()
        configuring(select_ipus=0)()


@row(RuntimeError, "No IPU devices configured.")
def configurations_before_there_is_one():
    SYSTEM.reset()
    ipu.config.get_ipu_config()


@row(
    FailedPrecondition,
    "IPU system configuration has already been set in this process, but it "
    "should have been reset automatically by...",
)
def second_configurations():
    config = ipu.config.IPUConfig()
    ipu.config.configure_ipu_system(config, reset_configuration=False)


row(
    FailedPrecondition,
    "Unsupported number of IPUs requested - could not find an IPU device with "
    "3 IPUs for the TensorFlow virtual...",
)(configuring(auto_select_ipus=3))


# Operations, layers and optimizers


for rate in (1.0, -0.5):
    row(ValueError, f"The rate must be in the range [0, 1), but was {rate}")(
        lambda rate=rate: ipu.rand_ops.dropout(tf.ones((2, 3)), rate=rate)
    )
    row(ValueError, f"The rate must be in the range [0, 1), but was {rate}")(
        lambda rate=rate: addon_layers.Dropout(rate)
    )
row(ValueError, "The length of noise_shape must equal the rank of x.")(
    lambda: ipu.rand_ops.dropout(tf.ones((2, 3)), noise_shape=[1])
)
row(ValueError, "serialization_factor has to be at least 1, but was 0.")(
    lambda: ipu.embedding_ops.embedding_lookup(tf.ones((4, 2)), [1], serialization_factor=0)
)
row(ValueError, "The serialization_factor (3) must divide the size...")(
    lambda: ipu.embedding_ops.embedding_lookup(tf.ones((4, 2)), [1], serialization_factor=3)
)
row(
    NotImplementedError,
    "HostEmbedding.__call__ is not supported. Please use the context manager "
    "created with HostEmbedding.register.",
)(lambda: HostEmbedding("words", tf.ones((4, 2)))([1]))


@row(
    FailedPrecondition,
    "Host embedding interface with id='words' not registered. Did you run the "
    "associated host_embedding op in the session?...",
)
def tables_that_are_not_registered():
    embedding = HostEmbedding("words", tf.ones((4, 2)))
    with scope() as strategy:
        strategy.run(tf.function(lambda: embedding.lookup(tf.constant([1]))))


for wrap in (CrossReplicaOptimizer, lambda opt: GradientAccumulationOptimizer(opt, 2)):
    row(
        ValueError,
        "Should use optimizer in keras.ipu.optimizers (in the Keras package) to wrap V2 optimizers",
    )(lambda wrap=wrap: wrap(keras.optimizers.SGD()))
row(ValueError, "num_mini_batches must be a positive number.")(
    lambda: GradientAccumulationOptimizerV2(tf.compat.v1.train.GradientDescentOptimizer(0.1), 0)
)
row(ValueError, "out_dtype cannot be float16 when dtype of logits is float32.")(
    lambda: ipu.nn_ops.ctc_loss_v2(
        tf.ones((2, 2), tf.int32),
        tf.ones((5, 2, 4)),
        tf.constant([2, 1]),
        tf.constant([5, 4]),
        0,
        out_dtype=tf.float16,
    )
)
row(ValueError, "Invalid groups 8 for 6 channels.")(
    lambda: ipu.normalization_ops.group_norm(tf.ones((2, 4, 6)), groups=8)
)
row(ValueError, "6 channels is not commensurate with 4 groups.")(
    lambda: ipu.normalization_ops.group_norm(tf.ones((2, 4, 6)), groups=4)
)
row(ValueError, "IPU custom LSTM layer does not support unroll....")(
    lambda: addon_layers.PopnnLSTM(2, unroll=True)
)
row(ValueError, "IPU custom GRU layer does not support unroll....")(
    lambda: addon_layers.PopnnGRU(2, unroll=True)
)
row(
    ValueError,
    "IPU custom RNN layer does not support 'elu' as an activation. Acceptable value are...",
)(lambda: addon_layers.PopnnLSTM(2, activation="elu"))
row(
    NotImplementedError,
    "ipu_tensorflow_addons.keras.layers.Embedding does not support __init__ "
    "argument mask_zero. It is included for API...",
)(lambda: addon_layers.Embedding(4, 2, mask_zero=True))


def slices(src=(3, 4), offsets=(0, 1)):
    def update():
        ipu.slicing_ops.sequence_slice(
            tf.zeros((4, 4)),
            tf.ones(src),
            tf.constant([1, 1]),
            tf.constant(offsets),
            tf.constant([0, 1]),
            False,
        )

    return update


row(
    ValueError,
    "num_elems, src_offsets and dst_offsets must have matching, nonzero shapes of rank 1.",
)(slices(offsets=(0, 1, 2)))
row(ValueError, "src and dst inner shapes must match.")(slices(src=(3, 5)))


@pytest.fixture(autouse=True)
def system():
    with devices():
        yield


@pytest.mark.parametrize("documented", row, ids=str)
def test_documented_errors(documented):
    documented.check()
