"""What each of several processes saves, for `test_checkpoints.py`: writes JSON into a folder."""

import json
import os
import signal
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import onnx
import popart
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu import horovod as hvd
from tensorflow.python.ipu.horovod.ipu_multi_replica_strategy import IPUMultiReplicaStrategy

tf1 = tf.compat.v1


class Own(keras.layers.Layer):
    """A weight that is not trained, and tells which process has saved it."""

    def build(self, _):
        self.rank = self.add_weight(shape=(), trainable=False, initializer="zeros")

    def call(self, x):
        return x

    def save_own_variables(self, store):
        super().save_own_variables(store)
        on_save(self)


def on_save(_):
    pass


def made_model():
    with IPUMultiReplicaStrategy().scope():
        model = keras.Sequential([keras.Input((4,)), Own(), keras.layers.Dense(2, "tanh")])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5), "mse", steps_per_execution=2)
    return model


def fit(model, epochs=1, callbacks=()):
    x = np.random.default_rng(hvd.rank()).normal(size=(16, 4)).astype("f4")
    y = np.tanh(x[:, :2])
    return model.fit(
        x, y, batch_size=4, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks)
    )


def keras_files(folder):
    """Of all files that all write, process 0's; of others, each process's own."""
    model = made_model()
    fit(model)
    model.layers[0].rank.assign(hvd.rank() + 1.0)
    found = {}

    def saved(name, read):
        found[name] = float(read(folder / name))

    def weights(path):
        other = made_model()
        other.load_weights(path)
        return other.layers[0].rank

    def whole(path):
        return keras.models.load_model(path, custom_objects={"Own": Own}).layers[0].rank

    if hvd.rank() == 0:  # as scripts do it, of which the others hear nothing
        with IPUMultiReplicaStrategy().scope():
            model.save_weights(folder / "first.weights.h5")
            tf.train.Checkpoint(model=model).save(folder / "of_first")
    model.save_weights(folder / "all.weights.h5")
    saved("all.weights.h5", weights)
    model.save(folder / "all.keras")
    saved("all.keras", whole)
    keras.saving.save_model(model, folder / "as_folder", zipped=False)
    saved("as_folder", whole)
    model.save_weights(folder / f"own_{hvd.rank()}.weights.h5")
    fit(model)
    saved(f"own_{hvd.rank()}.weights.h5", weights)
    # A file that is there already, in a place that another process has written before.
    model.layers[0].rank.assign(hvd.rank() + 5.0)
    model.save(folder / "all.keras")
    saved("all.keras", whole)
    saved("first.weights.h5", weights)
    path = str(folder / "made" / "{epoch}.weights.h5")
    fit(model, 2, [keras.callbacks.ModelCheckpoint(path, save_weights_only=True)])
    saved("made/2.weights.h5", weights)
    model.layers[1].bias.assign([hvd.rank(), 0.0])
    model.export(folder / "of.tflite", "litert", verbose=False)
    saved("of.tflite", bias_of_lite)
    found["errors"] = []
    # The last one has no place for a file.
    for path in (folder / "missing" / "of.keras", folder / "made.keras"):
        (folder / "made.keras").mkdir(exist_ok=True)
        try:
            model.save(path)
        except OSError as error:
            found["errors"].append(str(error).replace(str(folder), ""))
    return found


def bias_of_lite(path):
    interpreter = tf.lite.Interpreter(str(path))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.zeros((1, 4), "f4"))
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0, 0]


def tensorflow_files(folder):
    hvd.allreduce(tf.ones([]))
    variable = tf.Variable(hvd.rank() + 1.0)
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(it=variable), str(folder / "of_objects"), max_to_keep=1
    )
    paths = [manager.save() for _ in range(2)]
    variable.assign(0.0)
    manager.checkpoint.restore(manager.latest_checkpoint)
    found = {"objects": float(variable), "paths": [Path(path).name for path in paths]}
    written = tf.train.Checkpoint(it=variable).write(str(folder / "written"))
    found["written"] = Path(written).name
    found["threads"] = in_threads(folder / "threads")
    found["exported"] = exported(variable, folder / "exported")
    with tf.Graph().as_default(), tf1.Session() as session:
        value = tf1.get_variable("value", initializer=hvd.rank() + 1.0)
        session.run(tf1.global_variables_initializer())
        saver = tf1.train.Saver(max_to_keep=2)
        for step in range(3):
            path = saver.save(session, str(folder / "session"), step)
        session.run(value.assign(0.0))
        saver.restore(session, path)
        found["session"] = float(session.run(value))
        given = tf1.placeholder(tf.float32, [])
        tf1.saved_model.simple_save(
            session, str(folder / "simple"), {"x": given}, {"y": given + value}
        )
        writer = tf1.summary.FileWriter(folder / "events")
        writer.add_summary(tf1.Summary(), 0)
        writer.close()
    loaded = tf.saved_model.load(folder / "simple")
    found["simple"] = float(loaded.signatures["serving_default"](tf.zeros([]))["y"])
    found["last"] = [Path(path).name for path in saver.last_checkpoints]
    found["latest"] = Path(tf.train.latest_checkpoint(folder)).name
    return found


def in_threads(folder):
    """What is read of the second checkpoint that TensorFlow may write in a thread."""
    options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    variable = tf.Variable(hvd.rank() + 1.0)
    checkpoint = tf.train.Checkpoint(it=variable)
    paths = [checkpoint.save(folder / "of", options) for _ in range(2)]
    # Between the call and the thread, one process might go on to something else.
    hvd.allreduce(tf.ones([]))
    checkpoint.sync()
    return float(tf.train.load_variable(paths[-1], "it/.ATTRIBUTES/VARIABLE_VALUE"))


def exported(variable, folder):
    """What a SavedModel returns that was written twice."""
    module = tf.Module()
    module.variable, module.f = variable, tf.function(lambda: tf.identity(variable))
    for more in (0.0, 1.0):
        variable.assign(hvd.rank() + more)
        module.f()
        tf.saved_model.save(module, folder)
    loaded = tf.saved_model.load(folder)
    return float(loaded.f())


def popart_files(folder):
    hvd.allreduce(tf.ones([]))
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
    w = builder.addInitializedInputTensor(np.full(2, hvd.rank() + 1.0, "f4"))
    found = builder.aiOnnx.mul([x, w])
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, {found: popart.AnchorReturnType("All")}),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 1}),
    )
    session.prepareDevice()
    session.weightsFromHost()
    session.modelToHost(str(folder / "model.onnx"))
    (saved,) = onnx.load(folder / "model.onnx").graph.initializer
    return {"weights": onnx.numpy_helper.to_array(saved).tolist()}


def training(folder, dies_in):
    """Trains with backups, which process 0 does not live to finish in one epoch."""
    global on_save
    saved = iter(range(100))

    def on_save(layer):
        if hvd.rank() == 0 and next(saved) == dies_in:
            os.kill(os.getpid(), signal.SIGKILL)

    keras.utils.set_random_seed(1)
    model = made_model()
    # As a shell completes the name of a folder.
    callbacks = [keras.callbacks.BackupAndRestore(f"{folder}/backup/", double_checkpoint=True)]
    fit(model, 4, callbacks)
    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    return {"weights": weights.tolist(), "epochs": len(model.history.epoch)}


hvd.init()
ipu.config.IPUConfig().configure_ipu_system()
folder, what, *numbers = sys.argv[1:]
folder = Path(folder)
if what == "files":
    found = [of(folder) for of in (keras_files, tensorflow_files, popart_files)]
    found.append(training(folder, -1))
else:
    found = training(folder, *map(int, numbers))
Path(folder, f"{hvd.rank()}.json").write_text(json.dumps(found))
