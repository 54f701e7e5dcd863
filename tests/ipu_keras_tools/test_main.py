"""The command, in this process; that it starts without TensorFlow, in one of its own."""

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import keras
import pytest
import tensorflow as tf

import ipu_keras
from ipu_keras.cost.rewrites.precision import PRECISIONS
from ipu_keras.machine.system import SYSTEM
from ipu_keras.machine.target import TARGETS
from ipu_keras.settings.ipu_options import OPTIONS
from ipu_keras.settings.pipeline_choices import PipelineSchedule
from ipu_keras_tools.arguments import parser
from ipu_keras_tools.main import main

COMMANDS = (
    *("profile", "what-if", "suggest-pipeline", "diff", "report"),
    *("run", "info", "aliases", "options", "check"),
)
SOURCE = """
import keras
import tensorflow as tf

def make():
    layers = [keras.layers.Dense(64, name=name) for name in "abcd"]
    model = keras.Sequential([keras.Input((64,)), *layers], name="net")
    model.compile("sgd", "mse")
    return model

net = make()

def sized(units=8):
    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(units)], name="sized")

def product(x, y):
    return x @ y

def weighed(x, weights):
    return x @ weights

number = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a module and a model, which is where the command is run."""
    (tmp_path / "models.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    # Benchmarks, which other tests import, have a module of this name.
    monkeypatch.delitem(sys.modules, "models", raising=False)
    yield tmp_path
    sys.modules.pop("models", None)


def run(capsys, *arguments):
    """The exit code, and what is printed."""
    code = main(arguments)
    return code, capsys.readouterr().out


def test_help_needs_no_tensorflow():
    program = (
        "import sys; from ipu_keras_tools.main import main\n"
        "try: main(['profile', '--help'])\n"
        "finally: print({'tensorflow', 'keras', 'ipu_keras'} & {*sys.modules})"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.endswith("set()\n")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("--version", 0, "ipu-keras "),
        ("", 0, "suggest-pipeline\n"),
        ("profile net.keras 8", 2, "profile: error: There is no file 'net.keras'"),
        ("profile net.onnx", 2, "profile: error: There is no file 'net.onnx'"),
        ("what-if nothing:net 8", 2, "what-if: error: There is no module 'nothing'"),
        ("report nothing.py:net 8", 2, "report: error: There is no file 'nothing.py'"),
        ("profile keras:Model", 2, "profile: error: SPEC is missing"),
        ("diff a.json b.json", 2, "diff: error: a.json cannot be read: No such file"),
        ("check nothing.py", 2, "check: error: nothing.py cannot be read: No such file"),
        ("run nothing.py", 2, "run: error: There is no script 'nothing.py'"),
        ("suggest-pipeline nothing:net 8 --num-ipus 2", 2, "error: There is no module 'nothing'"),
        ("info nothing", 2, "error: unrecognized arguments: nothing"),
        ("aliases", 2, "aliases: error: one of the arguments --install --remove is required"),
        ("nothing", 2, "error: argument command: invalid choice: 'nothing'"),
        ("options io_tile", 2, "has no option 'io_tile'. The closest is 'io_tiles'"),
        ("options io_tiles", 0, "Options of IPUConfig: 3 of 3 have an effect"),
        ("info -d 31", 2, "there is no device 31. The devices are 0 to 30"),
        ("info -l", 0, "Graphcore device listing:"),
        ("aliases --install nowhere", 2, "nowhere is no folder"),
        ("diff empty.json empty.json", 2, "it must have schema 4. Received: None"),
        ("check broken.py", 2, "check: error: broken.py is no Python: "),
        ("run", 2, "the following arguments are required: script\n"),
        ("run --json empty.json", 2, "--json is for --modelled"),
        ("profile é.keras 8", 2, "There is no file '"),
        ("profile broken.keras 8", 2, "broken.keras is no zip archive"),
        ("profile keras:Model 8x", 2, "argument SPEC: must be a shape and type such as 32x784"),
        ("profile keras:Model 8 --target gc3", 2, "--target: must be one of gc2, gc200, bow, c600"),
        (
            "profile keras:Model 8 --mode fit",
            2,
            "must be one of train, test, predict. Received: 'f",
        ),
        ("profile keras:Model 8 --num-ipus 3", 2, "a power of two: 1, 2, 4 and so on. Received: '"),
        ("profile broken.onnx --num-ipus 2", 2, "--num-ipus means nothing for an ONNX model"),
        ("what-if keras:Model 8 --batch-size 8,x", 2, "must be a positive integer. Received: 'x'"),
        ("what-if keras:Model 8 --dtype float8", 2, "one of float16, float32. Received: 'float8'"),
        (
            "what-if keras:Model 8 --available-memory-proportion 0.6,2",
            2,
            "must be a number above 0 and at most 1. Received: '2'",
        ),
        ("profile keras:Model 8 --num-ipus 2048", 2, "must be at most 1024. Received: '2048'"),
        ("profile keras:Model 8 --num-replicas 1025", 2, "must be at most 1024. Received: '1025'"),
        ("what-if keras:Model 8 --batch-size 9999999999", 2, "must be at most 2147483647"),
        ("profile keras:Model 8x0", 2, "must be a shape with at least one element along each"),
        ("profile broken.py:net 8", 2, "profile: error: broken.py is no Python: "),
        ("profile unreadable.py:net 8", 2, "error: unreadable.py cannot be read: Input/output er"),
        ("profile broken.h5 8", 2, "broken.h5 is no HDF5 file, as `model.save('broken.h5')`"),
        (f"profile {'a' * 256}.keras 8", 2, "profile: error: There is no file 'aaa"),
        (f"run {'a' * 256}", 2, "run: error: There is no script 'aaa"),
        (f"aliases --install {'a' * 256}", 2, "aa is no folder. Make it"),
        ("run broken.py", 2, "run: error: broken.py is no Python: "),
        ("diff a.json b.json --max-growth nan", 2, "must be a finite number. Received: 'nan'"),
        (
            "report keras:Model 8 --html page --text ./page",
            2,
            "each form needs a file of its own. Received: page, ./page",
        ),
        ("suggest-pipeline keras:Model 8 --num-ipus 1", 2, "must be an integer, 2 or more"),
        ("suggest-pipeline broken.onnx 8 --num-ipus 2", 2, "takes no ONNX model"),
        ("report keras:Model 8", 2, "say what to write, with one of --html, --text, --per"),
        ("report keras:Model 8 --html nowhere/page.html", 2, "there is no folder 'nowhere'"),
        ("report keras:Model 8 --text .", 2, ". cannot be written: [Errno 21] Is a directory"),
    ],
)
def test_what_needs_no_tensorflow_does_not_import_it(tmp_path, arguments, code, said):
    """Nor does it need a terminal: what it says in a pipe has no colours."""
    (tmp_path / "empty.json").write_text("{}")
    for name in ("broken.py", "broken.keras", "broken.h5", "broken.onnx"):
        (tmp_path / name).write_text("def f(:")
    (tmp_path / "unreadable.py").symlink_to("/proc/self/mem")
    program = (
        "import sys; from ipu_keras_tools.main import main\n"
        "try: code = main(sys.argv[1:])\n"
        "except SystemExit as end: code = end.code\n"
        "print(code, {'tensorflow', 'keras', 'ipu_keras', 'numpy'} & {*sys.modules})"
    )
    process = subprocess.run(
        [sys.executable, "-c", program, *arguments.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert process.stdout.endswith(f"{code} set()\n")
    assert said in process.stdout + process.stderr
    assert "\x1b" not in process.stdout + process.stderr
    assert "Traceback" not in process.stderr


def test_choices_are_those_of_python():
    """They are written down once more, as importing them would take seconds."""

    def accepted(command, option, value):
        given = parser().parse_args([command, "a:b", "1", "--num-ipus", "2", option, value])
        return getattr(given, option.strip("-"))

    for option, values in (
        ("--target", TARGETS),
        ("--dtype", PRECISIONS),
        ("--mode", ("train", "test", "predict")),
    ):
        assert [accepted("profile", option, value) for value in values] == [*values]
    for name in PipelineSchedule.__members__:
        assert accepted("suggest-pipeline", "--schedule", name) == name


def test_a_later_import_finds_nothing_half_done():
    """As of a Python program that calls the command, and goes on."""
    program = (
        "from ipu_keras_tools.main import main; main(['info', '-d', '0'])\n"
        "import ipu_keras; print(ipu_keras.machine.system.SYSTEM is ipu_keras.SYSTEM)"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert process.stdout.endswith("\nTrue\n"), process.stderr


def test_tensorflow_writes_nothing_to_the_terminal(tmp_path):
    (tmp_path / "script.py").write_text("import keras")
    program = "import sys; from ipu_keras_tools.main import main; sys.exit(main(sys.argv[1:]))"
    for arguments in (["options", "io_tiles"], ["check", "script.py"]):
        process = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_that_is_right(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    example = text.partition("example: ipu-keras ")[2].partition(" > ")[0]
    assert parser().parse_args(example.split()).command == command
    assert "--json" in text


def test_the_module_is_the_command_and_runs_no_module_of_the_folder(tmp_path):
    for name in ("popart", "keras", "numpy", "csv"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('it was run')")
    (tmp_path / "script.py").write_text("import popart, keras")
    process = subprocess.run(
        [sys.executable, "-m", "ipu_keras", "check", "script.py", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)[0]["will_run"] is True


class TestProfile:
    def test_is_what_python_says(self, folder, capsys):
        code, out = run(capsys, "profile", "models:net", "8x64", "8x64", "--target", "bow")
        assert code == 0
        assert out.startswith("net.train on bow: ")
        net = sys.modules["models"].net
        spec = tf.TensorSpec((8, 64))
        assert out == str(ipu_keras.profile(net, spec, spec, target="bow"))

    @pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
    def test_a_file(self, folder, capsys):
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)], name="kept")
        model.save("kept.keras")
        code, out = run(capsys, "profile", "kept.keras", "4x8", "--json")
        assert (code, json.loads(out)["name"]) == (0, "kept.predict")

    def test_a_function_that_makes_a_model(self, folder, capsys):
        code, out = run(capsys, "profile", "models:sized", "8x64")
        assert (code, out.splitlines()[1].partition(" ")[0]) == (0, "sized.predict")

    def test_an_application_of_keras_needs_no_weights(self, folder, capsys):
        code, out = run(capsys, "profile", "keras.applications:MobileNetV2", "1x224x224x3")
        why, first, *_ = out.splitlines()
        assert (code, first.partition(" ")[0]) == (0, "mobilenetv2_1.00_224.predict")
        assert why == "Inference is modelled, as the model is not compiled"

    def test_weights_may_be_what_a_function_is_given(self, folder, capsys):
        code, out = run(capsys, "profile", "models:weighed", "8x64", "64x4")
        assert (code, out.partition(" ")[0]) == (0, "weighed")

    def test_a_function_and_options(self, folder, capsys):
        code, out = run(
            *(capsys, "profile", "models.py:product", "64x32:float16", "32x16:float16"),
            *("--json", "--steps-per-execution", "4", "--recomputation"),
        )
        found = json.loads(out)
        assert (code, found["name"]) == (0, "product")
        assert found["options"]["steps_per_execution"] == 4
        assert found["options"]["recomputation"] is True
        assert found["flops_per_step"] == 2 * 64 * 32 * 16

    def test_what_does_not_fit(self, folder, capsys):
        code, out = run(capsys, "profile", "models:product", "16384x16384", "16384x16384")
        assert code == 1
        assert "Out of memory on tile" in out
        assert "What would need less memory" in out

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("models", "8"), "SUBJECT must be a file that ends in .keras or .h5, or module:name"),
            (("models:none", "8"), "models has no 'none'"),
            (("models:number", "8"), "Received: 3 of type int"),
            (("models:net", "8:float3"), "TensorFlow has no type 'float3'"),
            (("models:net", "8", "8x64"), "Invalid input shape for input"),
        ],
    )
    def test_refusals(self, folder, capsys, arguments, message):
        assert main(["profile", *arguments]) == 2
        error = capsys.readouterr().err
        assert error.startswith("ipu-keras profile: error: ")
        assert message in error
        # Keras writes in bold, which files would keep.
        assert "\x1b" not in error


def test_what_if(folder, capsys):
    arguments = ("what-if", "models:make", "8x64", "8x64", "--batch-size", "8,16")
    code, out = run(capsys, *arguments, "--recomputation", "no,yes")
    assert (code, out.count("\n│")) == (0, 4)
    code, out = run(capsys, *arguments, "--dtype", "float16", "--json")
    found = json.loads(out)
    assert [one["choices"] for one in found] == [
        {"batch_size": 8, "dtype": "float16"},
        {"batch_size": 16, "dtype": "float16"},
    ]
    assert [one["is_best"] for one in found] == [False, True]
    assert all(one["fits"] and one["cycles_per_step"] > 0 for one in found)
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--recomputation", "perhaps"])
    assert "must be one of yes, no. Received: 'perhaps'" in capsys.readouterr().err
    assert main(["what-if", "models:product", "16384x16384", "16384x16384"]) == 1


def test_suggest_pipeline(folder, capsys):
    arguments = ("suggest-pipeline", "models:net", "8x64", "8x64", "--num-ipus", "2")
    code, out = run(capsys, *arguments)
    spec = tf.TensorSpec((8, 64))
    stages = ipu_keras.suggest_pipeline(sys.modules["models"].net, 2, spec, spec)
    table = capsys.readouterr().out
    assert (code, set(stages)) == (0, {0, 1})
    assert out == f"{table}model.set_pipeline_stage_assignment({stages})\n"
    code, out = run(capsys, *arguments, "--schedule", "Sequential", "--json")
    assert [one["layer"] for one in json.loads(out)] == list("abcd")
    assert {one["stage"] for one in json.loads(out)} == {0, 1}
    code, out = run(capsys, *arguments, "--dtype", "float16", "--recomputation")
    options = {"dtype": "float16", "recomputation": True}
    ipu_keras.suggest_pipeline(sys.modules["models"].net, 2, spec, spec, **options)
    assert out.startswith(capsys.readouterr().out)
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--schedule", "Other"])
    assert "must be one of Grouped, Interleaved, Sequential" in capsys.readouterr().err


def test_diff(folder, capsys):
    small, large = (
        ipu_keras.profile(lambda x: x @ x, tf.TensorSpec((n, n)), name="square") for n in (64, 1024)
    )
    Path("a.json").write_text(small.to_json())
    Path("b.json").write_text(large.to_json())
    code, out = run(capsys, "diff", "a.json", "b.json")
    assert (code, out.splitlines()[0]) == (0, "From square on gc200 to square on gc200")
    # The same as of the reports themselves.
    assert out.partition("\n")[2].rstrip() == str(small.diff(large)).rstrip()
    code, out = run(capsys, "diff", "a.json", "b.json", "--json", "--max-growth", "5")
    assert code == 1
    total = json.loads(out)["totals"]["cycles_per_step"]
    assert total == {"before": small.cycles_per_step, "after": large.cycles_per_step}
    assert run(capsys, "diff", "b.json", "a.json", "--max-growth", "5")[0] == 0
    code, out = run(capsys, "diff", "a.json", "b.json", "--html", "change.html")
    assert (code, out.splitlines()[-1]) == (0, "wrote change.html")
    small.diff(large).to_html("same.html")
    settings = '<section id="settings">'
    ours, theirs = (Path(f"{name}.html").read_text().split(settings) for name in ("change", "same"))
    assert ours[0] == theirs[0]
    assert main(["diff", "a.json", "b.json", "--html", "nowhere/change.html"]) == 2
    assert "nowhere/change.html cannot be written" in capsys.readouterr().err
    # What shells make for `<(gzip -dc a.json.gz)`.
    os.mkfifo("pipe")
    content = Path("a.json").read_text()
    writer = threading.Thread(target=lambda: Path("pipe").write_text(content))
    writer.start()
    assert run(capsys, "diff", "pipe", "a.json")[0] == 0
    writer.join()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda whole: [], "it must have schema"),
        (lambda whole: {"schema": whole["schema"]}, "has another structure: KeyError: 'target'"),
        (lambda whole: {**whole, "memory": 3}, "has another structure: TypeError"),
        (
            lambda whole: {**whole, "utilisation": "3"},
            "a finite number for 'utilisation'. Received: '",
        ),
        (lambda whole: {**whole, "utilisation": 1e999}, "for 'utilisation'. Received: inf"),
        (lambda whole: {**whole, "options": {"dtype": nested_lists(90)}}, "nested too deeply"),
        (lambda whole: {**whole, "options": "REPLACED"}, "is no report of `ipu-keras profile --j"),
    ],
)
def test_what_is_no_report(folder, capsys, change, message):
    report = ipu_keras.profile(lambda x: x @ x, tf.TensorSpec((4, 4)), name="square")
    Path("a.json").write_text(report.to_json())
    text = json.dumps(change(report.to_dict())).replace('"REPLACED"', "[" * 10**5)
    Path("b.json").write_text(text)
    assert main(["diff", "a.json", "b.json"]) == 2
    assert message in capsys.readouterr().err


def nested_lists(levels):
    return [nested_lists(levels - 1)] if levels else []


def test_files_that_cannot_be_compared(folder, capsys):
    for path, message in (
        ("nothing.json", "cannot be read: No such"),
        ("/dev/zero", "is no regular file"),
        (".", "cannot be read: Is a directory"),
    ):
        assert main(["diff", path, path]) == 2
        assert message in capsys.readouterr().err


def test_report(folder, capsys):
    arguments = ("report", "models:product", "64x64", "64x64")
    code, out = run(capsys, *arguments, "--html", "page.html", "--text", "page.txt")
    assert (code, out.splitlines()[1:]) == (0, ["wrote page.html", "wrote page.txt"])
    assert "<html" in Path("page.html").read_text()
    assert Path("page.txt").read_text().startswith("product on gc200: ")
    code, out = run(capsys, *arguments, "--chrome-trace", "trace.json", "--json")
    assert json.loads(out) == {"fits": True, "files": {"chrome_trace": "trace.json"}}
    assert json.loads(Path("trace.json").read_text())
    # A file that cannot be written whole stays as it was: another one takes its place.
    before = os.stat("trace.json").st_ino, os.stat("page.txt").st_ino
    run(capsys, *arguments, "--chrome-trace", "trace.json", "--text", "page.txt")
    after = os.stat("trace.json").st_ino, os.stat("page.txt").st_ino
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert main([*arguments, "--html", "nowhere/page.html"]) == 2
    assert "nowhere/page.html cannot be written" in capsys.readouterr().err


class TestOutput:
    def test_that_cannot_be_written(self, capsys, monkeypatch):
        for arguments, command in (
            (["options", "io_tiles"], "ipu-keras options"),
            (["info", "--json"], "ipu-keras info"),
            (["--help"], "ipu-keras"),
            (["--version"], "ipu-keras"),
            (["launch", "--dry-run", "script.py"], "ipu-keras launch"),
        ):
            with open("/dev/full", "w") as full:
                monkeypatch.setattr(sys, "stdout", full)
                assert main(arguments) == 2
            said = f"{command}: error: the output cannot be written: No space left on device\n"
            assert capsys.readouterr().err == said
        monkeypatch.setattr(sys, "stdout", None)
        for arguments in (["options"], ["--help"]):
            assert main(arguments) == 2
            assert "there is no standard output" in capsys.readouterr().err

    def test_has_no_messages_where_there_is_no_standard_error(self):
        """Python's `print` takes standard output for a file that is not there."""
        program = "import sys; from ipu_keras_tools.main import main; sys.exit(main())"
        for arguments in (["options", "io_tile"], ["nothing"]):
            process = subprocess.run(
                ["sh", "-c", '"$@" 2>&-', "sh", sys.executable, "-c", program, *arguments],
                stdout=subprocess.PIPE,
            )
            assert (process.returncode, process.stdout) == (2, b"")

    def test_that_nobody_reads_does_not_change_the_answer(self, folder, capsys, monkeypatch):
        for n in (64, 1024):
            report = ipu_keras.profile(lambda x: x @ x, tf.TensorSpec((n, n)), name="square")
            Path(f"{n}.json").write_text(report.to_json())
        for arguments, code in (
            (["diff", "64.json", "1024.json"], 0),
            (["diff", "64.json", "1024.json", "--max-growth", "5"], 1),
            ([], 0),
        ):
            reader, writer = os.pipe()
            os.close(reader)
            with open(writer, "w") as closed:
                monkeypatch.setattr(sys, "stdout", closed)
                assert main(arguments) == code
            assert capsys.readouterr().err == ""

    def test_of_a_terminal_with_few_characters(self, folder, monkeypatch):
        Path("é.py").write_text("import keras\nkeras.optimizers.SGD(lr='\x1b[31mü')\n")
        for arguments in (["options", "io_tiles"], ["check", "é.py"]):
            out = io.TextIOWrapper(io.BytesIO(), "ascii")
            monkeypatch.setattr(sys, "stdout", out)
            assert main(arguments) in (0, 1)
            text = out.buffer.getvalue().decode("ascii")
            assert "\x1b" not in text
            assert "| io_tiles." in text or r"\xe9.py:2:1: ValueError: Argument(s) not rec" in text


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "ipu-keras profile: interrupted\n"),
        # What is wrong in the package is no answer either, and its place is of use.
        (LookupError("in ours"), 2, "\nLookupError: in ours\n"),
    ],
)
def test_what_ends_a_command(monkeypatch, capsys, raised, code, said):
    def run(given):
        raise raised

    monkeypatch.setattr("ipu_keras_tools.commands.profile.run", run)
    assert main(["profile", "keras:Model", "8"]) == code
    assert capsys.readouterr().err.endswith(said)


class TestInfo:
    def test_the_listing_is_that_of_the_documents(self, capsys):
        lines = run(capsys, "info", "-l")[1].splitlines()
        assert lines[:3] == [
            "Graphcore device listing:",
            "",
            "-+- Id:  [0], type:      [PCIe], PCI Domain: [0000:1a:00.0]",
        ]
        assert lines[12] == "-+- Id: [10], type:      [PCIe], PCI Domain: [0000:8e:00.0]"
        start = lines.index("-+- Id: [20], type: [Multi IPU]")
        assert lines[start + 1 : start + 3] == [
            "|--- PCIe Id: [13], DNC Id: [0], PCI Domain: [0000:b9:00.0]",
            "|--- PCIe Id: [15], DNC Id: [1], PCI Domain: [0000:bb:00.0]",
        ]
        start = lines.index("-+- Id: [30], type: [Multi IPU]")
        assert lines[start + 1] == "|--- PCIe Id:  [5], DNC Id:  [0], PCI Domain: [0000:3e:00.0]"

    def test_json(self, capsys):
        devices = json.loads(run(capsys, "info", "--json")[1])["devices"]
        assert devices[19] == {
            "id": 19,
            "type": "Multi IPU",
            "ipus": [
                {"pcie_id": 2, "dnc_id": 0, "pci_domain": "0000:23:00.0"},
                {"pcie_id": 0, "dnc_id": 1, "pci_domain": "0000:1a:00.0"},
            ],
        }

    def test_one_device(self, capsys):
        assert run(capsys, "info", "-d", "18") == (
            0,
            "Graphcore device listing:\n\n-+- Id: [18], type: [Multi IPU]\n"
            "|--- PCIe Id:  [3], DNC Id: [0], PCI Domain: [0000:24:00.0]\n"
            "|--- PCIe Id:  [1], DNC Id: [1], PCI Domain: [0000:1b:00.0]\n",
        )
        (device,) = json.loads(run(capsys, "info", "-l", "-j", "-d", "18")[1])["devices"]
        assert [ipu["pcie_id"] for ipu in device["ipus"]] == [3, 1]

    def test_the_hardware_of_a_device(self, capsys):
        out = run(capsys, "info", "-d", "16", "-I")[1]
        # What the documents look for: `gc-info -d 0 -I`.
        assert "remote buffers supported: 1\n" in out
        assert out.startswith("Device Id: [16]\ntarget: gc200\nnumber of IPUs: 2\n")
        (device,) = json.loads(run(capsys, "info", "-d", "16", "-I", "--json")[1])["devices"]
        attributes = device["attributes"]
        assert attributes["tiles per IPU"] * attributes["bytes per tile"] == 940572672
        assert run(capsys, "info", "-I")[1].count("Device Id: ") == 31

    @pytest.mark.parametrize("number", ["31", "-1"])
    def test_no_such_device(self, capsys, number):
        assert main(["info", f"--device-id={number}"]) == 2
        error = capsys.readouterr().err
        assert f"there is no device {number}. The devices are 0 to 30: `ipu-keras info -l`" in error

    def test_the_table(self, capsys):
        out = run(capsys, "info")[1]
        assert out.startswith("An emulated machine of 16 IPUs\n")
        assert "28, 29" in out


class TestOptions:
    def test_all(self, capsys):
        code, out = run(capsys, "options", "--json")
        found = json.loads(out)
        assert code == 0
        assert [one["option"] for one in found] == [
            option.name for option in OPTIONS if not option.is_category
        ]
        assert {one["state"] for one in found} == {"works", "no effect"}
        assert all(one["today"] for one in found)

    def test_a_category(self, capsys):
        out = run(capsys, "options", "io_tiles")[1]
        assert out.startswith("Options of IPUConfig: 3 of 3 have an effect\n")
        assert out.count("io_tiles.") == 3


TRAINING = """
import sys
import keras
from tensorflow.python import ipu
from neighbour import SIZE
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
with ipu.ipu_strategy.IPUStrategy().scope():
    model = keras.Sequential([keras.Input((SIZE,)), keras.layers.Dense(2)], name="net")
model.compile("sgd", "mse", steps_per_execution=2)
model.fit(keras.ops.zeros((8, SIZE)), keras.ops.zeros((8, 2)), batch_size=4, verbose=0)
model.predict(keras.ops.zeros((4, SIZE)), batch_size=2, verbose=0)
print(__name__, sys.argv)
"""


class TestRun:
    @pytest.fixture
    def script(self, folder, monkeypatch):
        monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", "{}")
        (folder / "scripts").mkdir()
        (folder / "scripts" / "neighbour.py").write_text("SIZE = 4")
        (folder / "scripts" / "train.py").write_text(TRAINING)
        SYSTEM.reset()
        yield "scripts/train.py"
        sys.modules.pop("neighbour", None)
        SYSTEM.reset()

    def test_as_python_does(self, script, capsys):
        code, out = run(capsys, "run", script, "--json", "-x")
        assert (code, out) == (0, f"__main__ ['{script}', '--json', '-x']\n")

    def test_modelled(self, script, capsys):
        code, out = run(capsys, "run", "--modelled", "--json", script)
        found = json.loads(out.splitlines()[-1])
        assert [one["name"] for one in found] == ["net.train", "net.predict"]
        assert all(one["fits"] and one["target"] == "gc200" for one in found)
        SYSTEM.reset()
        code, out = run(capsys, "run", "--modelled", script)
        assert code == 0
        assert "│ net.train " in out

    def test_tensorflow_1(self, script, folder):
        (folder / "one.py").write_text(
            "import tensorflow as tf\nwith tf.Session() as s: print(s.run(tf.constant(3)))"
        )
        process = subprocess.run(
            [sys.executable, "-m", "ipu_keras", "run", "--tf1", "one.py"],
            capture_output=True,
            text=True,
        )
        assert (process.returncode, process.stdout) == (0, "3\n")

    def test_a_pipe_that_the_script_breaks_is_its_own(self, script):
        Path("breaks.py").write_text("raise BrokenPipeError('mine')")
        with pytest.raises(BrokenPipeError, match="mine"):
            main(["run", "breaks.py"])

    def test_what_a_script_raises_is_shown_from_its_own_lines_on(self, script, capsys, monkeypatch):
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)
        Path("raises.py").write_text("def f(): return {}[3]\nf()")
        with pytest.raises(KeyError) as raised:
            main(["run", "raises.py"])
        sys.excepthook(raised.type, raised.value, raised.value.__traceback__)
        assert [line for line in capsys.readouterr().err.splitlines() if "^" not in line] == [
            "Traceback (most recent call last):",
            '  File "raises.py", line 2, in <module>',
            "    f()",
            '  File "raises.py", line 1, in f',
            "    def f(): return {}[3]",
            "KeyError: 3",
        ]

    def test_refusals(self, script, capsys, monkeypatch):
        monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", "[3]")
        assert main(["run", "--modelled", script]) == 2
        assert "must be a JSON object. Received: [3]" in capsys.readouterr().err
