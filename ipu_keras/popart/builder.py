"""`popart.builder`: the builder of ONNX models that scripts use, over `graphs.builder_core`."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.builder_core import (
    DEFAULT_AI_GRAPHCORE,
    DEFAULT_AI_ONNX_ML,
    _BuilderCore,
)
from ipu_keras.popart.graphs.messages import DEFAULT_AI_ONNX
from ipu_keras.popart.graphs.opsets import AI_ONNX_OPSETS, AiOnnxMlOpset1
from ipu_keras.popart.graphs.opsets import AiGraphcoreOpset1 as _AiGraphcoreOpset1Core
from ipu_keras.popart.model.graph import AI_GRAPHCORE, AI_ONNX, AI_ONNX_ML

if TYPE_CHECKING:
    # Written by `python tests/stub_files.py`: what `_forwarding` gives the classes, for checkers.
    from ipu_keras.popart.builder_operations import AiGraphcoreOperations, AiOnnxOperations

    # `Builder` finds the methods of its core by `__getattr__`, which checkers do not see.
    _CoreMethods = _BuilderCore
else:
    AiGraphcoreOperations = AiOnnxOperations = _CoreMethods = object


class Opset:
    """Adds operations of one version of a domain to the model of a builder.

    Args:
        builder: The builder whose model gets the operations.
        version: The version of the domain.

    Raises:
        ValueError: There is no such version.
    """

    # By version, the class that adds the operations.
    _cores: Mapping[int, type] = MappingProxyType({})
    # The domain in errors.
    _words = ""

    def __init__(self, builder: Builder, version: int):
        core = self._cores.get(version)
        if core is None:
            raise ValueError(
                f"Unsupported or unrecognized {self._words} version: {version}. It is one of "
                f"{sorted(self._cores)}"
            )
        self.version = version
        self._core = core(builder.draft)

    def __repr__(self) -> str:
        return type(self).__name__


def _forwarding(core: type) -> Callable[[type], type]:
    """Makes a decorator that gives a class the operations of a core, besides its own methods."""

    def decorated(cls: type) -> type:
        for name, function in inspect.getmembers(core, inspect.isfunction):
            is_operation = not name.startswith("_") and name != "add_operation"
            if is_operation and name not in _BY_HAND and name not in vars(cls):
                setattr(cls, name, _forwarded(cls, name, function))
        return cls

    return decorated


def _forwarded(cls: type, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def forwarded(self: Opset, /, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._core, name)(*args, **kwargs)

    forwarded.__qualname__, forwarded.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    return forwarded


# PopART documents these with other parameters than the rest, such as `debugName`, so they are
# written out.
_BY_HAND = ("call", "logical_if", "loop", "scan")


class AiOnnx(Opset, AiOnnxOperations):
    """Adds operations of ai.onnx to the model of a builder.

    Args:
        builder: The builder whose model gets the operations.
        version: The version of ai.onnx, from 6 to 11.

    Raises:
        ValueError: There is no such version.
    """

    _cores = AI_ONNX_OPSETS
    _words = "ai.onnx"

    def logical_if(
        self,
        args: Sequence[str],
        num_outputs: int,
        else_branch: Builder,
        then_branch: Builder,
        name: str = "",
    ) -> list[str]:
        """Adds `If`, which runs one of two graphs.

        Args:
            args: A list of the id of the condition; branches take other tensors by their ids.
            num_outputs: The number of outputs of each branch.
            else_branch: The builder of the graph that runs if the condition is false.
            then_branch: The builder of the graph that runs if the condition is true.
            name: The name of the operation. Defaults to `""`.

        Returns:
            The ids of the results.

        Raises:
            popart_exception: The branches do not fit the operation.
        """
        return self._core.logical_if(args, num_outputs, else_branch, then_branch, name)

    def loop(
        self, args: Sequence[str], num_outputs: int, body: Builder, debugContext: Any = ""
    ) -> list[str]:
        """Adds `Loop`, which runs a graph several times.

        Args:
            args: The ids of the greatest number of iterations, of the condition to begin, and of
                the tensors carried from one iteration to the next; the first two may be `""`.
            num_outputs: The number of results.
            body: The builder of the graph. Its inputs are the number of the iteration, the
                condition and the carried tensors; its outputs the condition to go on, the carried
                tensors, and those that are stacked.
            debugContext: The name of the operation. Defaults to `""`.

        Returns:
            The ids of the results.

        Raises:
            popart_exception: The body does not fit the operation.
        """
        return self._core.loop(args, num_outputs, body, debugContext)


@_forwarding(AI_ONNX_OPSETS[6])
class AiOnnx6(AiOnnx):
    """Adds operations of ai.onnx 6 to the model of a builder."""


@_forwarding(AI_ONNX_OPSETS[7])
class AiOnnx7(AiOnnx6):
    """Adds operations of ai.onnx 7 to the model of a builder."""


@_forwarding(AI_ONNX_OPSETS[8])
class AiOnnx8(AiOnnx7):
    """Adds operations of ai.onnx 8 to the model of a builder."""

    def scan(  # type: ignore[override]
        self,
        args: Sequence[str],
        num_outputs: int,
        body: Builder,
        num_scan_inputs: int,
        directions: Sequence[int] = [],
        debugContext: Any = "",
    ) -> list[str]:
        """Adds `Scan`, which runs a graph for each element of sequences of a batch.

        Args:
            args: The ids of the lengths of the sequences, which may be `""`, of the states carried
                from one iteration to the next, and of the sequences.
            num_outputs: The number of results.
            body: The builder of the graph, which takes states and an element of each sequence.
            num_scan_inputs: The number of sequences among `args`.
            directions: For each sequence, 0 for forwards and 1 for backwards. Defaults to
                forwards.
            debugContext: The name of the operation. Defaults to `""`.

        Returns:
            The ids of the results.

        Raises:
            popart_exception: The body does not fit the operation.
        """
        return self._core.scan(args, num_outputs, body, num_scan_inputs, directions, debugContext)


@_forwarding(AI_ONNX_OPSETS[9])
class AiOnnx9(AiOnnx8):
    """Adds operations of ai.onnx 9 to the model of a builder."""

    def scan(  # type: ignore[override]
        self,
        args: Sequence[str],
        num_outputs: int,
        body: Builder,
        num_scan_inputs: int,
        scan_input_axes: Sequence[int] = [],
        scan_input_directions: Sequence[int] = [],
        scan_output_axes: Sequence[int] = [],
        scan_output_directions: Sequence[int] = [],
        debugContext: Any = "",
    ) -> list[str]:
        """Adds `Scan`, which runs a graph for each element of sequences.

        Args:
            args: The ids of the states carried from one iteration to the next, and of the
                sequences.
            num_outputs: The number of results.
            body: The builder of the graph, which takes states and an element of each sequence.
            num_scan_inputs: The number of sequences among `args`.
            scan_input_axes: The axis along which each sequence is read. Defaults to the first.
            scan_input_directions: For each sequence, 0 for forwards and 1 for backwards. Defaults
                to forwards.
            scan_output_axes: The axis along which each result is stacked. Defaults to the first.
            scan_output_directions: For each stacked result, 0 to append and 1 to prepend. Defaults
                to appending.
            debugContext: The name of the operation. Defaults to `""`.

        Returns:
            The ids of the results.

        Raises:
            popart_exception: The body does not fit the operation.
        """
        return self._core.scan(
            args,
            num_outputs,
            body,
            num_scan_inputs,
            scan_input_axes,
            scan_input_directions,
            scan_output_axes,
            scan_output_directions,
            debugContext,
        )


@_forwarding(AI_ONNX_OPSETS[10])
class AiOnnx10(AiOnnx9):
    """Adds operations of ai.onnx 10 to the model of a builder."""


@_forwarding(AI_ONNX_OPSETS[11])
class AiOnnx11(AiOnnx10):
    """Adds operations of ai.onnx 11 to the model of a builder."""


class AiOnnxMl(Opset):
    """The opset ai.onnx.ml, of which PopART has no operation.

    Args:
        builder: The builder that has the opset.
        version: The version of ai.onnx.ml, which is 1.

    Raises:
        ValueError: There is no such version.
    """

    _cores = MappingProxyType({1: AiOnnxMlOpset1})
    _words = "ai.onnx.ml"


@_forwarding(_AiGraphcoreOpset1Core)
class AiGraphcore(Opset, AiGraphcoreOperations):
    """Adds operations of ai.graphcore to the model of a builder.

    Args:
        builder: The builder whose model gets the operations.
        version: The version of ai.graphcore, which is 1.

    Raises:
        ValueError: There is no such version.
    """

    _cores = MappingProxyType({1: _AiGraphcoreOpset1Core})
    _words = "ai.graphcore"

    def call(
        self, args: Sequence[str], num_outputs: int, callee: Builder, debugName: Any = ""
    ) -> list[str]:
        """Adds `Call`, which runs a graph whose code all its calls share.

        Args:
            args: The ids of the inputs of the graph.
            num_outputs: The number of outputs of the graph.
            callee: The builder of the graph, of `createSubgraphBuilder`.
            debugName: The name of the operation. Defaults to `""`.

        Returns:
            The ids of the results.

        Raises:
            popart_exception: The graph does not fit the operation.
        """
        return self._core.call(args, num_outputs, callee, debugName)


class AiGraphcoreOpset1(AiGraphcore):
    """The name of `AiGraphcore` in older releases."""


_AI_ONNX = {6: AiOnnx6, 7: AiOnnx7, 8: AiOnnx8, 9: AiOnnx9, 10: AiOnnx10, 11: AiOnnx11}

# The versions of domains if a builder is not told others.
_DEFAULTS = {
    AI_ONNX: DEFAULT_AI_ONNX,
    AI_ONNX_ML: DEFAULT_AI_ONNX_ML,
    AI_GRAPHCORE: DEFAULT_AI_GRAPHCORE,
}


class Builder(_CoreMethods):
    """Builds an ONNX model, operation by operation.

    All methods of `popart_core._BuilderCore` can be called on it. The first opset of a domain that
    is used fixes its version.

    Args:
        modelProtoOrFilename: A serialised model to go on with, or the path of its file. Defaults
            to `None`, which begins a new model.
        opsets: The versions by domain. Defaults to `None`, which means ai.onnx 10, ai.onnx.ml 1
            and ai.graphcore 1.
        builderCore: The core of an existing builder. Defaults to `None`, which makes a new one.

    Raises:
        ValueError: There is no such domain or version.
        popart_exception: There is no such model, or it cannot be read.

    Example:

    >>> import numpy as np
    >>> builder = Builder()
    >>> x = builder.addInputTensor("FLOAT", [2, 3])
    >>> w = builder.addInitializedInputTensor(np.zeros((3, 4), np.float32))
    >>> y = builder.aiOnnx.matmul([x, w])
    >>> builder.addOutputTensor(y)
    >>> y, builder.getTensorShape(y)
    ('MatMul:0', [2, 4])
    """

    def __init__(
        self,
        modelProtoOrFilename: bytes | str | os.PathLike | None = None,
        opsets: dict[str, int] | None = None,
        builderCore: _BuilderCore | None = None,
    ):
        versions = _checked(opsets)
        self._impl = _BuilderCore(modelProtoOrFilename) if builderCore is None else builderCore
        # `createSubgraphBuilder` replaces them by the dictionary of the builder around, so that all
        # graphs of a model agree.
        self._versions = {**self._impl.draft.opsets, **versions}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "_impl":
                # While the builder is copied there is no core yet, and looking it up would recur.
                raise AttributeError(name)
            return getattr(self._impl, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._impl)})

    def createSubgraphBuilder(self) -> Builder:
        """Returns a builder of a graph within this one, such as a branch or the body of a loop."""
        child = Builder(builderCore=self._impl._createSubgraphBuilder())
        child._versions = self._versions
        return child

    def reshape_const(
        self, aiOnnx: AiOnnx, args: Sequence[str], shape: Iterable[int], debugContext: Any = ""
    ) -> str:
        """Reshapes a tensor to a known shape, which becomes a constant of the model.

        Args:
            aiOnnx: The opset to use, such as `builder.aiOnnx`.
            args: A list of the id of the tensor.
            shape: The new sizes; 0 keeps a size, and -1 stands for the rest.
            debugContext: The name of the operation. Defaults to `""`.

        Returns:
            The id of the result.

        Raises:
            popart_exception: The tensor has another number of elements.
        """
        constant = aiOnnx.constant(np.array(list(shape), np.int64))
        return aiOnnx.reshape([*args, constant], debugContext)

    @property
    def aiOnnx(self) -> AiOnnx:
        """Operations of ai.onnx in the version of this builder, which the first use fixes."""
        version = self._versions.setdefault(AI_ONNX, _DEFAULTS[AI_ONNX])
        if version not in _AI_ONNX:
            raise popart_exception(
                f"The model that the builder began with is of opset {version} of ai.onnx, and "
                f"builders add operations of {min(_AI_ONNX)} to {max(_AI_ONNX)}. Add some of "
                "ai.graphcore, or by `customOp`, or export the model for opset "
                f"{max(_AI_ONNX)}."
            )
        return _AI_ONNX[version](self, version)

    @property
    def aiOnnxMl(self) -> AiOnnxMl:
        """Operations of ai.onnx.ml in the version of this builder."""
        return AiOnnxMl(self, self._versions.setdefault(AI_ONNX_ML, _DEFAULTS[AI_ONNX_ML]))

    @property
    def aiGraphcore(self) -> AiGraphcore:
        """Operations of ai.graphcore in the version of this builder."""
        version = self._versions.setdefault(AI_GRAPHCORE, _DEFAULTS[AI_GRAPHCORE])
        return AiGraphcore(self, version)

    @property
    def aiOnnxOpset6(self) -> AiOnnx6:  # type: ignore[override]
        """Operations of ai.onnx 6."""
        return self._fixed(AI_ONNX, 6, "aiOnnxOpset6", AiOnnx6)

    @property
    def aiOnnxOpset7(self) -> AiOnnx7:  # type: ignore[override]
        """Operations of ai.onnx 7."""
        return self._fixed(AI_ONNX, 7, "aiOnnxOpset7", AiOnnx7)

    @property
    def aiOnnxOpset8(self) -> AiOnnx8:  # type: ignore[override]
        """Operations of ai.onnx 8."""
        return self._fixed(AI_ONNX, 8, "aiOnnxOpset8", AiOnnx8)

    @property
    def aiOnnxOpset9(self) -> AiOnnx9:  # type: ignore[override]
        """Operations of ai.onnx 9."""
        return self._fixed(AI_ONNX, 9, "aiOnnxOpset9", AiOnnx9)

    @property
    def aiOnnxOpset10(self) -> AiOnnx10:  # type: ignore[override]
        """Operations of ai.onnx 10."""
        return self._fixed(AI_ONNX, 10, "aiOnnxOpset10", AiOnnx10)

    @property
    def aiOnnxOpset11(self) -> AiOnnx11:  # type: ignore[override]
        """Operations of ai.onnx 11."""
        return self._fixed(AI_ONNX, 11, "aiOnnxOpset11", AiOnnx11)

    @property
    def aiOnnxMlOpset1(self) -> AiOnnxMl:  # type: ignore[override]
        """Operations of ai.onnx.ml 1."""
        return self._fixed(AI_ONNX_ML, 1, "aiOnnxMlOpset1", AiOnnxMl)

    @property
    def aiGraphcoreOpset1(self) -> AiGraphcoreOpset1:  # type: ignore[override]
        """Operations of ai.graphcore 1."""
        return self._fixed(AI_GRAPHCORE, 1, "aiGraphcoreOpset1", AiGraphcoreOpset1)

    def _fixed(self, domain: str, version: int, attribute: str, opset: Callable[..., Any]) -> Any:
        """Returns an opset, which must be the only one of its domain in the builder."""
        found = self._versions.setdefault(domain, version)
        if found != version:
            raise RuntimeError(
                f"Invalid opset '{attribute}' selected. Opset for domain {domain} already defined "
                f"as {found}"
            )
        return opset(self, version)


def _checked(opsets: dict[str, int] | None) -> dict[str, int]:
    """Returns versions by domain, all of which must be supported."""
    supported = {AI_ONNX: _AI_ONNX, AI_ONNX_ML: AiOnnxMl._cores, AI_GRAPHCORE: AiGraphcore._cores}
    for domain, version in (opsets or {}).items():
        if domain not in supported:
            raise ValueError(
                f"Unsupported or unrecognized domain: {domain}. It is one of {sorted(supported)}"
            )
        if version not in supported[domain]:
            raise ValueError(
                f"Unsupported or unrecognized {domain} version: {version}. It is one of "
                f"{sorted(supported[domain])}"
            )
    return dict(opsets or {})
