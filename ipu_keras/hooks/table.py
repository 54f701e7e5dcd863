"""Lists all that is changed in TensorFlow and Keras; tests hold it to what is installed."""

from dataclasses import dataclass

_BY_HAND = "`uninstall(owner, name)` of `ipu_keras.hooks.installation`"
_BY_THE_DRIVER = "`ipu_keras.device.DRIVER.uninstall()`"
_IMPORT = "`import ipu_keras`"


@dataclass(frozen=True, kw_only=True)
class Hook:
    """An attribute that is replaced. Outside of a strategy's scope it does what it did."""

    owner: str
    name: str
    reason: str
    since: str = _IMPORT
    undone: str = _BY_HAND


_SAVES = "processes that train together write each file once, whole or not at all"
_UPDATES = "gradients of several processes are added up before they are clipped or checked"
_SAVES_ALONE = "one of several processes may save or load alone, in a strategy's scope"


def _saves(owner: str, name: str) -> Hook:
    return Hook(owner=owner, name=name, reason=_SAVES)


def _convolution(name: str) -> Hook:
    return Hook(
        owner="tensorflow.python.ops.gen_nn_ops",
        name=name,
        reason="convolutions of a multi-convolution are named as its parts",
        since="the first call of a function of `multi_conv`",
    )


def _draw(name: str) -> Hook:
    return Hook(
        owner="tensorflow.python.ops.gen_random_ops",
        name=name,
        reason="`reset_ipu_seed` starts anew what programs of an IPU draw",
    )


TENSORFLOW = (
    Hook(
        owner="tensorflow.python.eager.context",
        name="_device_parsing_cache",
        reason="`tf.device` refuses IPUs that are not configured",
        undone=_BY_THE_DRIVER,
    ),
    Hook(
        owner="tensorflow.python.eager.context._EagerTensorCache",
        name="put",
        reason="gradients on other devices get no shape that is on an IPU",
        undone=_BY_THE_DRIVER,
    ),
    Hook(
        owner="tensorflow.python.eager.context.Context",
        name="list_logical_devices",
        reason="IPUs are listed",
        undone=_BY_THE_DRIVER,
    ),
    Hook(
        owner="tensorflow.python.eager.context.Context",
        name="list_physical_devices",
        reason="IPUs are listed to those who ask for them",
        undone=_BY_THE_DRIVER,
    ),
    Hook(
        owner="tensorflow.python.data.ops.iterator_ops.OwnedIterator",
        name="_next_internal",
        reason="a strategy's scope refuses to read datasets eagerly; models read infeeds",
        since="the first `IPUStrategy`",
    ),
    Hook(
        owner="tensorflow.python.client.session.BaseSession",
        name="__init__",
        reason="sessions run on the host what is placed on IPUs",
    ),
    Hook(
        owner="tensorflow.python.client.session.BaseSession",
        name="_do_run",
        reason="sessions prepare the programs that they run, count them, and refuse unknown IPUs",
    ),
    Hook(
        owner="tensorflow.python.client.session.BaseSession",
        name="make_callable",
        reason="calls of sessions are runs, in graphs that have programs or use IPUs",
    ),
    Hook(
        owner="tensorflow.python.ops.gen_nn_ops",
        name="fused_batch_norm_v3",
        reason="replicas combine their statistics",
        since="the first `distributed_batch_norm`, which replicated programs enter",
    ),
    Hook(
        owner="tensorflow.python.checkpoint.checkpoint.Checkpoint",
        name="_maybe_create_save_counter",
        reason=_SAVES_ALONE,
    ),
    _saves("tensorflow.python.checkpoint.checkpoint.TrackableSaver", "save"),
    _saves("tensorflow.python.checkpoint.async_checkpoint_helper.AsyncCheckpointHelper", "save"),
    _saves("tensorflow.python.checkpoint.async_checkpoint_helper.AsyncCheckpointHelper", "_write"),
    _saves("tensorflow.compat.v1.train.Saver", "save"),
    _saves("tensorflow.python.saved_model.save", "save_and_return_nodes"),
    *(
        _saves("tensorflow.compat.v1.saved_model.Builder", name)
        for name in ("__init__", "add_meta_graph", "add_meta_graph_and_variables", "save")
    ),
    Hook(
        owner="tensorflow.compat.v1.summary.FileWriter",
        name="__init__",
        reason="processes that train together write events into files of their own",
    ),
    _saves(
        "tensorflow.python.checkpoint.checkpoint_management", "update_checkpoint_state_internal"
    ),
    _draw("random_uniform"),
    _draw("random_uniform_int"),
    _draw("random_standard_normal"),
    _draw("truncated_normal"),
    _draw("random_gamma"),
    _draw("random_poisson_v2"),
    _draw("random_shuffle"),
    _draw("multinomial"),
    _convolution("conv"),
    _convolution("conv2d"),
    _convolution("conv3d"),
    _convolution("depthwise_conv2d_native"),
)

KERAS = (
    Hook(
        owner="keras.Model",
        name="__new__",
        reason="models that are made in a strategy's scope get their extension",
    ),
    Hook(
        owner="tensorflow.python.keras.engine.training.Model",
        name="__new__",
        reason="models of TensorFlow's old Keras are refused in a strategy's scope",
    ),
    Hook(
        owner="keras.Layer",
        name="__new__",
        reason="layers remember the pipeline stage in whose scope they were made",
    ),
    Hook(
        owner="keras.src.ops.node.Node",
        name="__init__",
        reason="symbolic calls remember the pipeline stage in whose scope they were made",
    ),
    Hook(
        owner="keras.Layer",
        name="__call__",
        reason="calls of layers are listed, or traced in the scopes of their stages",
    ),
    Hook(
        owner="keras.Operation",
        name="__call__",
        reason="operations in graphs are traced in the scopes of their stages",
    ),
    Hook(
        owner="keras.layers.BatchNormalization",
        name="call",
        reason="it is one operation in training, where that is faster",
    ),
    Hook(
        owner="keras.layers.BatchNormalization",
        name="_moments",
        reason="replicas combine their statistics",
    ),
    Hook(
        owner="keras.src.backend",
        name="lstm",
        reason="the backend has an LSTM over a whole sequence",
    ),
    Hook(
        owner="keras.src.backend.name_scope",
        name="__enter__",
        reason="what a layer builds and what it computes have one name scope",
    ),
    Hook(
        owner="keras.src.models.cloning",
        name="clone_model",
        reason="clones keep the options that saved models keep",
    ),
    Hook(owner="keras.Optimizer", name="apply", reason=_UPDATES),
    Hook(owner="keras.optimizers.LossScaleOptimizer", name="apply", reason=_UPDATES),
    Hook(owner="keras.src.saving.saving_lib", name="get_attr_skipset", reason=_SAVES_ALONE),
    _saves("keras.src.saving.saving_api", "save_model"),
    _saves("keras.saving", "save_model"),
    _saves("keras.models", "save_model"),
    _saves("keras._tf_keras.keras.models", "save_model"),
    _saves("keras.src.saving.saving_api", "save_weights"),
    _saves("keras.saving", "save_weights"),
    _saves("keras.Model", "export"),
    _saves("keras.callbacks.BackupAndRestore", "_save_model"),
    _saves("keras.callbacks.BackupAndRestore", "on_train_end"),
    Hook(
        owner="keras.src.utils.file_utils",
        name="makedirs",
        reason="processes that train together may make the same folder at once",
    ),
    Hook(owner="keras.models", name="clone_model", reason="is the same function"),
    Hook(owner="keras._tf_keras.keras.models", name="clone_model", reason="is the same function"),
)

# Keras's tables of names, which get an entry for each extended class. The entries are never
# taken back, as a model of such a class may still be saved after the strategy is gone.
_ENTRIES = "extended classes are saved as those that they extend"
ENTRIES = (
    Hook(
        owner="keras.src.api_export",
        name="REGISTERED_OBJS_TO_NAMES",
        reason=_ENTRIES,
        since="the first model of such a class",
        undone="never",
    ),
    Hook(
        owner="keras.src.saving.object_registration",
        name="GLOBAL_CUSTOM_NAMES",
        reason=_ENTRIES,
        since="the first model of such a class",
        undone="never",
    ),
)
