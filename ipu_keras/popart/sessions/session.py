"""Runs ONNX models on a device: what sessions for inference and for training share."""

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.host import host_program as host
from ipu_keras.ir import Graph, TensorSpec
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.data_types import name_of, narrowed
from ipu_keras.popart.model.loading import LoadedModel, load
from ipu_keras.popart.sessions.configuration import SessionConfiguration
from ipu_keras.popart.sessions.dataflow import DataFlow
from ipu_keras.popart.sessions.dot_files import write_dot_files
from ipu_keras.popart.sessions.exported import read_exported, write_exported
from ipu_keras.popart.sessions.failures import in_words_of_popart
from ipu_keras.popart.sessions.inferred_places import placed
from ipu_keras.popart.sessions.input_shapes import InputShapeInfo
from ipu_keras.popart.sessions.messages import logged
from ipu_keras.popart.sessions.number_checks import check_numbers
from ipu_keras.popart.sessions.offline import (
    check_executes,
    compiled_offline,
    is_absent,
    place_of,
)
from ipu_keras.popart.sessions.randomness import draws
from ipu_keras.popart.sessions.step import TracedModel
from ipu_keras.popart.sessions.step_io import IStepIO, IWeightsIO, Stream
from ipu_keras.popart.sessions.streams import Anchor, StepSize, anchors_of, inputs_of, mode_of
from ipu_keras.popart.sessions.weights import RandomSeeds, Weights
from ipu_keras.popart.sessions.written_model import WrittenModel
from ipu_keras.popart.tensorinfo import TensorInfo
from ipu_keras.profiling.compilation import compiled
from ipu_keras.profiling.models import batch_size_of, model_of_executable
from ipu_keras.profiling.reports import report_of_program
from ipu_keras.profiling.requested_outputs import current_outputs
from ipu_keras.profiling.verdict import judge
from ipu_keras.program import OutfeedMode, Program
from ipu_keras.program.compilation_history import CompilationHistory, Signature
from ipu_keras.program.executable import Executable
from ipu_keras.report import Report
from ipu_keras.runtime import FeedMemory
from ipu_keras.runtime.feed import SuperBatch
from ipu_keras.settings.arguments import legible
from ipu_keras.store.executable_cache import content_key
from ipu_keras.tracing.lowering import LoweringError


class Session:
    """A model on a device.

    Raises a `popart_exception` if the model cannot run with these options on this device.

    Args:
        model: A serialized model, or the path of a file.
        options: A `popart.SessionOptions`, which is copied.

    Attributes:
        flow: What users asked of a step.
        random_seeds: The state that random operations draw from.
    """

    # What programs are called in counters and reports.
    _program_name = "run"
    _trains = False

    def __init__(
        self,
        model: bytes | str | os.PathLike[str],
        flow: DataFlow,
        device: Any,
        infos: InputShapeInfo,
        options: Any,
    ):
        self._loaded: LoadedModel = _placed(load(model), options, device.numIpus)
        self.flow = flow
        self._device = device
        configuration = SessionConfiguration(
            options.copy(),
            self._loaded.model.graph,
            device.numIpus,
            device.target(options.numIOTiles),
            trains=self._trains,
        )
        self._configuration = configuration
        self.size = StepSize(
            flow.batchesPerStep(), configuration.accumulation, configuration.num_replicas
        )
        self._inputs = inputs_of(self._loaded.model.graph, infos, self.size)
        self._input_specs = tuple(map(_spec, self._inputs))
        self._weights = self._made_weights(_weights_in(self._loaded))
        self._check_anchors()
        self.written_model = WrittenModel(self._loaded, self._weights)
        self.random_seeds = RandomSeeds(
            is_shared=configuration.has_random_state, is_used=draws(self._loaded.model)
        )
        self._infos: dict[str, tuple[tuple[int, ...], np.dtype]] = {}
        self._history = CompilationHistory()
        self._executable: Executable | None = None
        self._is_loaded = False
        self._anchors: list[Anchor] = []
        self._num_runs = 0
        # Names of the weights with gradients, which each trace fills.
        self._updated: list[str] = []
        self._process = os.getpid()
        # The folder into which `load_exported` has unpacked what was modelled.
        self._exported: str | None = None
        write_dot_files(configuration.options, self._loaded.model.graph)

    @logged("Compiling the program", logging.INFO)
    def prepare(self, *, loads: bool = True) -> None:
        """Compiles the program, which may run right away if `loads`.

        Raises a `popart_exception` if a node cannot be computed, or the device is detached or
        not free, and a `ResourceExhaustedError` of TensorFlow if the modelled program does not
        fit.
        """
        self._check_process()
        if loads:
            self._device.attach_for_engine()
        elif is_absent(self._device):
            self._prepare_offline()
            return
        ipu_device = self._device.device
        self._place(ipu_device.name)
        program = self._program()
        signature = Signature(
            tensors=tuple(zip((s.name for s in self._inputs), self._input_specs, strict=True)),
            repeat_count=program.repeat_count,
            outfeed_mode=program.outfeed_mode,
            compiled=program.compiled,
        )
        with in_words_of_popart(self._loaded.model.graph, "compile"):
            executable = compiled(
                program.name,
                signature,
                self._history,
                ipu_device,
                lambda: host.build(program, ipu_device),
            )
        self._anchors = self._described_anchors()
        self._executable = executable
        self._is_loaded = loads
        if self._configuration.caches:
            _fill_cache(executable)

    def load(self) -> None:
        """Lets the prepared program run.

        Raises a `popart_exception` if nothing was prepared, or the device is offline or not free.
        """
        executable = self._prepared("loadEngineAndConnectStreams")
        check_executes(self._device)
        self._device.attach_for_engine()
        if executable.host is None:
            # It was prepared before the device was there.
            self.prepare()
        self._is_loaded = True

    @logged("Running a step", logging.DEBUG)
    def run(self, step_io: IStepIO) -> None:
        """Runs a step.

        Raises a `popart_exception` if nothing was prepared, the device is detached or an array
        does not fit, and nothing has run then; or if a node failed. A `poplar_exception` says
        that the program aborted itself, or that a number was not finite though
        `enableFloatingPointChecks` is set; results are not written then.
        """
        if not isinstance(step_io, IStepIO):
            raise TypeError(
                "`stepio` must be a PyStepIO, or a PyStepIOCallback. Received: "
                f"stepio={step_io!r} of type {type(step_io).__name__}"
            )
        self._check_process()
        executable = self._prepared("run")
        check_executes(self._device)
        if not self._configuration.compiles:
            raise popart_exception(
                "Nothing was compiled that could run, as SessionOptions.compileEngine is False. "
                "Leave it True in the options of the session."
            )
        if not self._is_loaded:
            raise popart_exception(
                "The program was prepared with loadEngine=False. Call loadEngineAndConnectStreams "
                "before run."
            )
        self._check_weights()
        ipu_device = self._device.device
        outputs = [anchor.stream for anchor in self._anchors]
        if self._configuration.is_synthetic:
            read = [self._configuration.synthetic(each) for each in self._inputs]
        else:
            step_io._check(self._inputs, outputs)
            read = step_io._read(self._inputs)
        graph = self._loaded.model.graph
        with ipu_device.engine.running(), in_words_of_popart(graph, "run"):
            # What detaches it from now on waits.
            if self._device.device is not ipu_device:
                raise popart_exception("The device was detached before the step could run.")
            tensors = self._tensors(read, ipu_device.engine.feed_memory)
            outfeed = tf.nest.flatten(ipu_device.engine.run(executable, tensors))
            found = iter([each.numpy() for each in outfeed])
        self._num_runs += 1
        values = {name: next(found) for name in self._anchors_of(updates=False)}
        if self._configuration.checks_numbers:
            check_numbers(graph, self._updated, np.asarray(next(found)))
        # Nothing is copied to the host, so arrays of users stay as they are.
        if self._configuration.is_synthetic:
            return
        values.update(zip(self._anchors_of(updates=True), found, strict=True))
        step_io._write([(each.stream, each.chosen(values[each.name])) for each in self._anchors])

    def anchor_arrays(self) -> dict[str, np.ndarray]:
        """Returns empty arrays for the results of a step, by name of anchor."""
        self._make_sure_of_infos()
        streams = [anchor.stream for anchor in self._described_anchors()]
        return {s.name: np.empty((*s.count, *s.shape), s.dtype) for s in streams}

    def info(self, name: str) -> TensorInfo:
        """Returns shape and type of a tensor of the main graph.

        Raises a `popart_exception` if there is no such tensor, or its shape is not static.
        """
        self._make_sure_of_infos()
        if name not in self._infos:
            raise popart_exception(
                f"There is no tensor {name!r} in the model. There are: "
                f"{', '.join(sorted(self._infos))}."
            )
        shape, dtype = self._infos[name]
        if None in shape:
            raise popart_exception(
                f"The tensor {name!r} has the shape {list(shape)}, of which a part is known only "
                "when it was computed."
            )
        return TensorInfo(name_of(dtype), list(shape))

    def report(self) -> Report:
        """Returns what the program would cost.

        Raises a `popart_exception` if nothing was prepared, or the program cannot be modelled.
        """
        executable = self._prepared("report")
        program = executable.program
        with in_words_of_popart(self._loaded.model.graph, "be modelled"):
            model = model_of_executable(executable)
        return report_of_program(program, model, batch_size_of(program))

    def serialized_graph(self) -> bytes:
        graph = self._prepared("report").graph
        return json.dumps([_operation(op) for op in graph.ops]).encode()

    def cycle_count(self, counter: str) -> int:
        """Returns the modelled cycles of a step; the only counter has the name "".

        Raises a `popart_exception` if nothing has run, or cycles were not to be counted.
        """
        if not self._configuration.counts_cycles:
            raise popart_exception(
                "SessionOption 'instrumentWithHardwareCycleCounter' must be set to true in order "
                "to measure cycles."
            )
        if counter:
            raise popart_exception(
                f"There is no cycle counter {counter!r}. Leave `id` out for the one of the program."
            )
        if not self._num_runs:
            raise popart_exception("Must call run before getCycleCount: nothing was counted yet.")
        executable = self._prepared("getCycleCount")
        return model_of_executable(executable).cycles_per_step * executable.program.repeat_count

    @logged("Giving the device the host's weights", logging.DEBUG)
    def weights_to_device(self) -> None:
        self._prepared("weightsFromHost")
        self._weights.to_device()

    def write_weights(self, weights_io: IWeightsIO) -> None:
        """Changes the host's weights to those of arrays.

        Raises a `popart_exception`, and changes nothing, if weights are constant or an array
        fits none.
        """
        if not isinstance(weights_io, IWeightsIO):
            raise TypeError(
                f"Weights are given in a PyWeightsIO. Received: {weights_io!r}. Make one with "
                "popart.PyWeightsIO({'name': array})."
            )
        self._configuration.check_weights_change("writeWeights")
        self._weights.write(dict(weights_io._items()))

    def reset_weights(self, model: bytes | str | os.PathLike[str], *, ignores_others: bool) -> None:
        """Changes the host's weights to those of a model.

        Raises a `popart_exception`, and changes nothing, if weights are constant or the model
        has weights that this one has not, unless `ignores_others`.
        """
        self._configuration.check_weights_change("resetHostWeights")
        arrays = _weights_in(load(model))
        others = sorted(name for name in arrays if name not in self._weights)
        if others and not ignores_others:
            raise popart_exception(
                f"resetHostWeights, no tensor {others[0]!r} in the session's model. Pass "
                "ignoreWeightsInModelWithoutCorrespondingHostWeight=True to leave it out."
            )
        self._weights.write({n: array for n, array in arrays.items() if n in self._weights})

    @logged("Exporting the program", logging.INFO)
    def export(self, path: str | os.PathLike[str]) -> None:
        """Compiles the program, and writes what was modelled of it to a file.

        Raises a `popart_exception` if the device cannot compile offline, and a
        `ResourceExhaustedError` of TensorFlow if the program does not fit on it.
        """
        if not self._device.canCompileOffline:
            raise popart_exception(
                f"Devices of type {self._device.type} cannot compile offline. Acquire an IPU, or "
                "make an offline one with `DeviceManager().createOfflineIPUDevice({...})`."
            )
        # Nothing runs: an offline device is none of TensorFlow's.
        self._place("/CPU:0")
        with tempfile.TemporaryDirectory() as folder:
            program = _kept_in(self._program(), folder)
            executable = Executable(
                program=program, graph=Graph(program.name, ()), host=None, reason="not run"
            )
            with in_words_of_popart(self._loaded.model.graph, "compile"):
                judge(executable, current_outputs(self._configuration.device_choices.config))
            write_exported(Path(path), self._digest(), Path(folder))

    @logged("Loading an exported program", logging.INFO)
    def load_exported(self, path: str | os.PathLike[str]) -> None:
        """Reads a file of `export`, which saves modelling the program.

        Raises a `popart_exception` if it cannot be read, or is of another session.
        """
        # The session's own folder, which goes with it: the model is read as late as a report is
        # wanted.
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        read_exported(Path(path), self._digest(), Path(folder))
        self._exported = folder

    def _digest(self) -> str:
        """Returns a digest of everything that the program depends on."""
        flow = self.flow
        anchors = [[name, repr(flow.art(name))] for name in flow.anchors()]
        device = [self._device.version, self._device.numIpus, self._device.tilesPerIPU]
        content = [flow.batchesPerStep(), anchors, device, self._configuration.options_in_words()]
        content += self._more_content()
        inputs = [[each.name, list(each.shape), each.dtype.name] for each in self._inputs]
        return content_key(
            hashlib.sha256(self._loaded.proto.SerializeToString(deterministic=True)).hexdigest(),
            json.dumps([content, inputs]),
        )

    def _prepare_offline(self) -> None:
        self._place(place_of(self._device))
        with in_words_of_popart(self._loaded.model.graph, "compile"):
            executable = compiled_offline(self._program())
        self._anchors = self._described_anchors()
        self._executable = executable
        if self._configuration.caches:
            _fill_cache(executable)

    def _prepared(self, what: str) -> Executable:
        if self._executable is None:
            if what == "report":
                raise popart_exception(
                    "Session must have been prepared before a report can be fetched. Call "
                    "prepareDevice first."
                )
            raise popart_exception(f"Must call prepareDevice before {what}.")
        return self._executable

    def _program(self) -> Program:
        returned = map(self.flow.art, self._anchors_of(updates=False))
        checked = [OutfeedMode.ALL] if self._configuration.checks_numbers else []
        program = Program(
            name=self._program_name,
            step=self._step(),
            infeed=self._input_specs,
            unflatten=list,
            repeat_count=self.size.batches * self.size.accumulation,
            outfeed_modes=(*map(mode_of, returned), *checked),
            num_replicas=self.size.replicas,
            # There is no stock program whose rounding it could be meant to have.
            fast_math=True,
            pipeline=self._configuration.pipeline,
            model_name=legible(self._loaded.model.graph.name) or None,
            device_choices=self._configuration.device_choices,
        )
        exported = self._exported
        return program if exported is None else _kept_in(program, exported)

    def _step(self) -> TracedModel:
        return TracedModel(**self._step_arguments())

    def _step_arguments(self) -> dict[str, Any]:
        """Returns the arguments of a step that all kinds of session have."""
        return {
            "model": self._loaded.model,
            "inputs": tuple(each.name for each in self._inputs),
            "anchors": tuple(self._anchors_of(updates=False)),
            "weights": self._weights,
            "seeds": self.random_seeds,
            "placement": self._configuration.placement,
            "strides_groups": self._configuration.strides_groups,
            "stable_softmax": self._configuration.stable_softmax,
            "checks_numbers": self._configuration.checks_numbers,
            "infos": self._infos,
        }

    # Sessions that train override the methods from here to `_more_content`.
    def _made_weights(self, arrays: Mapping[str, np.ndarray]) -> Weights:
        """Returns the device's first weights, given the floating initialisers."""
        are_known = self._configuration.has_constant_weights
        # A number that never changes is a part of the program, from which others may follow.
        kept = {name: array for name, array in arrays.items() if array.ndim or not are_known}
        return Weights(kept, are_known=are_known)

    def _check_anchors(self) -> None:
        """Refuses anchors that are no tensors of the model."""
        names = self._loaded.model.graph.tensor_names()
        known = set(names)
        for name in self.flow.anchors():
            if name not in known:
                raise no_such_anchor(name, names)

    def _check_weights(self) -> None:
        """Refuses to run without weights on the device."""

    def _anchors_of(self, *, updates: bool) -> list[str]:
        """Returns the anchors that exist after an update of weights, or in each micro-batch."""
        return [] if updates else self.flow.anchors()

    def _more_content(self) -> list[Any]:
        """Returns what else the program depends on."""
        return []

    def _tensors(self, read: Sequence[np.ndarray], memory: FeedMemory) -> list[tf.Tensor]:
        """Returns the inputs of a step, in memory of the device that TensorFlow takes as it is."""
        if not read:
            return []
        batches = list(zip(*read, strict=True))
        super_batch = SuperBatch.of(batches, self._input_specs, memory)
        return [tf.experimental.dlpack.from_dlpack(each) for each in super_batch.capsules()]

    def _make_sure_of_infos(self) -> None:
        """Traces the step, if nothing has yet, for the shapes and types of its tensors."""
        if self._infos:
            return
        self._place(place_of(self._device))
        function = tf.function(lambda *tensors: self._step()(tensors), autograph=False)
        specs = [tf.TensorSpec(each.shape, each.dtype) for each in self._inputs]
        with in_words_of_popart(self._loaded.model.graph, "trace"):
            function.get_concrete_function(*specs)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise popart_exception(
                f"The session belongs to the process {self._process}, and this one, {os.getpid()}, "
                "was forked from it: threads of TensorFlow do not go along. Make sessions in the "
                "processes that use them, and start these with "
                "multiprocessing.get_context('spawn')."
            )

    def _place(self, device: str) -> None:
        """Tells all that the session keeps which TensorFlow device has it."""
        attachment = self._device.num_attachments
        self._weights.place(device, attachment)
        self.random_seeds.place(device, attachment)

    def _described_anchors(self) -> list[Anchor]:
        return anchors_of(self.flow, self.size, self._infos, self._anchors_of(updates=True))


def _fill_cache(executable: Executable) -> None:
    """Models a program that is to be kept, so that whoever compiles it next finds the model."""
    choices = executable.program.device_choices
    if choices is None or not choices.is_modelled:
        return
    # What cannot be modelled runs nevertheless; `report` says why it cannot be.
    with contextlib.suppress(LoweringError, ValueError, NotImplementedError):
        model_of_executable(executable)


def _kept_in(program: Program, folder: str) -> Program:
    """Returns a program whose models are looked for, and kept, in a folder."""
    assert program.device_choices is not None
    choices = replace(program.device_choices, cache_folder=Path(folder))
    return replace(program, device_choices=choices)


def _placed(loaded: LoadedModel, options: Any, num_ipus: int) -> LoadedModel:
    replicas = options.replicatedGraphCount if options.enableReplicatedGraphs else 1
    graph = placed(loaded.model.graph, options, max(num_ipus // max(replicas, 1), 1))
    return replace(loaded, model=replace(loaded.model, graph=graph))


def _spec(stream: Stream) -> TensorSpec:
    return TensorSpec(stream.shape, stream.dtype.name)


def no_such_anchor(name: str, names: Sequence[str]) -> popart_exception:
    return popart_exception(
        f"Anchor tensor {name!r} not found in the model. It has: {', '.join(names)}."
    )


def _weights_in(loaded: LoadedModel) -> dict[str, np.ndarray]:
    """Returns the initialisers that a device keeps from step to step; others are constants."""
    return {
        name: narrowed(array, name)
        for name, array in loaded.model.graph.initialisers.items()
        if np.issubdtype(array.dtype, np.floating)
    }


def _operation(op: Any) -> dict[str, Any]:
    return {
        "name": op.name,
        "kind": op.kind,
        "inputs": list(op.inputs),
        "outputs": [{"dtype": spec.dtype, "shape": list(spec.shape)} for spec in op.outputs],
    }
