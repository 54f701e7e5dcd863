"""What `ipu-keras check` prints, and what it does not invent."""

import doctest
import json
import os
import threading

import pytest

from ipu_keras_tools.checks import ipu_names, reading
from ipu_keras_tools.checks.reading import findings_of
from ipu_keras_tools.main import main


@pytest.mark.parametrize("module", [ipu_names, reading])
def test_examples(module):
    assert doctest.testmod(module).failed == 0


def problems(source):
    return [(one.line, one.error, one.said) for one in findings_of(source, "net.py").problems]


def test_the_text(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "old.py").write_text(
        "import keras\n"
        "from tensorflow.python import ipu\n"
        "config = ipu.config.IPUConfig()\n"
        "config.experimental.enable_prng_stability = True\n"
        "print(ipu.ipu_estimator.IPUEstimator, keras.optimizers.SGD(lr=0.1))\n"
    )
    (tmp_path / "new.py").write_text("import keras\nkeras.optimizers.SGD(learning_rate=0.1)\n")
    assert main(["check", "."]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "old.py:5:39: ValueError: Argument(s) not recognized: {'lr': 0.1}",
        "    It is `learning_rate` that optimizers have: write that for `lr`.",
    ]
    text = "\n".join(lines)
    assert "IPUConfig.experimental.enable_prng_stability │ partly" in text
    assert lines[-1] == (
        "1 of 2 will fail; reasons: 1; notes: 0; IPU names that work: 5, in part: 1"
    )
    assert main(["check", "new.py", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"path": "new.py", "problems": [], "names": [], "notes": [], "will_run": True}
    ]
    (tmp_path / "none.py").write_text("def")
    for path, said in (("none.py", "is no Python: "), ("nothing.py", "cannot be read: No such")):
        assert main(["check", path]) == 2
        assert said in capsys.readouterr().err


def test_scripts_of_any_encoding(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    wrong = b"import keras\nkeras.optimizers.SGD(lr='\xe9')"
    (tmp_path / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\n" + wrong)
    (tmp_path / "mark.py").write_bytes(b"\xef\xbb\xbf" + wrong.replace(b"\xe9", b"\xc3\xa9"))
    for path, line in (("latin.py", 3), ("mark.py", 2)):
        assert main(["check", path]) == 1
        assert capsys.readouterr().out.startswith(f"{path}:{line}:1: ValueError: ")
    (tmp_path / "none.py").write_bytes(wrong)
    (tmp_path / "other.py").write_bytes(b"# coding: klingon\n")
    for path, said in (("none.py", "'utf-8' codec can't decode"), ("other.py", "klingon")):
        assert main(["check", path]) == 2
        error = capsys.readouterr().err
        assert (f"{path} is no Python: " in error, said in error) == (True, True)


def test_a_folder_with_what_cannot_be_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.py").write_text("x = 1")
    (tmp_path / "old.py").write_text("x = 1\nprint 'of Python 2'")
    (tmp_path / "null.py").write_text("x = '\0'")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "link.py").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.py")
    assert main(["check", "."]) == 1
    out, errors = capsys.readouterr()
    first, second, last = out.splitlines()
    assert first.startswith("null.py:1:1: SyntaxError: ")
    assert second.startswith("old.py:2:1: SyntaxError: Missing parentheses in call to 'print'")
    assert last.startswith("2 of 3 will fail; reasons: 2; ")
    warned = [line.partition(" is left out: ")[0] for line in errors.splitlines()]
    assert warned == ["warning: folder.py", "warning: link.py", "warning: pipe.py"]
    assert main(["check", "folder.py"]) == 0
    assert capsys.readouterr().err == "warning: folder.py has no script (*.py)\n"
    # What is named is waited for, as a shell's `<(command)` is a pipe; a device has no end.
    writer = threading.Thread(target=lambda: (tmp_path / "pipe.py").write_text("x = 1"))
    writer.start()
    assert main(["check", "pipe.py"]) == 0
    writer.join()
    assert main(["check", "/dev/zero"]) == 2
    assert "'/dev/zero' is no regular file" in capsys.readouterr().err


def test_escape_sequences_of_scripts_do_not_reach_the_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "red.py").write_text("import keras\nkeras.optimizers.SGD(**{}, lr='\x1b[31m\x9b')")
    assert main(["check", "red.py"]) == 1
    assert r"{'lr': '\x1b[31m\x9b'}" in capsys.readouterr().out
    assert main(["check", "\x1b[31m.py"]) == 2
    assert r"error: \x1b[31m.py cannot be read" in capsys.readouterr().err


def test_notes_of_what_changes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "idle.py").write_text(
        "from tensorflow.python.ipu import utils\n"
        "utils.create_ipu_config(enable_ipu_events=True, max_report_size=3)\n"
        "utils.create_ipu_config(enable_ipu_events=True)\n"
    )
    # Notes are no reason to fail.
    assert main(["check", "idle.py"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "idle.py:2:43: note: `enable_ipu_events` of `create_ipu_config` has no effect here: there "
        "are no trace events (and at 3:43)",
        "idle.py:2:65: note: `max_report_size` of `create_ipu_config` has no effect here: reports "
        "are files, of any size",
    ]
    assert lines[-1].startswith("0 of 1 will fail; reasons: 0; notes: 3; IPU names that work: ")
    assert main(["check", "idle.py", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found["notes"][0] == {
        "line": 2,
        "column": 43,
        "name": "create_ipu_config",
        "argument": "enable_ipu_events",
        "why": "there are no trace events",
    }


def test_scripts_of_tensorflow_1():
    source = "import tensorflow as tf\nwith tf.Session() as s: pass\nimport tensorflow.contrib"
    first, second = findings_of(source, "").problems
    assert "run it with `ipu-keras run --tf1`, or write `tf.compat.v1.Session`" in first.instead
    assert second.line == 3
    assert "run it with `ipu-keras run --tf1`" in second.instead


@pytest.mark.parametrize(
    "source",
    [
        # What the script catches, or does itself.
        "import keras\ntry: keras.backend.sum\nexcept AttributeError: pass",
        "try: import tensorflow.contrib\nexcept ImportError: pass",
        "import keras\nclass A(keras.Model):\n    def lr(self): return self.reset_states()\n"
        "    def reset_states(self): pass",
        "from ipu_tensorflow_addons.keras.layers import Embedding as E\nE(3, 4, mask_zero=False)",
        "class Logs(dict): pass\nprint(Logs().lr, Logs({}).reset_states)",
        "class Options: pass\noptions = Options()\nprint(options.lr, options.fit_generator())",
        "import keras\nm = keras.Sequential()\nm.lr = 3\nm = 3\nm.reset_states()",
        # What Keras 3 takes as before.
        "import keras\nkeras.layers.Dense(3, input_shape=(4,), dtype='float16', name='a')",
        "import keras\nkeras.layers.LSTM(3, unroll=True, activity_regularizer=None)",
        "import keras\nkeras.optimizers.Adam(1e-3, beta_1=0.9, clipnorm=1.0, weight_decay=0.1)",
        "import keras\nkeras.callbacks.ModelCheckpoint('a.keras', save_best_only=True)",
        "import keras\nx = keras.Input((3,))\nkeras.Model(x, x * 2, name='m').save('m.keras')",
        "import keras\nx = keras.ops.relu(keras.Input((3,)))\nprint(x.shape, x.dtype)",
        "import keras\nkeras.Sequential([keras.Input(4)] if 0 else [], name='a').fit(verbose=0)"
        ".history['loss']",
        "import tensorflow as tf\ntf.nn.relu(tf.zeros([3]), name='a').get_shape()",
        "import tensorflow as tf\ntf.compat.v1.Session().run(tf.compat.v1.train.AdamOptimizer)",
        "import tensorflow as tf\nkeywords = {}\ntf.keras.optimizers.SGD(**keywords)",
        # What layers take out of their other arguments, and losses and optimizers out of theirs.
        "import keras\nkeras.layers.LeakyReLU(alpha=0.1)",
        "import keras\nkeras.layers.Embedding(3, 4, input_length=5)",
        "import keras\nkeras.layers.LSTM(3, implementation=1)\nkeras.layers.Dense(3, input_dim=4)",
        "import keras\nkeras.losses.MeanSquaredError(reduction='sum')",
        "import keras\nkeras.optimizers.SGD(decay=0.1)",
        # What bases and lists of callbacks take.
        "import keras\nclass A(keras.callbacks.EarlyStopping):\n"
        "  def __init__(self): super().__init__('loss', 0.1)\nA()",
        "import keras\nkeras.callbacks.CallbackList([], model=None, epochs=3)",
        "import keras\nkeras.callbacks.LambdaCallback(on_test_begin=print)",
        # What a class calls as a module is called.
        "from keras import activations\nclass A:\n  @property\n  def activations(self): pass\n"
        "  @activations.setter\n  def activations(self, value): pass",
        # What the script may give to its objects, or asks for.
        "import keras\nm = keras.Sequential()\nm.own = 3\nprint(m.own)",
        "import keras\nm = keras.Sequential()\nsetattr(m, name(), 3)\nprint(m.own)",
        "import keras\nm = keras.Sequential()\nif hasattr(m, 'own'): print(m.own)",
        "import keras\no = keras.optimizers.SGD()\nprint(o.lr if hasattr(o, 'lr') else o.name)",
        "import keras\nif hasattr(keras.backend, 'get_value'): keras.backend.get_value(3)",
        "import keras, other\nclass A(other.Mixin, keras.Model): pass\nprint(A().own)",
        "import keras, other\n@other.made\nclass A(keras.Model): pass\nprint(A().own)",
        "import keras\nclass A(keras.Model):\n  @property\n  def own(self): pass\nprint(A().own)",
        "import keras\nm = keras.Model(1, 2)\nprint(m.output_names, m.optimizer, m.history)",
        "import keras\nm = keras.models.load_model('a.keras')\nprint(m.own)",
        "import tensorflow as tf\ntf.compat.v1.data.Dataset.range(3).make_one_shot_iterator()",
        "import tensorflow as tf\ntf.data.Dataset.range(3).batch(2).take(1).as_numpy_iterator()",
        "import keras\nkeras.models.load_model('.')\nkeras.models.load_model('hf://a/b')",
        "from tensorflow.python.ipu.config import IPUConfig\nc = IPUConfig()\n"
        "c.auto_select_ipus = [1, 2]\nc.ipu_model.version = 'ipu2'\nc.io_tiles.num_io_tiles = n",
        "from tensorflow.python import ipu\nc = ipu.utils.create_ipu_config()\n"
        "ipu.utils.set_ipu_connection_type(c, ipu.utils.DeviceConnectionType.NEVER, 'ipu2')",
        "import popart\no = popart.SessionOptions()\no.enableOutlining = False",
        # What waits for a library that is not here.
        "from keras.src.utils import module_utils\nprint(module_utils.grain.nothing)",
        # What is not looked into.
        "import json\njson.nothing\nfrom . import other\nother.thing(lr=3)",
        "def f(n): return f(n - 1)\nf(3)",
    ],
)
def test_what_is_no_problem(source):
    found = problems(source.replace("keras.Input(4)", "keras.Input((4,))"))
    assert found == []


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        ("from keras import backend as K\nK.sum(3)", 2, "module 'keras.backend' has no attribute"),
        ("import keras\nSIZE = 80\nkeras.Input(SIZE)", 3, "Cannot convert '80' to a shape."),
        (
            "import keras, tensorflow as tf\ndef f(x):\n  return tf.exp(x)\nf(keras.Input((3,)))",
            3,
            "A KerasTensor cannot be used as input",
        ),
        (
            "import keras\nclass A(keras.Sequential): pass\nA().predict_proba(1)",
            3,
            "'A' object has no attribute 'predict_proba'",
        ),
        (
            "import keras\ndef f():\n  m = keras.Sequential()\n  return m\nf().reset_states()",
            5,
            "'Sequential' object has no attribute 'reset_states'",
        ),
        (
            "import keras\nclass A:\n  def __init__(self): self.o = keras.optimizers.SGD()\n"
            "  def f(self): return self.o.lr",
            4,
            "'SGD' object has no attribute 'lr'",
        ),
        ("from keras.layers import CuDNNLSTM", 1, "module 'keras.layers' has no attribute"),
        (
            "from ipu_tensorflow_addons.keras.layers import SerialDense\n"
            "SerialDense(3, batch_input_shape=(4, 3))",
            2,
            "Unrecognized keyword arguments passed to SerialDense: {'batch_input_shape'",
        ),
        ("import keras\nkeras.layers.Dense(units=3, output_dim=4)", 2, "{'output_dim': 4}"),
        (
            "from tensorflow.python.ipu.config import IPUConfig\nc = IPUConfig()\nc.io_tile.n = 3",
            3,
            "io_tile",
        ),
        (
            "from tensorflow.python.ipu.config import IPUConfig\nc = IPUConfig()\n"
            "c.ipu_model.version = 2",
            3,
            "Trying to set ipu_model.version to 2, but it must be of type str",
        ),
        (
            "from tensorflow.python.ipu import utils\nc = utils.create_ipu_config()\n"
            "utils.set_ipu_connection_type(c, utils.DeviceConnectionType.NEVER, ipu_version=1)",
            3,
            "device_connection.version",
        ),
        (
            "import keras\nm = keras.Sequential()\nm.updates",
            3,
            "'Sequential' object has no attribute 'updates'",
        ),
        ("from tensorflow_core import keras as K\nK.optimizers.SGD(lr=1)", 2, "{'lr': 1}"),
        ("def f():\n  import poptorch", 2, "No module named 'poptorch'"),
        ("import keras\nkeras.Sequential().load_weights('a')", 2, "not supported: filepath=a."),
        ("import keras\nkeras.models.load_model('a.tf')", 2, "not supported: filepath=a.tf."),
        (
            "import keras\nkeras.losses.MeanSquaredError(reduction='auto')",
            2,
            "Invalid value for argument `reduction`",
        ),
        (
            "import tensorflow as tf\nd = tf.data.Dataset.range(3).batch(2)\nd.output_shapes",
            3,
            "object has no attribute 'output_shapes'",
        ),
        (
            "import popart\no = popart.SessionOptions()\no.enablePipeline = True",
            3,
            "Did you mean 'enablePipelining'?",
        ),
    ],
)
def test_what_is_one(source, line, said):
    [(found, _, text)] = problems(source)
    assert (found, said in text) == (line, True)
