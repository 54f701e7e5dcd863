"""What becomes of three processes when one of them fails: how soon all end, and what they say.

`python benchmarks/process_faults.py` runs each fault under `poprun` and under `mpirun` and prints a
table; names of faults as arguments run only these. Seconds are from the fault to the end of the
launcher; a process that is late is waited for, and one that is stuck as long as
IPU_KERAS_PROCESS_SECONDS says, which is 10 here.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

NUM_RANKS, ODD = 3, 1
LAUNCHERS = {
    "poprun": [sys.executable, "-m", "ipu_keras_tools.poprun", "--num-instances", str(NUM_RANKS)],
    "mpirun": [Path(sys.executable).with_name("mpirun"), "-n", str(NUM_RANKS)],
}
# Lines that say why: of the process itself, of the launcher, and of MPICH.
SAID = re.compile(
    r"rank \d of \d (?:failed: |was killed|and all others).*|poprun: instance .*|"
    r"=   (?:PID|EXIT CODE:) .*|"
    r".*[Bb]roken pipe.*|YOUR APPLICATION TERMINATED .*|no word from .*|processes do .*|"
    r"rank \d has ended .*"
)
MOST_SECONDS = 120


def note(folder):
    """Keeps when the fault began."""
    Path(folder, "began").write_text(str(time.time()))


def kill(folder):
    note(folder)
    os.kill(os.getpid(), signal.SIGKILL)


def train(fault, folder):
    """Trains for a few epochs with a backup after each; the odd process fails in the second."""
    import keras
    import numpy as np
    from tensorflow.python import ipu
    from tensorflow.python.ipu import horovod as hvd
    from tensorflow.python.ipu.horovod.ipu_multi_replica_strategy import IPUMultiReplicaStrategy

    hvd.init()
    ipu.config.IPUConfig().configure_ipu_system()
    is_odd = hvd.rank() == (0 if fault == "killed in a checkpoint" else ODD)
    odd = fault if is_odd else ""

    class Dense(keras.layers.Dense):
        def save_own_variables(self, store):
            super().save_own_variables(store)
            if odd == "killed in a checkpoint" and time.monotonic() > self.from_then_on:
                kill(folder)

    class Fault(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1 and odd:
                self.fail()
            if fault == "closed output":
                print("epoch", epoch, "of rank", hvd.rank(), flush=True)

        def fail(self):
            if odd == "exception":
                note(folder)
                raise ValueError("bad sample 17")
            if odd == "killed":
                kill(folder)
            if odd == "killed in an execution":
                # An execution takes more than a second.
                threading.Timer(0.3, kill, [folder]).start()
            if odd == "killed in a checkpoint":
                layer.from_then_on = 0
            if odd in ("late", "stuck"):
                note(folder)
                time.sleep(20 if odd == "late" else 10**6)

    if odd.startswith(("other", "fewer")):
        note(folder)
    ipu.utils.reset_ipu_seed(1 if odd == "other seed" else 0)
    steps = 3000 if fault == "killed in an execution" else 4
    rows = 8 if odd == "other batch size" else 4
    with IPUMultiReplicaStrategy().scope():
        layer = Dense(8, "relu" if odd == "other model" else "tanh")
        layer.from_then_on = float("inf")
        model = keras.Sequential([keras.Input((4,)), layer, keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=steps)
    x = np.random.default_rng(hvd.rank()).normal(size=(2 * rows * steps, 4)).astype("f4")
    if odd == "fewer batches":
        x = x[: len(x) // 2]
    backup = keras.callbacks.BackupAndRestore(folder / "backup")
    epochs = 10**6 if fault == "closed output" else 3
    callbacks = [Fault(), backup]
    y = x[:, :1]
    model.fit(x, y, batch_size=rows, epochs=epochs, callbacks=callbacks, verbose=0, shuffle=False)
    print("trained", flush=True)


FAULTS = (
    *("exception", "killed", "killed in an execution", "killed in a checkpoint", "late"),
    *("other model", "other seed", "fewer batches", "other batch size", "stuck"),
    *("closed output",),
)


def measured(launcher, fault):
    """The seconds until all had ended, how many were left, the exit code, and what was said."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*LAUNCHERS[launcher], sys.executable, __file__, "--train", fault, folder]
        started = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            # MPICH's launcher says on its own output what was killed.
            stderr=subprocess.PIPE if fault == "closed output" else subprocess.STDOUT,
            text=True,
            env={**os.environ, "IPU_KERAS_PROCESS_SECONDS": "40" if fault == "late" else "10"},
        )
        if fault == "closed output":
            started.stdout.readline()
            note(folder)
            started.stdout.close()
            started.stdout = None
        try:
            output, errors = started.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            started.kill()
            output, errors = started.communicate()
        said = output or errors
        ended = time.time()
        listed = subprocess.run(["pgrep", "-f", folder], capture_output=True, text=True)
        left = listed.stdout.split()
        for number in left:
            os.kill(int(number), signal.SIGKILL)
        began = Path(folder, "began")
        seconds = ended - float(began.read_text()) if began.exists() else float("nan")
        lines = dict.fromkeys(SAID.findall(said))
        return seconds, len(left), started.returncode, [*lines] or said.splitlines()[-3:]


def main(*faults):
    for fault in faults or FAULTS:
        for launcher in LAUNCHERS:
            seconds, left, code, lines = measured(launcher, fault)
            print(f"| {fault} | {launcher} | {seconds:.1f} s | {left} left | code {code} |")
            for line in lines:
                print("     ", line.strip()[:300], flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2], Path(sys.argv[3]))
    else:
        main(*sys.argv[1:])
