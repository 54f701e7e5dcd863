"""The node tests of ONNX, run by us and by others.

Run `python benchmarks/onnx_nodes.py` for those of the installed onnx, which are of the newest
versions of operations; or `python benchmarks/onnx_nodes.py WHEEL` for those of ONNX 1.6, whose
opset 11 is the newest of PopART. Their data is in the wheel of onnx 1.6.0, which is for Pythons
that are gone; `--help` says how to get it. Each case is a model of one node, with inputs and with
what has to come out, compared as ONNX compares them. What is refused by name, as there is no such
operation or type, is counted apart.
"""

import argparse
import importlib.util
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import onnx
import tensorflow as tf
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator
from rich.console import Console
from rich.table import Table

from ipu_keras import popart
from ipu_keras.popart.files.loading import load
from ipu_keras.popart.model.data_types import narrowed
from ipu_keras.popart.operations.evaluation import outputs_of
from ipu_keras.popart.operations.table import operation_of

DATA = "onnx/backend/test/data/node/"
HOW_TO_GET = """of onnx 1.6.0: pip download onnx==1.6.0 --no-deps --only-binary=:all:
--implementation cp --python-version 3.7 --abi cp37m --platform manylinux1_x86_64"""

# As ONNX's own runner of these tests.
RELATIVE, ABSOLUTE = 1e-3, 1e-7

Feeds = Mapping[str, np.ndarray]
Runner = Callable[[onnx.ModelProto, Feeds], list[object]]


@dataclass(frozen=True)
class Case:
    """One test.

    Args:
        name: Of its folder.
        model: Of one node.
        feeds: By name of input.
        expected: Of each output.
    """

    name: str
    model: onnx.ModelProto
    feeds: Feeds
    expected: list[np.ndarray]


def as_function(model: onnx.ModelProto, feeds: Feeds) -> list[object]:
    with tf.device("CPU:0"):
        return outputs_of(load(model.SerializeToString()).model, feeds)


def by_reference(model: onnx.ModelProto, feeds: Feeds) -> list[object]:
    return ReferenceEvaluator(model).run(None, dict(feeds))


def by_onnxruntime(model: onnx.ModelProto, feeds: Feeds) -> list[object]:
    onnxruntime = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(feeds))


def through_session(model: onnx.ModelProto, feeds: Feeds) -> list[object]:
    """As users run it: in the types of a device, and with what has to be known as initialisers."""
    static = static_inputs(model)
    own = onnx.ModelProto()
    own.CopyFrom(model)
    for name in static:
        own.graph.initializer.append(onnx.numpy_helper.from_array(feeds[name], name))
    names = [one.name for one in model.graph.output]
    inputs = {
        name: np.ascontiguousarray(narrowed(array, name))
        for name, array in feeds.items()
        if name not in static
    }
    device = popart.DeviceManager().createIpuModelDevice({})
    flow = popart.DataFlow(1, names)
    session = popart.InferenceSession(own.SerializeToString(), flow, device)
    session.prepareDevice()
    arrays = session.initAnchorArrays()
    session.run(popart.PyStepIO(inputs, arrays))
    return [arrays[name] for name in names]


def static_inputs(model: onnx.ModelProto) -> set[str]:
    """The inputs of a model that have to be known before anything runs.

    Programs of IPUs are static: operations say which inputs they have to know, how often a loop
    runs has to be known, and all that sizes of results depend on.
    """
    version = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    needed: set[str] = set()
    for node in reversed(model.graph.node):
        operation = operation_of(node.domain or "ai.onnx", node.op_type, version)
        names = [parameter.name for parameter in operation.inputs]
        if operation.sizes_by_values or needed & set(node.output):
            needed |= set(node.input)
        elif node.op_type == "Loop":
            needed |= {node.input[0]}
        pairs = zip(names, node.input, strict=False)
        needed |= {given for name, given in pairs if name in operation.static}
    return needed & {one.name for one in model.graph.input}


# By title of column; failures are listed of those that are ours.
OURS: dict[str, Runner] = {"function": as_function, "session": through_session}
OTHERS: dict[str, Runner] = {"onnx.reference": by_reference}
if importlib.util.find_spec("onnxruntime") is not None:
    OTHERS["onnxruntime"] = by_onnxruntime

# How a reason begins that is no wrong result.
REFUSED = "refused: "


def cases_in(folder: Path) -> Iterator[Case]:
    """All tests below a folder, by name."""
    for each in sorted(folder.iterdir()):
        model = onnx.load(each / "model.onnx")
        data = each / "test_data_set_0"
        feeds = dict(
            zip((one.name for one in model.graph.input), arrays(data, "input"), strict=True)
        )
        yield Case(each.name, model, feeds, arrays(data, "output"))


def installed_cases() -> Iterator[Case]:
    """The tests of the installed onnx, without those of the same nodes in other words."""
    for each in collect_testcases(None):
        if "_expanded" not in each.name:
            inputs, outputs = (
                [
                    onnx.numpy_helper.to_array(one) if isinstance(one, onnx.TensorProto) else one
                    for one in data
                ]
                for data in each.data_sets[0]
            )
            names = (one.name for one in each.model.graph.input)
            yield Case(each.name, each.model, dict(zip(names, inputs, strict=True)), outputs)


def arrays(folder: Path, what: str) -> list[np.ndarray]:
    """The inputs or the outputs of a test."""
    paths = (folder / f"{what}_{i}.pb" for i in range(len(list(folder.glob(f"{what}_*.pb")))))
    return [onnx.numpy_helper.to_array(onnx.load_tensor(path)) for path in paths]


def why_failed(case: Case, run: Runner) -> str | None:
    """What is wrong with the results of a case; `None` if they are right."""
    try:
        results = run(case.model, case.feeds)
    except popart.popart_exception as error:
        return f"{REFUSED}{' '.join(str(error).split())}"
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    if len(results) != len(case.expected):
        return f"{len(results)} outputs, not {len(case.expected)}"
    pairs = zip(results, case.expected, strict=True)
    return next((reason for each in pairs if (reason := difference(*each))), None)


def difference(result: object, expected: np.ndarray) -> str | None:
    """How a result is not what it should be."""
    array = np.asarray(result)
    if array.dtype == narrow_type(expected.dtype):
        expected = expected.astype(array.dtype)
    if array.dtype != expected.dtype:
        return f"type {array.dtype}, not {expected.dtype}"
    if array.shape != expected.shape:
        return f"shape {array.shape}, not {expected.shape}"
    if expected.dtype == object:
        texts = [text.decode() if isinstance(text, bytes) else text for text in array.ravel()]
        return None if texts == expected.ravel().tolist() else f"{texts}, not {expected.ravel()}"
    if np.allclose(array, expected, RELATIVE, ABSOLUTE, equal_nan=True):
        return None
    largest = np.max(np.abs(array.astype(float) - expected.astype(float)))
    return f"values are off by up to {largest:.3g}"


def narrow_type(dtype: np.dtype) -> np.dtype:
    """What devices have for a type."""
    return np.dtype(
        {"int64": "int32", "uint64": "uint32", "float64": "float32"}.get(dtype.name, dtype)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", nargs="?", type=Path, help=HOW_TO_GET)
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    arguments = parser.parse_args()
    if arguments.wheel is None:
        report([one for one in installed_cases() if arguments.only in one.name], onnx.__version__)
        return
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(arguments.wheel) as wheel:
            wheel.extractall(folder, [one for one in wheel.namelist() if one.startswith(DATA)])
        cases = [one for one in cases_in(Path(folder) / DATA) if arguments.only in one.name]
    report(cases, "1.6")


def report(cases: list[Case], version: str) -> None:
    """Prints who passes which case, and what fails here."""
    columns = {**OURS, **OTHERS}
    table = Table("case", *columns, title=f"Node tests of ONNX {version}")
    failures = Table("case", "as", "because of", "in others", title="What fails here")
    passed, refused = dict.fromkeys(columns, 0), dict.fromkeys(columns, 0)
    for case in cases:
        reasons = {title: why_failed(case, run) for title, run in columns.items()}
        for title, reason in reasons.items():
            passed[title] += reason is None
            refused[title] += bool(reason and reason.startswith(REFUSED))
        table.add_row(case.name, *("yes" if one is None else "no" for one in reasons.values()))
        fails_in = ", ".join(title for title in OTHERS if reasons[title]) or "none"
        for title in OURS:
            if reasons[title] is not None:
                failures.add_row(case.name, title, reasons[title], fails_in)
    table.add_section()
    table.add_row(f"of {len(cases)}", *(str(number) for number in passed.values()))
    table.add_row("refused", *(str(number) for number in refused.values()))
    console = Console(width=max(120, Console().width))
    console.print(table)
    console.print(failures)


if __name__ == "__main__":
    main()
