"""What is open while a model runs, and that all of it is closed whatever happens."""

import signal
import time

import pytest

SETUP = """
    import sys, threading, time
    import keras, numpy as np, tensorflow as tf
    from ipu_keras.ipu_strategy import IPUStrategy

    with IPUStrategy().scope():
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=2, jit_compile=False)

    class Say(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                print("running", flush=True)

    class Leave(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                sys.exit(7)

    class Slow(keras.utils.PyDataset):
        def __len__(self):
            return 1000
        def __getitem__(self, index):
            time.sleep(0.2 if 8 < index < 999 else 0)
            return np.ones((8, 4), "float32"), np.ones((8, 1), "float32")

    def slow():
        for index in range(1000):
            time.sleep(0.2 if index > 8 else 0)
            yield np.ones((8, 4), "float32"), np.ones((8, 1), "float32")

    def generator():
        return tf.data.Dataset.from_generator(
            slow, output_signature=(tf.TensorSpec([8, 4]), tf.TensorSpec([8, 1]))
        )

    def fit(data, callback):
        model.fit(data, steps_per_epoch=1000, shuffle=False, verbose=0, callbacks=[callback])
    """


def test_ctrl_c_during_fit(start_python):
    process = start_python(
        SETUP
        + """
    try:
        fit(generator(), Say())
    except KeyboardInterrupt:
        print("threads:", [thread for thread in threading.enumerate() if "ipu" in thread.name])
        raise
    """
    )
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    output, errors = process.communicate(timeout=60)
    assert time.monotonic() - start < 20
    assert output == "threads: []\n", errors
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT


@pytest.mark.parametrize(
    ("data", "asynchronous"), [("Slow(workers=2)", True), ("generator()", False)]
)
def test_leaving_while_a_feed_is_prefetching(start_python, data, asynchronous):
    process = start_python(
        SETUP
        + f"""
    model.set_asynchronous_callbacks({asynchronous})
    fit({data}, Leave())
    """
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 7, errors
    assert "Traceback" not in errors
