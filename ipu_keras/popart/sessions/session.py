"""Runs ONNX models on a device: what all sessions share, and the core of those for inference."""

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.host import host_program as host
from ipu_keras.ir import Graph, TensorSpec
from ipu_keras.popart.exceptions import OutOfMemoryError, popart_exception
from ipu_keras.popart.files.loading import LoadedModel, load
from ipu_keras.popart.model.data_types import name_of, narrowed
from ipu_keras.popart.operations.table import draws, known_initialisers
from ipu_keras.popart.options.logger import logged
from ipu_keras.popart.options.patterns import warn_of_patterns
from ipu_keras.popart.options.prefixes import reservedAcclToReducePrefix
from ipu_keras.popart.options.session_options import warn_of_idle
from ipu_keras.popart.sessions.cbor import as_cbor
from ipu_keras.popart.sessions.configuration import SessionConfiguration
from ipu_keras.popart.sessions.dataflow import DataFlow
from ipu_keras.popart.sessions.dot_files import write_dot_files
from ipu_keras.popart.sessions.exported import read_exported, write_exported
from ipu_keras.popart.sessions.failures import in_words_of_popart
from ipu_keras.popart.sessions.inferred_places import placed
from ipu_keras.popart.sessions.input_shapes import InputShapeInfo
from ipu_keras.popart.sessions.number_checks import check_numbers
from ipu_keras.popart.sessions.offline import (
    check_executes,
    compiled_offline,
    is_absent,
    place_of,
)
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
from ipu_keras.report.report import Report
from ipu_keras.runtime import FeedMemory
from ipu_keras.runtime.feed import SuperBatch
from ipu_keras.settings.arguments import legible
from ipu_keras.settings.option_warnings import OPTION_WARNINGS
from ipu_keras.store.executable_cache import content_key
from ipu_keras.tracing.lowering import LoweringError


class Session:
    """What sessions for inference and for training have in common.

    Args:
        model: A serialized model, or the path of a file.
        dataFlow: How many batches a step takes, and which tensors it returns.
        deviceInfo: The device that the model runs on.
        inputShapeInfo: Shapes of inputs that the model leaves open.
        userOptions: Options of the session, which are copied.

    Raises:
        popart_exception: The model, the options and the device do not go together.
    """

    # What programs are called in counters and reports.
    _program_name = "run"
    _trains = False

    def __init__(
        self,
        model: bytes | str | os.PathLike[str],
        dataFlow: DataFlow,
        deviceInfo: Any,
        inputShapeInfo: InputShapeInfo,
        userOptions: Any,
    ):
        self._loaded: LoadedModel = _placed(load(model), userOptions, deviceInfo.numIpus)
        self._flow = dataFlow
        self._device = deviceInfo
        configuration = SessionConfiguration(
            userOptions.copy(),
            self._loaded.model.graph,
            deviceInfo.numIpus,
            deviceInfo.target(userOptions.numIOTiles),
            trains=self._trains,
        )
        configuration.check_batches(dataFlow.batchesPerStep())
        self._configuration = configuration
        self._size = StepSize(
            dataFlow.batchesPerStep(), configuration.accumulation, configuration.num_replicas
        )
        self._inputs = inputs_of(self._loaded.model.graph, inputShapeInfo, self._size)
        self._input_specs = tuple(map(_spec, self._inputs))
        self._weights = self._made_weights(_weights_in(self._loaded))
        self._check_anchors()
        self._written_model = WrittenModel(self._loaded, self._weights)
        self._random_seeds = RandomSeeds(
            is_shared=configuration.has_random_state,
            is_used=draws(self._loaded.model) or configuration.options.enableStochasticRounding,
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
        # The folder into which `loadExecutable` has unpacked what was modelled.
        self._exported: str | None = None
        write_dot_files(configuration.options, self._loaded.model.graph)

    @property
    def dataFlow(self) -> DataFlow:
        """The `DataFlow` that says what a step takes and returns."""
        return self._flow

    @property
    def replicationFactor(self) -> int:
        """The number of copies of the graph that run at the same time."""
        return self._size.replicas

    @property
    def accumulationFactor(self) -> int:
        """The number of micro-batches of a batch on each replica."""
        return self._size.accumulation

    def prepareDevice(self, loadEngine: bool = True, err: OutOfMemoryError | None = None) -> None:
        """Compiles the program for the device.

        Args:
            loadEngine: Whether it may run right away; `loadEngineAndConnectStreams` says so later.
            err: Gets the error if the program does not fit, which is raised otherwise.

        Raises:
            popart_exception: A node of the model cannot be computed, or the device is detached.
        """
        with _noting(err):
            self._prepare(loads=loadEngine)

    def loadEngineAndConnectStreams(self) -> None:
        """Lets the prepared program run, after `prepareDevice(loadEngine=False)`."""
        executable = self._prepared("loadEngineAndConnectStreams")
        check_executes(self._device)
        self._device.attach_for_engine()
        if executable.host is None:
            # It was prepared before the device was there.
            self._prepare(loads=True)
        self._is_loaded = True

    @logged("session", "Running a step", logging.DEBUG)
    def run(self, stepio: IStepIO, debugName: str = "") -> None:
        """Runs a step.

        Args:
            stepio: Gives the step's inputs, and takes its results.
            debugName: A name of the step in logs; ignored here.

        Raises:
            popart_exception: Nothing was prepared, the device is detached, or an array does not
                fit. Nothing has run then.
        """
        if not isinstance(stepio, IStepIO):
            raise TypeError(
                "`stepio` must be a PyStepIO, or a PyStepIOCallback. Received: "
                f"stepio={stepio!r} of type {type(stepio).__name__}"
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
            stepio._check(self._inputs, outputs)
            read = stepio._read(self._inputs)
        graph = self._loaded.model.graph
        with ipu_device.engine.running(), in_words_of_popart(graph, "run"):
            # What detaches it from now on waits.
            if self._device.device is not ipu_device:
                raise popart_exception("The device was detached before the step could run.")
            tensors = self._tensors(read, ipu_device.engine.feed_memory)
            # Other sessions of the device have rounded meanwhile.
            if self._configuration.options.enableStochasticRounding:
                engine = ipu_device.engine
                engine.rounding_keys.restart(
                    self._random_seeds.rounding_seed(), identical_replicas=engine.identical_replicas
                )
            outfeed = tf.nest.flatten(ipu_device.engine.run(executable, tensors))
            found = iter([each.numpy() for each in outfeed])
        self._num_runs += 1
        self._random_seeds.note_execution()
        values = {name: next(found) for name in self._anchors_of(updates=False)}
        if self._configuration.checks_numbers:
            check_numbers(graph, self._updated, np.asarray(next(found)))
        # Nothing is copied to the host, so arrays of users stay as they are.
        if self._configuration.is_synthetic:
            return
        values.update(zip(self._anchors_of(updates=True), found, strict=True))
        stepio._write([(each.stream, each.chosen(values[each.name])) for each in self._anchors])

    def initAnchorArrays(self) -> dict[str, np.ndarray]:
        """Makes arrays for the results of a step.

        Returns:
            Arrays of the device's types by name of anchor. For `"All"` their shape is `(batches
            per step, accumulation, replicas)` without those that are 1, then that of the tensor;
            for `"EveryN"` the batches are divided by N; for `"Final"` and `"Sum"` only replicas
            come before the shape of the tensor.
        """
        self._make_sure_of_infos()
        streams = [anchor.stream for anchor in self._described_anchors()]
        return {s.name: np.empty((*s.count, *s.shape), s.dtype) for s in streams}

    def getInfo(self, arg0: str) -> TensorInfo:
        """Returns shape and type of a tensor of the main graph.

        Args:
            arg0: The name of the tensor.

        Raises:
            popart_exception: There is no such tensor.
        """
        self._make_sure_of_infos()
        if arg0 not in self._infos:
            raise popart_exception(
                f"There is no tensor {arg0!r} in the model. There are: "
                f"{', '.join(sorted(self._infos))}."
            )
        shape, dtype = self._infos[arg0]
        if None in shape:
            raise popart_exception(
                f"The tensor {arg0!r} has the shape {list(shape)}, of which a part is known only "
                "when it was computed."
            )
        return TensorInfo(name_of(dtype), list(shape))

    def getReport(self) -> Report:
        """Returns what the program would cost, as this package's `Report`.

        Raises:
            popart_exception: The device was not prepared.
        """
        executable = self._prepared("report")
        program = executable.program
        with in_words_of_popart(self._loaded.model.graph, "be modelled"):
            model = model_of_executable(executable)
        return report_of_program(program, model, batch_size_of(program))

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """Returns what the program would cost, as text.

        Args:
            resetProfile: Has no effect: reports are made of the model, which counts nothing.

        Raises:
            popart_exception: The device was not prepared.
        """
        return str(self.getReport())

    def getGraphReport(self, useCbor: bool = False) -> bytes:
        """Returns what the program would cost, as JSON.

        Args:
            useCbor: Whether to return CBOR, which says the same in fewer bytes.

        Raises:
            popart_exception: The device was not prepared.
        """
        return _encoded(self.getReport().to_json(), useCbor)

    def getExecutionReport(self, useCbor: bool = False, resetProfile: bool = True) -> bytes:
        """Returns what runs when, as JSON in the form of Chrome's traces.

        Args:
            useCbor: Whether to return CBOR, which says the same in fewer bytes.
            resetProfile: Has no effect: reports are made of the model, which counts nothing.

        Raises:
            popart_exception: The device was not prepared.
        """
        return _encoded(self.getReport().to_chrome_trace(), useCbor)

    def getSerializedGraph(self) -> bytes:
        """Returns the operations of a step as JSON: names, kinds, inputs, shapes and types.

        Raises:
            popart_exception: The device was not prepared.
        """
        graph = self._prepared("report").graph
        return json.dumps([_operation(op) for op in graph.ops]).encode()

    def getCycleCount(self, id: str = "") -> int:
        """Returns the modelled cycles of a step.

        Args:
            id: Name of a counter; there is one, `""`.

        Raises:
            popart_exception: Nothing has run, or `instrumentWithHardwareCycleCounter` is not set.
        """
        if not self._configuration.counts_cycles:
            raise popart_exception(
                "SessionOption 'instrumentWithHardwareCycleCounter' must be set to true in order "
                "to measure cycles."
            )
        if id:
            raise popart_exception(
                f"There is no cycle counter {id!r}. Leave `id` out for the one of the program."
            )
        if not self._num_runs:
            raise popart_exception("Must call run before getCycleCount: nothing was counted yet.")
        executable = self._prepared("getCycleCount")
        return model_of_executable(executable).cycles_per_step * executable.program.repeat_count

    @logged("session", "Giving the device the host's weights", logging.DEBUG)
    def weightsFromHost(self) -> None:
        """Gives the device the host's weights."""
        self._prepared("weightsFromHost")
        self._weights.to_device()

    def writeWeights(self, arg0: IWeightsIO) -> None:
        """Changes the host's weights; `weightsFromHost` gives them to the device.

        Args:
            arg0: A `PyWeightsIO` with them.

        Raises:
            popart_exception: `constantWeights` is set, there is no such weight, or one has another
                shape or type. Nothing is changed.
        """
        if not isinstance(arg0, IWeightsIO):
            raise TypeError(
                f"Weights are given in a PyWeightsIO. Received: {arg0!r}. Make one with "
                "popart.PyWeightsIO({'name': array})."
            )
        self._configuration.check_weights_change("writeWeights")
        self._weights.write(dict(arg0._items()))

    def resetHostWeights(
        self,
        modelProtoOrFilename: bytes | str | os.PathLike[str],
        ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False,
    ) -> None:
        """Changes the host's weights to those of a model; `weightsFromHost` follows.

        Args:
            modelProtoOrFilename: A serialized model, or the path of a file, that differs from the
                session's in weights only.
            ignoreWeightsInModelWithoutCorrespondingHostWeight: Whether it may have others.

        Raises:
            popart_exception: `constantWeights` is set, or the weights do not fit. Nothing is
                changed.
        """
        self._configuration.check_weights_change("resetHostWeights")
        arrays = _weights_in(load(modelProtoOrFilename))
        others = sorted(name for name in arrays if name not in self._weights)
        if others and not ignoreWeightsInModelWithoutCorrespondingHostWeight:
            raise popart_exception(
                f"resetHostWeights, no tensor {others[0]!r} in the session's model. Pass "
                "ignoreWeightsInModelWithoutCorrespondingHostWeight=True to leave it out."
            )
        self._weights.write({n: array for n, array in arrays.items() if n in self._weights})

    def modelToHost(self, arg0: str) -> None:
        """Writes the model, with the weights as they are, to a file.

        The weights are the host's from then on, too: `readWeights` and `weightsFromHost` go on
        from them.

        Args:
            arg0: The path of the file, which is replaced in one piece.
        """
        self._written_model.save(arg0)

    def updateExternallySavedTensorLocations(self, arg0: str, arg1: str) -> None:
        """Makes `modelToHost` write weights that came from one external file into another.

        Args:
            arg0: The file that they came from, as the model names it.
            arg1: The path of the other file, which must not exist.

        Raises:
            popart_exception: No weight came from that file, or the other exists.
        """
        self._written_model.move_external(arg0, arg1)

    def setRandomSeed(self, seedValue: int) -> None:
        """Makes random operations, and stochastic rounding, begin anew with a seed.

        Args:
            seedValue: Any integer; the lowest 31 bits count.
        """
        self._random_seeds.set_seed(seedValue)

    def getRNGState(self) -> list[int]:
        """Returns the state of random operations, and of stochastic rounding, for `setRNGState`.

        Raises:
            popart_exception: `enableLoadAndOffloadRNGState` is not set.
        """
        return self._random_seeds.state()

    def setRNGState(self, rngValue: list[int]) -> None:
        """Makes random operations, and stochastic rounding, go on from where another session was.

        Args:
            rngValue: The list that `getRNGState` returned.

        Raises:
            popart_exception: `enableLoadAndOffloadRNGState` is not set, or it is no such state.
        """
        self._random_seeds.set_state(rngValue)

    def compileAndExport(self, filename: str, err: OutOfMemoryError | None = None) -> None:
        """Compiles the program, and writes it to a file that `loadExecutable` reads.

        Args:
            filename: Path of the file; its folder is made.
            err: Gets the error if the program does not fit, which is raised otherwise.

        Raises:
            popart_exception: The device cannot compile offline, or a node of the model cannot be
                computed.
        """
        with _noting(err):
            self._export(filename)

    @logged("session", "Loading an exported program", logging.INFO)
    def loadExecutable(self, filename: str) -> None:
        """Reads what `compileAndExport` has written, which `prepareDevice` then uses.

        Args:
            filename: Path of the file.

        Raises:
            popart_exception: There is no such file, or it is of another model or of other options.
        """
        # The session's own folder, which goes with it: the model is read as late as a report is
        # wanted.
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        read_exported(Path(filename), self._digest(), Path(folder))
        self._exported = folder

    @logged("session", "Compiling the program", logging.INFO)
    def _prepare(self, *, loads: bool) -> None:
        """Compiles the program, which may run right away if it `loads`."""
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

    @logged("session", "Exporting the program", logging.INFO)
    def _export(self, path: str | os.PathLike[str]) -> None:
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

    def _digest(self) -> str:
        """Returns a digest of everything that the program depends on."""
        flow = self._flow
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
        returned = map(self._flow.art, self._anchors_of(updates=False))
        checked = [OutfeedMode.ALL] if self._configuration.checks_numbers else []
        program = Program(
            name=self._program_name,
            step=self._step(),
            infeed=self._input_specs,
            unflatten=list,
            repeat_count=self._size.batches * self._size.accumulation,
            outfeed_modes=(*map(mode_of, returned), *checked),
            num_replicas=self._size.replicas,
            num_processes=self._configuration.num_processes,
            # There is no stock program whose rounding it could be meant to have.
            fast_math=True,
            pipeline=self._configuration.pipeline,
            model_name=legible(self._loaded.model.graph.name) or None,
            device_choices=self._configuration.device_choices,
            numerics=self._configuration.numerics,
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
            "seeds": self._random_seeds,
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
        for name in self._flow.anchors():
            if name not in known:
                raise no_such_anchor(name, names)

    def _check_weights(self) -> None:
        """Refuses to run without weights on the device."""

    def _anchors_of(self, *, updates: bool) -> list[str]:
        """Returns the anchors that exist after an update of weights, or in each micro-batch."""
        return [] if updates else self._flow.anchors()

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
        self._random_seeds.place(device, attachment)

    def _described_anchors(self) -> list[Anchor]:
        updates = self._anchors_of(updates=True)
        prefix = reservedAcclToReducePrefix()
        of_replicas = [name for name in updates if name.startswith(prefix)]
        return anchors_of(self._flow, self._size, self._infos, updates, of_replicas)


class _InferenceSessionCore(Session):
    """Runs a model for inference on a device.

    Args:
        model: A serialized model, or the path of a file.
        dataFlow: How many batches a step takes, and which tensors it returns.
        deviceInfo: The device that the model runs on.
        inputShapeInfo: Shapes of inputs that the model leaves open.
        userOptions: Options of the session, which are copied.
        patterns: Which rewrites of graphs are allowed. The emulator rewrites by rules of its own,
            and warns of a choice.

    Raises:
        popart_exception: The model, the options and the device do not go together.
    """

    def __init__(
        self,
        model: bytes | str | os.PathLike[str],
        dataFlow: DataFlow,
        deviceInfo: Any,
        inputShapeInfo: InputShapeInfo,
        userOptions: Any,
        patterns: Any,
    ):
        if not dataFlow.nAnchors():
            raise popart_exception(
                "User must specify an anchor tensor when doing inference. Give the DataFlow a "
                "dictionary of anchors, such as {'output': AnchorReturnType('All')}."
            )
        if userOptions.enableGradientAccumulation:
            raise popart_exception(
                "Gradient Accumulation (SessionOptions.enableGradientAccumulation) is not "
                "available in inference, which has no gradients. Leave it False."
            )
        # Several checks warn of idle options; users get one warning, at the line that made the
        # session.
        with OPTION_WARNINGS.together(stacklevel=3):
            warn_of_idle(userOptions)
            warn_of_patterns(patterns)
            super().__init__(model, dataFlow, deviceInfo, inputShapeInfo, userOptions)


@contextlib.contextmanager
def _noting(found: OutOfMemoryError | None) -> Iterator[None]:
    """Stores the error of a program that does not fit in `found`, if there is one."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        if found is None:
            raise
        found.fail(error.message, error.message)


def _encoded(text: str, uses_cbor: bool) -> bytes:
    return as_cbor(json.loads(text)) if uses_cbor else text.encode()


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
    known = known_initialisers(loaded.model)
    return {
        name: narrowed(array, name)
        for name, array in loaded.model.graph.initialisers.items()
        if np.issubdtype(array.dtype, np.floating) and name not in known
    }


def _operation(op: Any) -> dict[str, Any]:
    return {
        "name": op.name,
        "kind": op.kind,
        "inputs": list(op.inputs),
        "outputs": [{"dtype": spec.dtype, "shape": list(spec.shape)} for spec in op.outputs],
    }
