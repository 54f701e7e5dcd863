"""Describes the methods of ai.graphcore 1: PopART's own operations, of which ONNX has no schemas.

Names, order and defaults of parameters are those of PopART's document.
"""

from types import MappingProxyType
from typing import Any

from onnx import AttributeProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.methods import ANY_NUMBER, REQUIRED, Attribute, Method
from ipu_keras.popart.graphs.tensor_types import element_type
from ipu_keras.popart.model.graph import AI_GRAPHCORE
from ipu_keras.popart.options.enumerations import DataType, ReductionType, ScatterReduction
from ipu_keras.popart.options.settings import CommGroup


def _int(name: str, default: Any = REQUIRED, **options: Any) -> Attribute:
    return Attribute(name, AttributeProto.INT, default, **options)


def _float(name: str, default: Any = REQUIRED) -> Attribute:
    return Attribute(name, AttributeProto.FLOAT, default)


def _string(name: str, default: Any = REQUIRED, **options: Any) -> Attribute:
    return Attribute(name, AttributeProto.STRING, default, **options)


def _ints(name: str, default: Any = REQUIRED, **options: Any) -> Attribute:
    return Attribute(name, AttributeProto.INTS, default, **options)


def _as_numbers(group: Any) -> Any:
    """Returns a group of replicas as models have it: the number of its type, and its size."""
    is_one = isinstance(group, CommGroup)
    return [int(group.type), group.replicaGroupSize] if is_one else group


def _flag(name: str, default: bool) -> Attribute:
    return Attribute(name, AttributeProto.INT, default)


def _one_of(choices: type, name: str, default: Any) -> Attribute:
    """Describes an attribute that is a member of an enumeration, which models have by name."""

    def convert(value: Any) -> str:
        if not isinstance(value, choices):
            raise popart_exception(
                f"The attribute `{name}` is a {choices.__name__}. Received: {name}={value!r}"
            )
        return value.name  # type: ignore[attr-defined]

    return Attribute(name, AttributeProto.STRING, default, convert, f"A `{choices.__name__}`")


def _element_type(value: Any) -> Any:
    """Returns ONNX's number of a dtype, which differs from that in PopART's enumeration."""
    return element_type(value.name) if isinstance(value, DataType) else value


def _dtype_name(value: Any) -> Any:
    if value != "UNDEFINED":
        element_type(value)
    return value


def _method(
    name: str,
    kind: str,
    inputs: int | tuple[int, int],
    *attributes: Attribute,
    outputs: int | tuple[int, int] = 1,
    has_prefix: bool = True,
    returns_list: bool | None = None,
    **options: Any,
) -> Method:
    outputs_range = (outputs, outputs) if isinstance(outputs, int) else outputs
    return Method(
        name=name,
        kind=kind,
        domain=AI_GRAPHCORE,
        since=1,
        inputs=(inputs, inputs) if isinstance(inputs, int) else inputs,
        outputs=outputs_range,
        attributes=attributes,
        has_prefix=has_prefix,
        returns_list=outputs_range != (1, 1) if returns_list is None else returns_list,
        **options,
    )


_REDUCTION = _one_of(ReductionType, "reduction", ReductionType.Mean)


def _bitwise(name: str, kind: str, inputs: int) -> Method:
    return _method(name, kind, inputs, has_prefix=False, inputs_default=[])


_METHODS = (
    _method("abort", "Abort", (0, 1), outputs=0, inputs_default=[]),
    _method("atan2", "Atan2", 2, input_names=("y", "x")),
    _bitwise("bitwiseand", "BitwiseAnd", 2),
    _bitwise("bitwisenot", "BitwiseNot", 1),
    _bitwise("bitwiseor", "BitwiseOr", 2),
    _bitwise("bitwisexnor", "BitwiseXnor", 2),
    _bitwise("bitwisexor", "BitwiseXor", 2),
    _method(
        "call",
        "Call",
        (0, ANY_NUMBER),
        Attribute("callee", AttributeProto.GRAPH),
        outputs=(1, ANY_NUMBER),
    ),
    _method(
        "ctcbeamsearchdecoder",
        "CtcBeamSearchDecoder",
        2,
        _int("blank", 0),
        _int("beam_width", 100),
        _int("top_paths", 1),
        outputs=3,
        has_prefix=False,
        debug="debug_context",
        input_names=("log_probs", "lengths"),
    ),
    _method(
        "ctcloss",
        "Ctc",
        4,
        _REDUCTION,
        _int("blank", 0),
        _string("outDataType", "UNDEFINED", convert=_dtype_name),
        has_prefix=False,
        input_names=("log_probs", "targets", "input_lengths", "target_lengths"),
    ),
    _method("depthtospace", "DepthToSpace", 1, _int("blocksize"), _string("mode")),
    _method("detach", "Detach", 1),
    _method(
        "dynamicadd",
        "DynamicAdd",
        3,
        _ints("axes"),
        _ints("sizes"),
        input_names=("tensor", "offset", "slice"),
    ),
    _method(
        "dynamicslice",
        "DynamicSlice",
        2,
        _ints("axes"),
        _ints("sizes"),
        _int("noOverlap", 0),
        input_names=("tensor", "offset"),
    ),
    _method(
        "dynamicupdate",
        "DynamicUpdate",
        3,
        _ints("axes"),
        _ints("sizes"),
        _int("noOverlap", 0),
        input_names=("tensor", "offset", "slice"),
    ),
    _method(
        "dynamiczero",
        "DynamicZero",
        2,
        _ints("axes"),
        _ints("sizes"),
        input_names=("tensor", "offset"),
    ),
    _method("expm1", "Expm1", 1),
    _method("fmod", "Fmod", 2),
    _method("gelu", "Gelu", 1),
    _method(
        "groupnormalization",
        "GroupNormalization",
        3,
        _int("num_groups"),
        _float("epsilon", 1e-5),
        outputs=3,
        input_names=("x", "scale", "bias"),
    ),
    _method("identityloss", "IdentityLoss", 1, _REDUCTION),
    _method(
        "init",
        "Init",
        0,
        _ints("shape"),
        _int("data_type", convert=_element_type, words="A `DataType`, or ONNX's number of one"),
        _int("init_type", words="An `InitType`"),
        _int("batch_axis", None),
    ),
    _method("l1loss", "L1", 1, _float("lambda"), _REDUCTION),
    _method("log1p", "Log1p", 1),
    _method(
        "lstm",
        "LSTM",
        (2, 4),
        _int("outputFullSequence", 1),
        outputs=2,
        input_names=("x", "weights", "bias", "initial_state"),
    ),
    _method(
        "nllloss",
        "Nll",
        2,
        _REDUCTION,
        _int("ignoreIndex", None),
        _flag("inputIsLogProbability", False),
        input_names=("probabilities", "labels"),
    ),
    _method("nop", "Nop", 1),
    _method(
        "printtensor", "PrintTensor", 1, _int("print_gradient", 1), last=(_string("title", ""),)
    ),
    _method(
        "reducemedian",
        "ReduceMedian",
        1,
        _ints("axes", None),
        _int("keepdims", 1),
        outputs=2,
        has_prefix=False,
    ),
    _method("remainder", "Remainder", 2),
    _method(
        "replicatedallreduce",
        "ReplicatedAllReduce",
        1,
        _ints("commGroup", None, convert=_as_numbers, words="`CommGroup`, or its two numbers"),
    ),
    _method("reshape", "Reshape", 1, _ints("shape")),
    _method("reverse", "Reverse", 1, _ints("dimensions"), has_prefix=False),
    _method("round", "Round", 1),
    _method("scale", "Scale", 1, _float("scale")),
    _method(
        "scaledadd",
        "ScaledAdd",
        (2, 4),
        _float("scale0", 1.0),
        _float("scale1", 1.0),
        input_names=("a", "b", "scale0 (or '')", "scale1 (or '')"),
    ),
    _method(
        "scatterreduce",
        "ScatterReduce",
        2,
        # PopART documents this after `args`, which has a default, so Python wants one here as well.
        _int("axis_size", None),
        _int("axis", -1),
        _one_of(ScatterReduction, "reduction", ScatterReduction.Sum),
        has_prefix=False,
        inputs_default=[],
        input_names=("values", "indices"),
        needed=("axis_size",),
    ),
    _method(
        "sequenceslice",
        "SequenceSlice",
        5,
        _int("zeroUnused", 0),
        has_prefix=False,
        input_names=("source", "destination", "N", "sourceOffset", "destinationOffset"),
    ),
    _method("shapeddropout", "ShapedDropout", 1, _ints("shape"), _float("ratio", 0.5)),
    _method("subsample", "Subsample", 1, _ints("strides")),
)

# By name of method. `multiconv` takes lists of lists, and so is written out in `opsets`.
GRAPHCORE_METHODS = MappingProxyType({each.name: each for each in _METHODS})
