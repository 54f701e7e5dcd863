"""Loads and runs ONNX files that are damaged: `python benchmarks/fuzz/onnx_files.py --help`.

Each case takes a model that is right, damages its bytes or its message, and loads it from a file
or as bytes. What loads is computed as a function, and then runs a step in a session. A process
that dies, hangs or needs more than 2 GB, an error
that is no `popart_exception` or names no file, and a file outside of the model's folder that is
opened, count.
"""

import argparse
import collections
import os
import random
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from isolated import Crash, isolated

# Over what a process has after it computed the models that are right.
MOST_BYTES = 2 * 2**30
SECONDS_A_CASE = 60
# Of an input that is computed.
MOST_ELEMENTS = 10**6

NUMBERS = (
    *(0, 1, 2, 3, 5, 6, 11, 12, 16, 17, 99, -1, -2, 127, 128, 255, 65535, 2**20, 2**30),
    *(2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, -(2**31), -(2**63)),
)
TEXTS = ("", "x", "y", "w1", "\0", "a" * 70_000, "é", "ai.onnx", "ai.graphcore", "ai.onnx.ml", "..")
PATHS = (
    *("../secret.bin", "/etc/passwd", "/dev/zero", "/proc/self/mem", "link", "up/secret.bin"),
    *("up/model/weights.bin", "pipe", ".", "", "weights.bin\0", "weights.bin", "model.onnx"),
    *(
        "missing",
        "./../model/weights.bin",
        "x" * 5000,
        "weights.bin/x",
        "round",
        "~/x",
        "file:///x",
    ),
)
COUNTS = ("0", "-1", "1", "4", "128", "9" * 30, "1e3", "0x10", " 8", "1_0", "٣", "", str(2**62))


# What a process has of its own.
_STATE: dict[str, Any] = {}


def damaged(rng: random.Random, content: bytes) -> bytes:
    """A serialised model that something is wrong with, most likely."""
    kinds = (_damage_bytes, _damage_message, _damage_message, _damage_names, _damage_data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        content = rng.choice(kinds)(rng, content)
    return content


def _damage_bytes(rng: random.Random, content: bytes) -> bytes:
    place = rng.randrange(len(content) + 1)
    some = content[place : place + rng.choice([1, 2, 8, 100])]
    match rng.randrange(6):
        case 0:
            return content[:place]
        case 1:
            return content[:place] + rng.randbytes(len(some)) + content[place + len(some) :]
        case 2:
            flipped = bytes(each ^ (1 << rng.randrange(8)) for each in some[:1])
            return content[:place] + flipped + content[place + 1 :]
        case 3:
            return content[:place] + content[place + len(some) :]
        case 4:
            return content[:place] + some + content[place:]
        case _:
            return content[:place] + b"\xff" * rng.choice([1, 4, 9, 10]) + content[place + 1 :]


def _damage_names(rng: random.Random, content: bytes) -> bytes:
    """Bytes that are no text in place of a name."""
    name = rng.choice([b"w1", b"Relu", b"first", b"graph", b"batch", b"axis", b"ai.onnx", b"then"])
    return content.replace(name, (b"\xff\xfe\xc0\x80" * 2)[: len(name)])


def _damage_message(rng: random.Random, content: bytes) -> bytes:
    return _edited(rng, content, lambda model: _damage_field(rng, *rng.choice(_fields(model))))


def _damage_data(rng: random.Random, content: bytes) -> bytes:
    """Another place, size, type or shape of a tensor's data."""

    def edit(model: Any) -> None:
        if not len(model.graph.initializer):
            return
        tensor = rng.choice(model.graph.initializer)
        match rng.randrange(6):
            case 0:
                tensor.data_location = 1
                tensor.external_data.add(key="location", value=rng.choice(PATHS))
            case 1:
                for entry in tensor.external_data:
                    if entry.key == "location":
                        entry.value = rng.choice(PATHS)
            case 2:
                key = rng.choice(["offset", "length"])
                tensor.external_data.add(key=key, value=rng.choice(COUNTS))
            case 3:
                tensor.dims[:] = [rng.choice(NUMBERS) for _ in range(rng.choice([0, 1, 2, 4, 70]))]
            case 4:
                tensor.data_type = rng.choice(range(-1, 30))
            case _:
                tensor.raw_data = rng.randbytes(rng.choice([0, 1, 4, 128, 1000]))

    return _edited(rng, content, edit)


def _edited(rng: random.Random, content: bytes, edit: Callable[[Any], None]) -> bytes:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.ModelProto.FromString(content)
        edit(model)
        return model.SerializeToString()
    except (DecodeError, ValueError, TypeError, AttributeError, IndexError):
        # What another damage has made of it cannot be edited.
        return _damage_bytes(rng, content)


def _fields(message: Any) -> list[tuple[Any, Any]]:
    """All fields that are set, each with the message that has it."""
    return list(_fields_within(message))


def _fields_within(message: Any) -> Iterator[tuple[Any, Any]]:
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                yield from _fields_within(each)


def _damage_field(rng: random.Random, message: Any, field: Any) -> None:
    if rng.random() < 0.1:
        message.ClearField(field.name)
        return
    if rng.random() < 0.1:
        # Another one, which may belong to another type.
        field = rng.choice(list(message.DESCRIPTOR.fields))
    value = getattr(message, field.name)
    if field.message_type is not None:
        if field.is_repeated:
            _damage_list(rng, value)
        else:
            value.SetInParent()
        return
    if not field.is_repeated:
        setattr(message, field.name, _other(rng, field, value))
    elif len(value) and rng.random() < 0.6:
        value[rng.randrange(len(value))] = _other(rng, field, value[0])
    elif rng.random() < 0.5:
        value.extend([_other(rng, field, None) for _ in range(rng.choice([1, 2, 70]))])
    else:
        del value[rng.randrange(len(value) + 1) :]


def _damage_list(rng: random.Random, messages: Any) -> None:
    if not len(messages):
        messages.add()
        return
    chosen = rng.randrange(len(messages))
    match rng.randrange(4):
        case 0:
            del messages[chosen]
        case 1:
            messages.add().CopyFrom(messages[chosen])
        case 2:
            other = messages[rng.randrange(len(messages))]
            messages[chosen].MergeFrom(type(other).FromString(other.SerializeToString()))
        case _:
            messages.reverse()


def _other(rng: random.Random, field: Any, value: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        text = rng.choice([*TEXTS, *KINDS])
        return text.encode() if field.type == field.TYPE_BYTES else text
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice([0.0, -1.0, 1e30, float("nan"), float("inf")])
    if field.cpp_type == field.CPPTYPE_ENUM:
        return rng.choice([each.number for each in field.enum_type.values])
    if field.cpp_type == field.CPPTYPE_INT32:
        return rng.choice([each for each in NUMBERS if -(2**31) <= each < 2**31])
    if field.cpp_type == field.CPPTYPE_UINT64:
        return abs(rng.choice(NUMBERS))
    return rng.choice(NUMBERS)


KINDS = (
    *("MatMul", "Conv", "Add", "Relu", "If", "Loop", "Reshape", "Gemm", "Cast", "Unknown"),
    *("Abort", "Nll", "LSTM", "Subsample", "NonZero", "Gather", "Expand", "OneHot", "Resize"),
)


def work(case: tuple[int, str]) -> str:
    """The verdict on one damaged model.

    Args:
        case: The seed, and the folder in which everything is.
    """
    seed, place = case
    if not _STATE:
        prepare(Path(place) / str(os.getpid()))
        _watch_and_bound()
    return verdict_on(seed)


def verdict_on(seed: int) -> str:
    """The verdict on one damaged model, in the process that is prepared for it.

    Args:
        seed: Of the damage.
    """
    rng = random.Random(seed)
    content = damaged(rng, rng.choice(_STATE["models"]))
    path = _STATE["folder"] / "model.onnx"
    path.write_bytes(content)
    if rng.random() < 0.5:
        return _verdict(str(path), str(path))
    return _verdict(content, "serialised ONNX model")


def _verdict(source: Any, called: str) -> str:
    _STATE["outside"] = []
    verdict, loaded = _loaded(source, called)
    if _STATE["outside"]:
        return f"OUTSIDE: {_STATE['outside'][:3]}"
    if loaded is None:
        return verdict
    verdict = _computed(loaded.model)
    return verdict if verdict[0].isupper() else _ran(source, loaded.model)


def _loaded(source: Any, called: str) -> tuple[str, Any]:
    from ipu_keras.popart.exceptions import popart_exception
    from ipu_keras.popart.files.loading import load

    _STATE["watches"] = True
    try:
        return "loaded", load(source)
    except popart_exception as error:
        if called in str(error):
            return "refused", None
        return f"UNNAMED: names no file: {str(error)[:300]}", None
    except Exception as error:
        return f"UNNAMED: {_short(error)}", None
    finally:
        _STATE["watches"] = False


def _computed(model: Any) -> str:
    import numpy as np

    from ipu_keras.popart.exceptions import popart_exception, poplar_exception
    from ipu_keras.popart.operations.evaluation import outputs_of

    inputs = {}
    for each in model.graph.inputs:
        if each.dtype in (None, "object") or each.shape is None:
            return "loaded"
        shape = _closed(each.shape)
        if np.prod(shape, dtype=float) > MOST_ELEMENTS:
            return "loaded"
        inputs[each.name] = np.ones(shape, each.dtype)
    try:
        outputs_of(model, inputs)
    except popart_exception:
        return "refused in computing"
    except poplar_exception:
        # A node that aborts, as models may ask for.
        return "failed in computing"
    except Exception as error:
        return f"UNNAMED: {_short(error)}"
    return "computed"


def _ran(source: Any, model: Any) -> str:
    """The verdict on a model in a session that takes a step with zeros."""
    from ipu_keras.popart.exceptions import popart_exception, poplar_exception

    try:
        _run_a_step(source, model)
    except popart_exception:
        return "refused by the session"
    except poplar_exception:
        return "failed in running"
    except Exception as error:
        return f"UNNAMED: by the session: {_short(error)}"
    return "ran"


def _run_a_step(source: Any, model: Any) -> None:
    import numpy as np

    from ipu_keras import popart

    infos = popart.InputShapeInfo()
    arrays = {}
    for each in model.graph.inputs:
        if each.dtype is None or each.shape is None:
            continue
        shape = _closed(each.shape)
        if np.prod(shape, dtype=float) > MOST_ELEMENTS:
            return
        if None in each.shape:
            infos.add(each.name, popart.TensorInfo(np.dtype(each.dtype), shape))
        arrays[each.name] = np.zeros(shape, each.dtype)
    flow = popart.DataFlow(1, list(model.graph.outputs))
    session = popart.InferenceSession(source, flow, _STATE["device"], inputShapeInfo=infos)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({n: _as_on_device(a) for n, a in arrays.items()}, anchors))


def _as_on_device(array: Any) -> Any:
    """Zeros in a type that a device takes, if there is one."""
    narrowed = {"float64": "float32", "uint64": "uint32", "int64": "int32"}
    return array.astype(narrowed.get(array.dtype.name, array.dtype))


def _closed(shape: Any) -> list[int]:
    """A shape without sizes that are not known."""
    return [2 if size is None else size for size in shape]


def prepare(place: Path) -> None:
    """Makes a folder with all that a hostile model may name, and computes what is right.

    Args:
        place: Of the folder.
    """
    from onnx_models import models

    from ipu_keras.popart.devices.manager import DeviceManager

    warnings.simplefilter("ignore")
    folder = place / "model"
    folder.mkdir(parents=True)
    (folder.parent / "secret.bin").write_bytes(bytes(1000))
    (folder / "link").symlink_to("../secret.bin")
    (folder / "up").symlink_to("..")
    (folder / "round").symlink_to("round")
    os.mkfifo(folder / "pipe")
    os.chdir(folder)
    device = DeviceManager().createIpuModelDevice({})
    _STATE.update(folder=folder, models=models(folder), watches=False, device=device)
    for content in _STATE["models"]:
        (folder / "model.onnx").write_bytes(content)
        for source, called in ((content, "serialised"), (str(folder / "model.onnx"), "model.onnx")):
            verdict = _verdict(source, called)
            # Bytes are in no folder, in which data could be.
            assert verdict in ("ran", "refused"), verdict


def _watch_and_bound() -> None:
    sys.addaudithook(note_opened)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MOST_BYTES, now + MOST_BYTES))


def note_opened(event: str, arguments: tuple) -> None:
    """Remembers files outside of the model's folder; a hook of what is opened."""
    if event != "open" or not _STATE["watches"] or isinstance(arguments[0], int):
        return
    path = Path(os.path.realpath(os.fsdecode(arguments[0])))
    if not path.is_relative_to(_STATE["folder"]):
        _STATE["outside"].append(str(path))


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first file")
    parser.add_argument("--count", type=int, default=10_000, help="how many files")
    parser.add_argument("--minutes", type=float, default=60, help="after which none is made")
    arguments = parser.parse_args()

    verdicts: collections.Counter = collections.Counter()
    seen: set[str] = set()
    start = time.monotonic()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with tempfile.TemporaryDirectory() as place:
        seeds = range(arguments.seed, arguments.seed + arguments.count)
        cases = [(seed, os.path.realpath(place)) for seed in seeds]
        for (seed, _), result in isolated(
            work, cases, 60 * arguments.minutes, 2000, SECONDS_A_CASE
        ):
            text = f"CRASH: {result.text}" if isinstance(result, Crash) else result
            if isinstance(result, Crash) and result.text.startswith("hangs"):
                text = f"HANG: {result.text}"
            verdicts[text.split(":")[0]] += 1
            if text[0].isupper() and text not in seen:
                seen.add(text)
                print(f"file {seed}: {text}", flush=True)
    done = sum(verdicts.values())
    print(f"{done} of {len(cases)} files in {time.monotonic() - start:.0f} s: {dict(verdicts)}")
    good = sum(number for kind, number in verdicts.items() if kind[0].islower())
    return 0 if good == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
