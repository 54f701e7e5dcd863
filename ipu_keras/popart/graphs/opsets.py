"""The opsets of a builder: objects whose methods add operations of one version of a domain.

Methods and their signatures are made from descriptions (`methods`, `graphcore_methods`).
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from onnx import AttributeProto, GraphProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.attributes import attribute_of
from ipu_keras.popart.graphs.debug_context import DebugContext, one_name
from ipu_keras.popart.graphs.draft import GraphDraft
from ipu_keras.popart.graphs.graphcore_methods import GRAPHCORE_METHODS
from ipu_keras.popart.graphs.methods import (
    ARGS,
    DEBUG_PREFIX,
    NUM_OUTPUTS,
    Attribute,
    Method,
    check_number,
    onnx_methods,
    with_methods,
)
from ipu_keras.popart.graphs.multi_convolution import (
    check_choices,
    multiconv_attributes,
    multiconv_inputs,
)
from ipu_keras.popart.model.annotation_names import (
    AVAILABLE_MEMORY,
    CYCLE_BACK_OFF,
    PARTIALS_TYPE,
    PLAN_TYPE,
    RESERVED_TILES,
)
from ipu_keras.popart.model.graph import AI_GRAPHCORE, AI_ONNX, AI_ONNX_ML

__all__ = [
    "AiGraphcoreOpset1",
    "AiOnnxMlOpset1",
    "AiOnnxOpset6",
    "AiOnnxOpset7",
    "AiOnnxOpset8",
    "AiOnnxOpset9",
    "AiOnnxOpset10",
    "AiOnnxOpset11",
]

# How many inputs and outputs the graphs of operations have beyond those of the operation. A Loop's
# body also returns whether to go on; branches of an If have no inputs.
_MORE_INPUTS = {"Call": 0, "Loop": 0, "Scan": 0}
_MORE_OUTPUTS = {"Call": 0, "If": 0, "Loop": 1, "Scan": 0}


class _Opset:
    """An opset of a builder, which adds operations to the graph `draft`."""

    domain: str
    version: int

    def __init__(self, draft: GraphDraft):
        self._draft = draft

    def add_operation(self, method: Method, arguments: Mapping[str, Any]) -> Any:
        """Adds the operation of a builder method, and returns what the method does."""
        _check_given(method, arguments)
        inputs = _inputs(method, arguments.get(ARGS, []))
        check_number(method.kind, "inputs", len(inputs), method.inputs)
        num_outputs = arguments.get(NUM_OUTPUTS, method.outputs[0])
        check_number(method.kind, "outputs", num_outputs, method.outputs)
        attributes = []
        for attribute in (*method.attributes, *method.last):
            value = arguments[attribute.called]
            if attribute.kind == AttributeProto.GRAPH:
                value = self._graph(method, attribute, value, len(inputs), num_outputs)
            if attribute.convert is not None:
                value = attribute.convert(value)
            if not attribute.is_left_out(value):
                attributes.append(attribute_of(attribute.name, value, attribute.kind))
        outputs = self._draft.add_node(
            method.kind,
            method.domain,
            self.version,
            inputs,
            num_outputs,
            attributes,
            one_name(arguments[method.debug], arguments.get(DEBUG_PREFIX, "")),
        )
        return outputs if method.returns_list else next(iter(outputs), None)

    def _graph(
        self, method: Method, attribute: Attribute, builder: Any, num_inputs: int, num_outputs: int
    ) -> GraphProto:
        """Returns the graph that a subgraph builder has made, if it fits the operation."""
        draft = getattr(builder, "draft", None)
        if not isinstance(draft, GraphDraft) or not self._draft.is_within(draft.parent):
            raise popart_exception(
                f"`{attribute.called}` of {method.kind} is a builder that createSubgraphBuilder of "
                f"this builder, or of one around it, has made. Received: {builder!r}"
            )
        expected = num_outputs + _MORE_OUTPUTS[method.kind]
        if len(draft.outputs) != expected:
            raise popart_exception(
                f"The graph `{attribute.called}` of {method.kind} has {expected} output(s), as the "
                f"operation has `num_outputs`={num_outputs}: name them by addOutputTensor. "
                f"Received: {len(draft.outputs)} output(s)"
            )
        # Scan of version 8 has the lengths of sequences as its first input, which its body does not
        # get.
        is_first_scan = method.kind == "Scan" and method.since == 8
        wanted = num_inputs - is_first_scan if method.kind in _MORE_INPUTS else 0
        # Scripts pass tensors from `addInputTensorFromParentGraph` among the arguments of a call,
        # or leave them out.
        if method.kind == "Call" and len(draft.parameters) == wanted:
            return draft.proto(has_all_parameters=True)
        if len(draft.inputs) != wanted:
            raise popart_exception(
                f"The graph `{attribute.called}` of {method.kind} has {wanted} input(s), by the "
                f"number of `args`. Received: {len(draft.inputs)} input(s)"
            )
        return draft.proto()


def _check_given(method: Method, arguments: Mapping[str, Any]) -> None:
    missing = [name for name in method.needed if arguments[name] is None]
    if missing:
        raise TypeError(f"{method.name}() missing the argument {missing[0]!r}")


def _inputs(method: Method, given: Any) -> list[str]:
    if isinstance(given, str):
        # PopART takes the only input of some operations without a list around it.
        given = [given]
    if not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        raise popart_exception(
            f"`{ARGS}` of {method.kind} is a list of ids of tensors. Received: {ARGS}={given!r}"
        )
    # PopART ignores inputs of an If behind the condition: branches take tensors by name.
    return list(given[:1] if method.kind == "If" else given)


class _AiOnnxOpset(_Opset):
    domain = AI_ONNX


@with_methods(onnx_methods(6).values())
class AiOnnxOpset6(_AiOnnxOpset):
    """Adds operations of ai.onnx 6; each method adds the one that it is named after."""

    version = 6


@with_methods(onnx_methods(7).values())
class AiOnnxOpset7(_AiOnnxOpset):
    """Adds operations of ai.onnx 7; each method adds the one that it is named after."""

    version = 7


@with_methods(onnx_methods(8).values())
class AiOnnxOpset8(_AiOnnxOpset):
    """Adds operations of ai.onnx 8; each method adds the one that it is named after."""

    version = 8


@with_methods(onnx_methods(9).values())
class AiOnnxOpset9(_AiOnnxOpset):
    """Adds operations of ai.onnx 9; each method adds the one that it is named after."""

    version = 9


@with_methods(onnx_methods(10).values())
class AiOnnxOpset10(_AiOnnxOpset):
    """Adds operations of ai.onnx 10; each method adds the one that it is named after."""

    version = 10


@with_methods(onnx_methods(11).values())
class AiOnnxOpset11(_AiOnnxOpset):
    """Adds operations of ai.onnx 11; each method adds the one that it is named after."""

    version = 11


class AiOnnxMlOpset1(_Opset):
    """The opset ai.onnx.ml 1, of which PopART has no operation."""

    domain = AI_ONNX_ML
    version = 1


@with_methods(GRAPHCORE_METHODS.values())
class AiGraphcoreOpset1(_Opset):
    """Adds operations of ai.graphcore 1; each method adds the one that it is named after."""

    domain = AI_GRAPHCORE
    version = 1

    def init(
        self,
        shape: Sequence[int],
        data_type: Any,
        init_type: Any,
        batch_axis: Any = None,
        debugContext: Any = "",
        *,
        debugPrefix: Any = "",
    ) -> str:
        """Adds `Init` of ai.graphcore, which makes a tensor without inputs, to the model.

        Args:
            shape: The shape of the tensor.
            data_type: The type of the tensor, as a `DataType` or as ONNX's number of one.
            init_type: An `InitType`: whether the tensor is set to zeros.
            batch_axis: The axis of the batch. PopART also takes `debugContext` in this place.
                Defaults to `None`.
            debugContext: The name of the operation. Defaults to `""`.
            debugPrefix: An older name of `debugContext`.

        Returns:
            The id of the result.

        Raises:
            popart_exception: An argument is wrong.
        """
        if isinstance(batch_axis, str | DebugContext):
            batch_axis, debugContext = None, batch_axis
        names = ("shape", "data_type", "init_type", "batch_axis", "debugContext", "debugPrefix")
        values = (shape, data_type, init_type, batch_axis, debugContext, debugPrefix)
        arguments = dict(zip(names, values, strict=True))
        return self.add_operation(GRAPHCORE_METHODS["init"], arguments)

    def multiconv(
        self,
        args: Sequence[Sequence[str]],
        dilations: Sequence[Sequence[int]] = [],
        inDilations: Sequence[Sequence[int]] = [],
        pads: Sequence[Sequence[int]] = [],
        outPads: Sequence[Sequence[int]] = [],
        strides: Sequence[Sequence[int]] = [],
        availableMemoryProportions: Sequence[float] = [],
        partialsTypes: Sequence[str] = [],
        planType: str | None = None,
        perConvReservedTiles: int | None = None,
        cycleBackOff: float | None = None,
        debugContext: Any = "",
        *,
        debugPrefix: Any = "",
    ) -> list[str]:
        """Adds several convolutions that run at the same time to the model.

        Each list is empty, or has an entry for each convolution.

        Args:
            args: For each convolution, the ids of images, of weights and perhaps of a bias.
            dilations: The steps between weights along the spatial axes. Defaults to `[]`.
            inDilations: The steps between elements of images along these. Defaults to `[]`.
            pads: The zeros before all spatial axes of images, then behind. Defaults to `[]`.
            outPads: The zeros before all spatial axes of results, then behind. Defaults to `[]`.
            strides: The steps between places of the weights. Defaults to `[]`.
            availableMemoryProportions: The shares of tile memory, above 0 and at most 1. Defaults
                to `[]`.
            partialsTypes: The types of partial sums, `"float"` or `"half"`. Defaults to `[]`.
            planType: Either `"parallel"` or `"serial"`, for all convolutions. Defaults to `None`.
            perConvReservedTiles: The number of tiles reserved for each convolution. Defaults to
                `None`.
            cycleBackOff: How much slower a plan may be to use less memory. Defaults to `None`.
            debugContext: The name of the operation. Defaults to `""`.
            debugPrefix: An older name of `debugContext`.

        Returns:
            The ids of the results, one for each convolution.

        Raises:
            popart_exception: An argument is wrong, or the inputs do not fit the operation.
        """
        check_choices(availableMemoryProportions, partialsTypes)
        return self._draft.add_node(
            "MultiConv",
            AI_GRAPHCORE,
            self.version,
            multiconv_inputs(args),
            len(args),
            multiconv_attributes(
                len(args),
                {
                    "dilations": dilations,
                    "inDilations": inDilations,
                    "pads": pads,
                    "outPads": outPads,
                    "strides": strides,
                },
                {
                    AVAILABLE_MEMORY: availableMemoryProportions,
                    PARTIALS_TYPE: partialsTypes,
                },
                {
                    PLAN_TYPE: planType,
                    RESERVED_TILES: perConvReservedTiles,
                    CYCLE_BACK_OFF: cycleBackOff,
                },
            ),
            one_name(debugContext, debugPrefix),
        )


AI_ONNX_OPSETS: Mapping[int, type[_AiOnnxOpset]] = MappingProxyType(
    {
        each.version: each
        for each in (
            AiOnnxOpset6,
            AiOnnxOpset7,
            AiOnnxOpset8,
            AiOnnxOpset9,
            AiOnnxOpset10,
            AiOnnxOpset11,
        )
    }
)
