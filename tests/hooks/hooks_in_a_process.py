"""Looks at all that hooks replace: before `ipu_keras`, with it, and after it was undone.

Prints what it found as JSON.
"""

import gc
import importlib
import json
import os
import runpy
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras.src.utils import file_utils
from tensorflow.python.ops import gen_nn_ops, gen_random_ops

TABLE = Path(__file__).parents[2] / "ipu_keras" / "hooks" / "table.py"


def owner_of(path):
    """The module or class of a full name."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        parent, _, name = path.rpartition(".")
        return getattr(owner_of(parent), name)


def key(hook):
    return f"{hook.owner}.{hook.name}"


def own(hook):
    """What an owner has of its own; `None` if it inherits it."""
    return vars(owner_of(hook.owner)).get(hook.name)


# One use of each thing that is replaced, with a result that JSON has.


def logical_devices():
    return [device.name for device in tf.config.list_logical_devices("CPU")]


def physical_devices():
    return [device.name for device in tf.config.list_physical_devices()]


def device_scope():
    with tf.device("/device:CPU:0"), tf.device("/device:GPU:3"):
        return tf.constant(1.0).device


def elements():
    return [int(element) for element in tf.data.Dataset.range(3)]


def fused_batch_norm():
    x = tf.reshape(tf.range(8.0), (2, 2, 1, 2))
    results = tf.compat.v1.nn.fused_batch_norm(x, [1.0, 2.0], [0.0, 1.0])
    return [np.asarray(result).tolist() for result in results]


def operations(function):
    """Names, types and values of what a function traces."""
    traced = tf.function(function, autograph=False).get_concrete_function()
    names = [(operation.type, operation.name) for operation in traced.graph.get_operations()]
    return [names, np.asarray(traced()).tolist()]


def session(use):
    """What a use of a session gives: values, or the error, in a graph of a CPU and another one."""
    found = []
    for device in ("/device:CPU:0", "/device:GPU:7"):
        with tf.Graph().as_default():
            with tf.device(device):
                x = tf.compat.v1.placeholder(tf.float32, [2])
                y = x + tf.constant([1.0, 2.0])
            with tf.compat.v1.Session() as one:
                try:
                    found.append(np.asarray(use(one, y, x)).tolist())
                except tf.errors.InvalidArgumentError as error:
                    found.append(error.message.splitlines()[0].partition("{{")[0])
    return found


def session_run():
    return session(lambda one, y, x: one.run(y, {x: [3.0, 4.0]}))


def session_callable():
    return session(lambda one, y, x: one.make_callable(y, [x])(np.float32([3.0, 4.0])))


def convolution(name):
    rank = 5 if name == "conv3d" else 4
    image, kernel = tf.ones((1, *(2,) * (rank - 2), 1)), tf.ones((*(2,) * (rank - 2), 1, 1))
    function = getattr(gen_nn_ops, name)
    return operations(lambda: function(image, kernel, [1] * rank, "VALID", name="edges"))


def draw(name):
    given = {
        "random_uniform_int": ([2], 0, 9),
        "random_gamma": ([2], 3.0),
        "random_poisson_v2": ([2], 3.0),
        "random_shuffle": ([2, 3],),
        "multinomial": ([[0.0, 1.0]], 2),
    }.get(name, ([2], tf.float32))
    function = getattr(gen_random_ops, name)
    return operations(lambda: function(*given, seed=1, seed2=2, name="drawn"))


def dense(**options):
    return keras.layers.Dense(2, kernel_initializer="ones", name="dense", **options)


def made_model():
    return [
        [cls.__name__ for cls in type(model).__mro__] for model in (keras.Sequential(), model())
    ]


def model():
    keras.backend.clear_session()
    inputs = keras.Input((3,), name="inputs")
    return keras.Model(inputs, keras.ops.relu(dense()(inputs)) + 1.0, name="model")


def old_model():
    from tensorflow.python.keras.engine.training import Model

    return [cls.__name__ for cls in type(Model(name="old")).__mro__]


def layer_attributes():
    return sorted(vars(dense()))


def node_attributes():
    operation, *_ = dense()(keras.Input((3,)))._keras_history
    return [sorted(vars(node)) for node in operation._inbound_nodes]


def layer_call():
    return np.asarray(dense()(np.ones((1, 3), "float32"))).tolist()


def operation_call():
    return [operation.name for operation in model().operations]


def batch_norm():
    layer = keras.layers.BatchNormalization()
    outputs = layer(np.arange(12.0, dtype="float32").reshape(4, 3), training=True)
    return [np.asarray(outputs).tolist(), [weight.numpy().tolist() for weight in layer.weights]]


def lstm():
    layer = keras.layers.LSTM(2, kernel_initializer="ones", recurrent_initializer="ones")
    return np.asarray(layer(np.ones((1, 3, 2), "float32"))).tolist()


def scaled_update():
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=2.0)
    variable = keras.Variable(1.0)
    optimizer.apply([tf.constant(2.0)], [variable])
    return float(variable)


def scopes():
    layer = dense()
    layer.build((None, 3))
    return operations(lambda: layer(tf.ones((1, 3))))


def clone():
    return json.loads(keras.models.clone_model(model()).to_json())


def files_of(use):
    """The files that a use in a folder leaves there, and what it returns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = use(folder)
        return [sorted(str(path.relative_to(folder)) for path in folder.rglob("*")), result]


def save_model(owner):
    return files_of(lambda folder: owner.save_model(model(), folder / "of.keras"))


def save_weights(owner):
    return files_of(lambda folder: owner.save_weights(model(), folder / "of.weights.h5"))


def backups():
    def use(folder):
        one = model()
        one.compile("sgd", "mse")
        callback = keras.callbacks.BackupAndRestore(str(folder), delete_checkpoint=False)
        one.fit(np.ones((2, 3)), np.ones((2, 2)), verbose=0, callbacks=[callback])

    return files_of(use)


def folders():
    def use(folder):
        file_utils.makedirs(folder / "of" / "files")
        try:
            file_utils.makedirs(folder / "of")
        except FileExistsError as error:
            return type(error).__name__

    return files_of(use)


def checkpoints():
    def use(folder):
        path = tf.train.Checkpoint(it=tf.Variable(1.0)).save(folder / "of")
        return os.path.basename(path)

    return files_of(use)


def asynchronous_checkpoints():
    def use(folder):
        checkpoint = tf.train.Checkpoint(it=tf.Variable(1.0))
        options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
        checkpoint.save(folder / "of", options)
        checkpoint.write(folder / "other", options)
        checkpoint.sync()

    return files_of(use)


def exports():
    return files_of(lambda folder: tf.saved_model.save(tf.Module(), folder / "of"))


def exported_model():
    return files_of(lambda folder: model().export(folder / "of", verbose=False))


def exported_session():
    def use(folder):
        with tf.Graph().as_default(), tf.compat.v1.Session() as one:
            x = tf.compat.v1.placeholder(tf.float32)
            path = str(folder / "of")
            tf.compat.v1.saved_model.simple_save(one, path, {"x": x}, {"y": x + 1.0})

    return files_of(use)


def event_files():
    """How many parts the name of a file has."""
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        tf.compat.v1.summary.FileWriter(folder, filename_suffix=".of").close()
        (name,) = os.listdir(folder)
        return [name.count("."), name.endswith(".of")]


def session_checkpoints():
    def use(folder):
        with tf.Graph().as_default(), tf.compat.v1.Session() as one:
            tf.compat.v1.get_variable("v", [])
            one.run(tf.compat.v1.global_variables_initializer())
            return os.path.basename(tf.compat.v1.train.Saver().save(one, str(folder / "of")))

    return files_of(use)


def gradient_of_a_sum():
    x = tf.ones((2, 1, 3))
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.reduce_sum(x, axis=(0, 1, 2))
    return tape.gradient(total, x).numpy().tolist()


EXERCISES = {
    "_save_model": backups,
    "on_train_end": backups,
    "makedirs": folders,
    "get_attr_skipset": backups,
    "_maybe_create_save_counter": checkpoints,
    "tensorflow.compat.v1.train.Saver.save": session_checkpoints,
    "tensorflow.compat.v1.saved_model.Builder.save": exported_session,
    "tensorflow.compat.v1.saved_model.Builder.__init__": exported_session,
    "add_meta_graph": exported_session,
    "add_meta_graph_and_variables": exported_session,
    "save_and_return_nodes": exports,
    "export": exported_model,
    "tensorflow.compat.v1.summary.FileWriter.__init__": event_files,
    "_write": asynchronous_checkpoints,
    "tensorflow.python.checkpoint.async_checkpoint_helper.AsyncCheckpointHelper.save": (
        asynchronous_checkpoints
    ),
    "save": checkpoints,
    "update_checkpoint_state_internal": checkpoints,
    "_device_parsing_cache": device_scope,
    "list_logical_devices": logical_devices,
    "list_physical_devices": physical_devices,
    "put": gradient_of_a_sum,
    "_next_internal": elements,
    "fused_batch_norm_v3": fused_batch_norm,
    "tensorflow.python.client.session.BaseSession.__init__": session_run,
    "_do_run": session_run,
    "make_callable": session_callable,
    "keras.Model.__new__": made_model,
    "keras.Layer.__new__": layer_attributes,
    "tensorflow.python.keras.engine.training.Model.__new__": old_model,
    "__init__": node_attributes,
    "keras.Layer.__call__": layer_call,
    "keras.Operation.__call__": operation_call,
    "call": batch_norm,
    "_moments": batch_norm,
    "lstm": lstm,
    "__enter__": scopes,
    "clone_model": clone,
    "apply": scaled_update,
}


def exercise(hook, done):
    """What a use of a hook's owner gives; several hooks have the same use, which is made once."""
    if "conv" in hook.name:
        return convolution(hook.name)
    if hook.owner.endswith("gen_random_ops"):
        return draw(hook.name)
    if hook.name in ("save_model", "save_weights"):
        return globals()[hook.name](owner_of(hook.owner))
    use = EXERCISES[key(hook) if key(hook) in EXERCISES else hook.name]
    if use not in done:
        done[use] = json.loads(json.dumps(use()))
    return done[use]


def load_all():
    """Imports `ipu_keras`, and does what installs the hooks that wait for their first use."""
    import ipu_keras
    from ipu_keras.ops.distributed_batch_norm import distributed_batch_norm

    strategy = ipu_keras.ipu_strategy.IPUStrategy()
    with distributed_batch_norm(1):
        pass
    image = tf.ones((1, 2, 2, 1))
    ipu_keras.nn_ops.multi_conv(lambda x: tf.nn.conv2d(x, tf.ones((2, 2, 1, 1)), 1, "VALID"))(image)
    with tf.Graph().as_default(), ipu_keras.scopes.ipu_scope("/device:IPU:0"):
        ipu_keras.ipu_compiler.compile(lambda: tf.constant(1.0))
    return strategy


def entries(hooks, strategy):
    """What a model of an extended class adds to tables of Keras."""
    tables = {key(hook): getattr(owner_of(hook.owner), hook.name) for hook in hooks}

    @keras.saving.register_keras_serializable("hooks")
    class Registered(keras.Model):
        pass

    before = {name: set(table) for name, table in tables.items()}
    with strategy.scope():
        classes = {type(keras.Sequential()), type(Registered())}
    found = {}
    for name, table in tables.items():
        new = set(table) - before[name]
        found[name] = {"new": len(new), "extended": new < classes}
    return found


def main():
    table = runpy.run_path(str(TABLE))
    hooks = [*table["TENSORFLOW"], *table["KERAS"]]
    done = {}
    stock = {key(hook): exercise(hook, done) for hook in hooks}
    originals = {key(hook): own(hook) for hook in hooks}
    assert "ipu_keras" not in sys.modules
    strategy = load_all()

    from ipu_keras.hooks.installation import Installed, installed, uninstall

    done = {}
    rows = {
        key(hook): {
            "installed": installed(owner_of(hook.owner), hook.name) is not None,
            "stock": stock[key(hook)],
            "with_hook": json.loads(json.dumps(exercise(hook, done))),
        }
        for hook in hooks
    }
    in_place = [one for one in gc.get_objects() if isinstance(one, Installed)]
    names = {id(owner_of(hook.owner)): hook.owner for hook in hooks}
    all_installed = [
        f"{names.get(id(owner), owner)}.{one.name}" for one in in_place for owner in one.owners
    ]
    added = entries(table["ENTRIES"], strategy)
    for hook in hooks:
        uninstall(owner_of(hook.owner), hook.name)
    for hook in hooks:
        rows[key(hook)]["original_is_back"] = own(hook) is originals[key(hook)]
    print(json.dumps({"rows": rows, "installed": all_installed, "entries": added}))


if __name__ == "__main__":
    main()
