"""TensorFlow's operations, by what they do to halves."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from ipu_keras.host.fused_updates import TYPES as TYPES_OF_UPDATES
from ipu_keras.internals.tensorflow.operations import definition_of

_HALF, _FLOAT = tf.float16.as_datatype_enum, tf.float32.as_datatype_enum
_INT32 = tf.int32.as_datatype_enum

# What computes new numbers, by the attributes that are the types of what it computes with. What
# moves, compares or chooses numbers is not here: halves stay halves in it.
COMPUTING: dict[str, tuple[str, ...]] = dict.fromkeys(
    """
    AccumulateNV2 Acos Acosh Add AddN AddV2 AdjustContrastv2 AdjustHue AdjustSaturation Asin Asinh
    Atan Atan2 Atanh AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad BatchMatMul BatchMatMulV2
    BatchMatrixInverse BatchNormWithGlobalNormalization BatchNormWithGlobalNormalizationGrad
    BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e
    BesselY0 BesselY1 BiasAdd BiasAddGrad BiasAddV1 BlockLSTM BlockLSTMGrad BlockLSTMGradV2
    BlockLSTMV2 Cholesky CollectiveReduceV2 Conv Conv2D Conv2DBackpropFilter Conv2DBackpropInput
    Conv3D Conv3DBackpropFilter Conv3DBackpropFilterV2 Conv3DBackpropInput Conv3DBackpropInputV2 Cos
    Cosh CropAndResizeGradImage Cross Cumprod Cumsum CumulativeLogsumexp DepthwiseConv2dNative
    DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput Digamma Dilation2D
    Dilation2DBackpropFilter Dilation2DBackpropInput Div DivNoNan Einsum Elu EluGrad Erf Erfc Erfinv
    EuclideanNorm Exp Expm1 FloorDiv FloorMod FusedBatchNormGradV2 FusedBatchNormGradV3
    FusedBatchNormV2 FusedBatchNormV3 FusedPadConv2D FusedResizeAndPadConv2D HSVToRGB Igamma Igammac
    InplaceAdd InplaceSub Inv InvGrad L2Loss LRN LRNGrad LSTMBlockCell LSTMBlockCellGrad LeakyRelu
    LeakyReluGrad Lgamma LinSpace Log Log1p LogSoftmax MatMul MatrixInverse MatrixSolve
    MatrixTriangularSolve MaxPool3D MaxPoolGrad MaxPoolGradV2 MaxPoolGradWithArgmax Mean
    MirrorPadGrad Mod Mul MulNoNan Ndtri NonMaxSuppressionV5 Pow Prod Qr QuantizeAndDequantizeV2
    QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 RGBToHSV RaggedFillEmptyRowsGrad RealDiv
    Reciprocal ReciprocalGrad ResizeBilinearGrad ResizeNearestNeighborGrad Rsqrt RsqrtGrad ScatterNd
    ScatterNdNonAliasingAdd SegmentMean SegmentProd SegmentProdV2 SegmentSum SegmentSumV2
    SelfAdjointEigV2 Selu SeluGrad Sigmoid SigmoidGrad Sin Sinh Softmax
    SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign SoftsignGrad SparseDenseCwiseAdd
    SparseDenseCwiseDiv SparseDenseCwiseMul SparseFillEmptyRowsGrad SparseReduceSum
    SparseReduceSumSparse SparseSegmentMean SparseSegmentMeanGrad SparseSegmentMeanGradV2
    SparseSegmentMeanWithNumSegments SparseSegmentSqrtN SparseSegmentSqrtNGrad
    SparseSegmentSqrtNGradV2 SparseSegmentSqrtNWithNumSegments SparseSegmentSum SparseSegmentSumGrad
    SparseSegmentSumGradV2 SparseSegmentSumWithNumSegments SparseSoftmax
    SparseSoftmaxCrossEntropyWithLogits SparseTensorDenseAdd SparseTensorDenseMatMul Sqrt SqrtGrad
    Square SquaredDifference Sub Sum Svd Tan Tanh TanhGrad TensorScatterAdd TensorScatterSub
    TruncateDiv TruncateMod UnsortedSegmentProd UnsortedSegmentSum Xdivy XlaConv XlaDot
    XlaSelfAdjointEig XlaSvd Xlog1py Xlogy
    """.split(),  # noqa: SIM905 (a list of a name a line would be a hundred lines)
    ("T",),
)
COMPUTING["BatchMatMulV3"] = ("Ta", "Tb", "Tout")
COMPUTING["ImageProjectiveTransformV2"] = COMPUTING["ImageProjectiveTransformV3"] = ("dtype",)
COMPUTING["IsotonicRegression"] = ("T", "output_dtype")
COMPUTING["MaxPool3DGrad"] = ("T", "TInput")
COMPUTING["Range"] = ("Tidx",)
COMPUTING["XlaConvV2"] = COMPUTING["XlaDotV2"] = ("LhsT", "RhsT", "preferred_element_type")

# Those of them whose results are halves whatever finite halves they are given.
BOUNDED = frozenset(
    "Acos Asin Atan Atan2 Cos Erf Erfc Sigmoid Sin Softmax Softsign Tanh".split()  # noqa: SIM905
)

# Those of them that make infinities of finite numbers: they divide by zero, or have a pole.
SINGULAR = frozenset(
    """
    Acosh Atanh BatchMatrixInverse BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Cholesky
    Cosh CumulativeLogsumexp Digamma Div DivNoNan EluGrad Erfinv Exp Expm1 FloorDiv FloorMod Inv
    InvGrad Lgamma Log Log1p LogSoftmax MatrixInverse MatrixSolve MatrixTriangularSolve Mod Ndtri
    Pow Qr RealDiv Reciprocal ReciprocalGrad Rsqrt RsqrtGrad Sinh SparseDenseCwiseDiv SqrtGrad
    TruncateDiv TruncateMod Xdivy Xlog1py Xlogy
    """.split()  # noqa: SIM905
)

# What moves or chooses halves: its results are finite where all that it is given is.
MOVING = frozenset(
    """
    Abs BroadcastTo CheckNumerics ConcatV2 ExpandDims GatherV2 Identity IdentityN MaxPool MaxPoolV2
    Max Maximum Min Minimum Neg Pack Pad PreventGradient Relu Relu6 Relu6Grad ReluGrad Reshape
    ReverseV2 Roll Select SelectV2 Slice Split SplitV Squeeze StopGradient StridedSlice
    StridedSliceGrad Tile Transpose Unpack ZerosLike
    """.split()  # noqa: SIM905
)

# Their float32 overflows for finite halves as well, which is an overflow and no infinite operand.
OVERFLOWING = frozenset({"Cosh", "Exp", "Expm1", "Pow", "Sinh"})

# What changes a variable by what it computes, and what computes that.
CHANGES = {"AssignAddVariableOp": "AddV2", "AssignSubVariableOp": "Sub"}

# An attribute of operations that compute halves and are not written anew, as those that round.
LEFT_ALONE = "_ipu_left_alone"


def computes_halves(node: Any) -> bool:
    """Whether a node of a definition computes halves, and not only what it calls."""
    if LEFT_ALONE in node.attr:
        return False
    if node.op == "Cast":
        return node.attr["DstT"].type == _HALF and node.attr["SrcT"].type != _HALF
    if node.op in TYPES_OF_UPDATES:
        return node.attr[TYPES_OF_UPDATES[node.op]].type == _HALF
    names = ("dtype",) if node.op in CHANGES else COMPUTING.get(node.op, ())
    return any(node.attr[name].type == _HALF for name in names)


def makes_integers(node: Any) -> bool:
    """Whether a node makes int32 of floating-point numbers."""
    return (
        node.op == "Cast"
        and node.attr["SrcT"].type in (_HALF, _FLOAT)
        and node.attr["DstT"].type == _INT32
        and LEFT_ALONE not in node.attr
    )


def positions_of(node: Any, types: Iterable[str]) -> list[int]:
    """Returns which inputs of a node have a type that is one of these attributes."""
    every = [
        argument.type_attr
        for argument in definition_of(node.op).input_arg
        for _ in range(node.attr[argument.number_attr].i if argument.number_attr else 1)
    ]
    return [k for k, name in enumerate(every) if name in types]


def called_in(node: Any) -> list[Any]:
    """Returns the functions that a node names, which may be changed."""
    found = [value.func for value in node.attr.values() if value.HasField("func")]
    return found + [function for value in node.attr.values() for function in value.list.func]


def is_widening(node: Any) -> bool:
    types = (node.attr["SrcT"].type, node.attr["DstT"].type) if node.op == "Cast" else ()
    return types == (_HALF, _FLOAT)


def is_for_xla(called: Any) -> bool:
    """Whether XLA compiles a function, or the function that a node calls."""
    # Whoever asks for an attribute that is not there makes it.
    return "_XlaMustCompile" in called.attr and called.attr["_XlaMustCompile"].b
