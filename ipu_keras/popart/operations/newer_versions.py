"""Lists the versions of ai.onnx after 11, PopART's last, that do not change what is computed.

ONNX gives an operation a new version with each change of its text. Most of them add types of
numbers that no IPU has, or clarify. Where the meaning did change, there is a function for the
version; a version that is neither here nor has a function is refused, as nobody has read it.
"""

from collections.abc import Mapping
from types import MappingProxyType

from ipu_keras.popart.model.graph import AI_ONNX, AI_ONNX_ML

# PopART ends at this opset. All operations up to it are known, so only later ones are looked up.
LAST_OF_POPART = 11


def _each(kinds: str, *versions: int) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(kinds.split(), versions)


# By operation: the versions with the same meaning as the newest function before them. A version
# belongs here only once its text has been read: an entry has it computed as the one before.
UNCHANGED: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        **_each("Abs Ceil Concat Erf Exp Expand Floor Gather GatherElements Gemm Greater LRN", 13),
        **_each("Less Log MatMul Mean MeanVarianceNormalization Neg NonZero Reciprocal", 13),
        **_each("ReduceL1 ReduceL2 ReduceMean ReduceProd ReduceSumSquare", 13),
        **_each("ReduceLogSum ReduceLogSumExp", 13, 28),
        **_each("Sigmoid Sign Slice Sqrt Sum Tanh Tile", 13),
        **_each("Add Div Mul Relu Sub", 13, 14),
        **_each("ArgMax ArgMin GatherND SoftmaxCrossEntropyLoss", 13),
        **_each("Clip Max Min", 12, 13),
        **_each("ReduceMax ReduceMin", 12, 13, 20),
        **_each("CumSum", 14),
        **_each("BatchNormalization", 15),
        **_each("Pow", 13, 15),
        **_each("GreaterOrEqual LeakyRelu LessOrEqual PRelu Where", 16),
        **_each("Equal", 13, 19),
        **_each("IsNaN", 13, 20),
        **_each("IsInf", 20),
        **_each("Acos Acosh Asin Asinh Atan Atanh Bernoulli Conv ConvTranspose Cos Cosh Det", 22),
        **_each("Elu EyeLike GlobalAveragePool GlobalLpPool GlobalMaxPool", 22),
        **_each("GRU HardSigmoid HardSwish InstanceNormalization LSTM LpNormalization LpPool", 22),
        **_each("MaxRoiPool MaxUnpool Mish Multinomial RNN RandomNormal RandomNormalLike", 22),
        **_each("RandomUniform RandomUniformLike RoiAlign Round Selu Sin Sinh Softplus", 22),
        **_each("Softsign Tan ThresholdedRelu", 22),
        **_each("GridSample", 20, 22),
        **_each("MaxPool", 12),
        **_each("Dropout NegativeLogLikelihoodLoss", 13, 22),
        **_each("ScatterElements ScatterND", 13),
        **_each("DepthToSpace", 13, 28),
        **_each("SpaceToDepth", 13),
        **_each("Mod", 13),
        **_each("Resize", 19),
        **_each("Compress Einsum OneHot ReverseSequence Unique", 28),
        **_each("Celu", 28),
        **_each("QLinearMatMul", 21),
        **_each("SplitToSequence TopK", 24),
        **_each("Cast", 13, 21, 23, 25, 28),
        **_each("CastLike", 21, 23, 25),
        **_each("Pad", 13, 21, 23, 24, 25),
        **_each("Constant", 13, 19, 21, 23, 24, 25),
        **_each("ConstantOfShape", 20, 21, 23, 24, 25),
        **_each("Flatten Transpose", 13, 21, 23, 24, 25),
        **_each("Squeeze Unsqueeze", 21, 23, 24, 25),
        **_each("Size", 13, 19, 21, 23, 24, 25),
        **_each("Reshape Shape", 13, 19, 21, 23, 24, 25),
        **_each("Identity", 13, 14, 16, 19, 21, 23, 24, 25),
        **_each("If Loop", 13, 16, 19, 21, 23, 24, 25),
        **_each("Scan", 16, 19, 21, 23, 24, 25),
        **_each("QuantizeLinear", 24, 25, 28),
        **_each("DequantizeLinear", 19, 24, 25, 28),
    }
)

_ON_THE_HOST = "Compute it before the session runs, and give the model its result as an input."
_NO_OPTIONALS = (
    "Programs of IPUs have tensors and sequences only: export a model that always has the value."
)
_NO_CLASSICAL_MODELS = (
    "PopART has none of this domain: leave it to the host, and give the session a model of what is "
    "before or behind it."
)
_REPLACE = (
    "Replace it in the model by operations that do the same; exporters write several for some if "
    "they are told an older opset, such as torch.onnx.export(..., opset_version=11)."
)

_INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("Optional", "OptionalGetElement", "OptionalHasElement"), _NO_OPTIONALS),
        **dict.fromkeys(("ImageDecoder", "MelWeightMatrix", "DFT", "STFT"), _ON_THE_HOST),
        **dict.fromkeys(("RegexFullMatch", "StringConcat", "StringSplit"), _ON_THE_HOST),
    }
)


def what_instead(domain: str, kind: str) -> str:
    """Says what to do about an unknown operation of a model; empty if there is no advice.

    Example:

    >>> what_instead("ai.onnx", "DFT")
    'Compute it before the session runs, and give the model its result as an input.'
    """
    if domain == AI_ONNX_ML:
        return _NO_CLASSICAL_MODELS
    return _INSTEAD.get(kind, _REPLACE) if domain == AI_ONNX else ""
