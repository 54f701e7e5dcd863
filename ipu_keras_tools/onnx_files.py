"""Reports of ONNX models, as `popart.InferenceSession` would run them."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ipu_keras import popart
from ipu_keras.advice.choices import combinations
from ipu_keras.machine.target import VERSIONS
from ipu_keras.popart.files.loading import load
from ipu_keras.popart.model.data_types import name_of
from ipu_keras.popart.model.graph import GraphInput
from ipu_keras.report.report import Report
from ipu_keras.report.what_if import Choice, WhatIf
from ipu_keras_tools.results import UsageError
from ipu_keras_tools.subjects import spec_of


def report_of_onnx(given: argparse.Namespace) -> Report:
    """Makes the report of a step of an ONNX model; the specs are those of its inputs, in order.

    `batch_size` of `given`, if it has one, is the first axis of inputs for which the file leaves
    it open.
    """
    try:
        model: Any = given.subject
        if given.dtype == "float16":
            transformer = popart.GraphTransformer(model)
            transformer.convertFloatsToHalfs()
            model = transformer.getModelProto()
        graph = load(model).model.graph
        num_replicas = given.num_replicas or 1
        options = popart.SessionOptions()
        options.enableReplicatedGraphs = num_replicas > 1
        options.replicatedGraphCount = num_replicas
        # A program that does not fit is reported like others; the exit code says so.
        options.engineOptions = {"debug.allowOutOfMemory": "true"}
        session = popart.InferenceSession(
            model,
            popart.DataFlow(given.steps_per_execution or 1, list(graph.outputs)),
            popart.DeviceManager().createOfflineIPUDevice(
                {"numIPUs": num_replicas, "ipuVersion": _version(given.target or "gc200")}
            ),
            inputShapeInfo=_shapes(_sized(graph.inputs, given), given.specs),
            userOptions=options,
        )
        # An offline device compiles, and has nothing to load an engine onto.
        session.prepareDevice(loadEngine=False)
        return session.getReport()
    except popart.popart_exception as error:
        raise UsageError(str(error)) from error


def what_if_of_onnx(given: argparse.Namespace, options: Mapping[str, Any]) -> WhatIf:
    """Makes a report of a step for every combination of choices, which are lists in `options`."""
    lists = {name: value for name, value in options.items() if isinstance(value, list)}
    rows = []
    for chosen in combinations(lists):
        report = report_of_onnx(argparse.Namespace(**{**vars(given), **chosen}))
        rows.append(Choice({"batch_size": report.batch_size, **chosen}, report))
    return WhatIf(tuple(rows))


def _sized(inputs: Sequence[GraphInput], given: argparse.Namespace) -> Sequence[GraphInput]:
    size = vars(given).get("batch_size")
    if size is None:
        return inputs
    if given.specs:
        raise UsageError("--batch-size of an ONNX model stands for its SPECs: give one of them")
    return [
        replace(each, shape=(size, *each.shape[1:]))
        if each.shape and None in each.shape[:1]
        else each
        for each in inputs
    ]


def _version(target: str) -> str:
    versions: Mapping[str, str] = {name: version for version, name in VERSIONS.items()}
    if target not in versions:
        raise UsageError(f"--target must be one of {', '.join(versions)}. Received: {target}")
    return versions[target]


def _shapes(inputs: Sequence[GraphInput], specs: Sequence[str]) -> popart.InputShapeInfo:
    """Returns the shapes of inputs, from the words of the command line."""
    if specs and len(specs) != len(inputs):
        raise UsageError(
            f"a SPEC for each of the {len(inputs)} inputs is needed, or none: "
            f"{', '.join(map(_words_of, inputs))}. Received: {len(specs)}"
        )
    infos = popart.InputShapeInfo()
    for each, text in zip(inputs, specs, strict=False):
        spec = spec_of(text)
        if isinstance(spec, tuple):
            raise UsageError(f"an input of an ONNX model is one tensor. Received: {text}")
        # A shape without a type leaves the type to the model.
        has_type = ":" in text or each.dtype is None
        dtype = np.dtype(spec.dtype.as_numpy_dtype if has_type else each.dtype)
        infos.add(each.name, popart.TensorInfo(name_of(dtype), list(spec.shape)))
    for each in inputs if not specs else ():
        if each.shape is None or None in each.shape:
            raise UsageError(
                "the model leaves shapes open, so that SPECs are needed, one for each input: "
                f"{', '.join(map(_words_of, inputs))}"
            )
        if each.dtype is not None:
            infos.add(each.name, popart.TensorInfo(name_of(np.dtype(each.dtype)), [*each.shape]))
    return infos


def _words_of(given: GraphInput) -> str:
    sizes = (
        "?" if given.shape is None else "x".join("?" if s is None else str(s) for s in given.shape)
    )
    return f"{given.name} {sizes}:{given.dtype}"
