"""What is known of operations that have kernels for halves, and what an IPU makes of them."""

import numpy as np
import pytest
import tensorflow as tf
from configured_ipus import configured
from tensorflow import raw_ops as raw
from tensorflow.python.framework import kernels, op_def_registry

from ipu_keras.config import reset_ipu_configuration
from ipu_keras.host.half_operations import CHANGES, COMPUTING, MOVING, TYPES_OF_UPDATES

HALF = tf.float16.as_datatype_enum

# What moves, chooses, compares or draws halves, or leaves out what is behind the point: exact, and
# not in `MOVING`, which are those that are told from others where they are finite.
EXACT = frozenset(
    """
    ApproxTopK AssignVariableOp AssignVariableXlaConcatND BatchMatrixBandPart BatchMatrixDiag
    BatchMatrixDiagPart BatchMatrixSetDiag BatchToSpace BatchToSpaceND Bitcast Cast Ceil
    CheckNumericsV2 ClipByValue Concat ConjugateTranspose Const DecodeRaw DepthToSpace Diag DiagPart
    DrawBoundingBoxes DrawBoundingBoxesV2 DynamicPartition DynamicStitch Empty EnsureShape
    ExtractImagePatches ExtractVolumePatches FakeParam Fill Floor Gather GatherNd ListDiff
    MatrixBandPart MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2
    MatrixDiagV3 MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MaxPoolGradGrad MaxPoolGradGradV2
    MaxPoolWithArgmax MirrorPad NthElement OneHot OnesLike PadV2 ParallelConcat
    ParallelDynamicStitch ParameterizedTruncatedNormal PlaceholderWithDefault RaggedFillEmptyRows
    RaggedGather RaggedTensorFromVariant RaggedTensorToTensor RaggedTensorToVariantGradient
    RandomGamma RandomPoisson RandomPoissonV2 RandomShuffle RandomStandardNormal RandomUniform
    ReadVariableOp ReadVariableXlaSplitND ResizeNearestNeighbor ResourceGather ResourceGatherNd
    ResourceScatterMax ResourceScatterMin ResourceScatterNdMax ResourceScatterNdMin
    ResourceScatterNdUpdate ResourceScatterUpdate ResourceStridedSliceAssign Reverse ReverseSequence
    Rint Round SegmentMax SegmentMaxV2 SegmentMin SegmentMinV2 Sign Snapshot SpaceToBatch
    SpaceToBatchND SpaceToDepth SparseConcat SparseFillEmptyRows SparseReduceMax
    SparseReduceMaxSparse SparseReorder SparseSlice SparseSliceGrad SparseSparseMaximum
    SparseSparseMinimum SparseSplit SparseToDense StackPopV2 StackPushV2 StatefulRandomBinomial
    StatefulStandardNormal StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform
    StatefulUniformFullInt StatefulUniformInt StatelessParameterizedTruncatedNormal
    StatelessRandomBinomial StatelessRandomGammaV2 StatelessRandomGammaV3 StatelessRandomNormal
    StatelessRandomNormalV2 StatelessRandomPoisson StatelessRandomUniform StatelessRandomUniformV2
    StatelessShuffle StatelessTruncatedNormal StatelessTruncatedNormalV2 Switch
    TakeManySparseFromTensorsMap TensorArrayConcatV2 TensorArrayConcatV3 TensorArrayGatherV2
    TensorArrayGatherV3 TensorArrayReadV2 TensorArrayReadV3 TensorArrayScatterV3 TensorArraySplitV3
    TensorArrayWriteV3 TensorListConcat TensorListConcatV2 TensorListGather TensorListGetItem
    TensorListPopBack TensorListStack TensorScatterMax TensorScatterMin TensorScatterUpdate
    TensorStridedSliceUpdate TopK TopKV2 TruncatedNormal Unique UniqueV2 UniqueWithCounts
    UniqueWithCountsV2 UnsortedSegmentMax UnsortedSegmentMin XlaBroadcastHelper XlaConcatND
    XlaDynamicSlice XlaDynamicUpdateSlice XlaGather XlaKeyValueSort XlaPad XlaRecv
    XlaReducePrecision XlaRemoveDynamicDimensionSize XlaSetDynamicDimensionSize XlaSharding XlaSort
    XlaSplitND XlaSpmdFullToShardShape XlaSpmdShardToFullShape
    """.split()  # noqa: SIM905
)


# What is computed in them is written in functions of the user's, in whatever type these have.
OF_FUNCTIONS = frozenset(
    """
    XlaAllReduce XlaCustomCall XlaReduce XlaReduceScatter XlaReduceWindow XlaScatter
    XlaSelectAndScatter XlaVariadicReduce
    """.split()  # noqa: SIM905
)


def returned_halves():
    """The operations of the installed TensorFlow that make halves, or change variables by them."""
    for kernel in kernels.get_all_registered_kernels().kernel:
        definition = op_def_registry.get(kernel.op)
        # Grappler alone makes what begins so, and reference variables are refused.
        if kernel.op[0] == "_" or definition is None:
            continue
        if kernel.device_type not in ("CPU", "XLA_CPU_JIT"):
            continue
        if any(argument.is_ref for argument in definition.input_arg):
            continue
        halves = {c.name for c in kernel.constraint if HALF in c.allowed_values.list.type}
        # Some have kernels for types that the operation itself does not take.
        halves -= {
            one.name
            for one in definition.attr
            if one.allowed_values.list.type and HALF not in one.allowed_values.list.type
        }
        results = any(argument.type_attr in halves for argument in definition.output_arg)
        variables = any(
            argument.type == tf.resource.as_datatype_enum for argument in definition.input_arg
        )
        if results or (variables and halves):
            yield kernel.op


def test_every_operation_that_makes_halves_is_known():
    # XLA registers its kernels when it compiles for the first time.
    tf.function(tf.negative, jit_compile=True)(1.0)
    known = {*COMPUTING, *MOVING, *CHANGES, *TYPES_OF_UPDATES, *EXACT, *OF_FUNCTIONS}
    assert set(returned_halves()) - known == set()


def test_attributes_are_types_of_single_tensors():
    """What is widened has this type, and no result that it has is a list."""
    wrong = []
    for kind, types in COMPUTING.items():
        definition = op_def_registry.get(kind)
        results = [one for one in definition.output_arg if one.type_attr in types]
        is_list = any(one.number_attr or one.type_list_attr for one in results)
        if is_list or not set(types) <= {one.name for one in definition.attr}:
            wrong.append(kind)
    assert wrong == []


@pytest.fixture(scope="module")
def _ipu():
    configured()
    yield
    reset_ipu_configuration()


LARGE = np.float16([[4e4, 5e4, -6e4], [3e4, -4e4, 2.5]])
SMALL = np.float16([[0.1, 0.7, -0.3], [1.5, -2.25, 3.0]])
IMAGE = np.float16(np.linspace(0, 6e4, 12).reshape(1, 2, 2, 3))
SPARSE = np.int64([[0, 0], [0, 2], [1, 1]])

CASES = {
    "ScatterNd": lambda t: raw.ScatterNd(indices=[[1], [1]], updates=t(LARGE), shape=[2, 3]),
    "ScatterNdNonAliasingAdd": lambda t: raw.ScatterNdNonAliasingAdd(
        input=t(LARGE), indices=[[1], [0]], updates=t(LARGE)
    ),
    "SparseSegmentSum": lambda t: raw.SparseSegmentSum(
        data=t(LARGE), indices=[0, 1, 1], segment_ids=[0, 0, 1]
    ),
    "SparseSegmentMean": lambda t: raw.SparseSegmentMean(
        data=t(LARGE), indices=[0, 1, 1], segment_ids=[0, 0, 0]
    ),
    "SparseTensorDenseMatMul": lambda t: raw.SparseTensorDenseMatMul(
        a_indices=SPARSE, a_values=t(LARGE[0]), a_shape=[2, 3], b=t(SMALL.T)
    ),
    "SparseReduceSum": lambda t: raw.SparseReduceSum(
        input_indices=SPARSE, input_values=t(LARGE[0]), input_shape=[2, 3], reduction_axes=[1]
    ),
    "SparseDenseCwiseMul": lambda t: raw.SparseDenseCwiseMul(
        sp_indices=SPARSE, sp_values=t(LARGE[0]), sp_shape=[2, 3], dense=t(LARGE)
    ),
    "SparseTensorDenseAdd": lambda t: raw.SparseTensorDenseAdd(
        a_indices=SPARSE, a_values=t(LARGE[0]), a_shape=[2, 3], b=t(LARGE)
    ),
    "SparseSoftmax": lambda t: raw.SparseSoftmax(
        sp_indices=SPARSE, sp_values=t(SMALL[1]), sp_shape=[2, 3]
    ),
    "Cross": lambda t: raw.Cross(a=t(LARGE), b=t(LARGE[::-1].copy())),
    "CumulativeLogsumexp": lambda t: raw.CumulativeLogsumexp(x=t(SMALL), axis=1),
    "BesselI0e": lambda t: raw.BesselI0e(x=t(SMALL)),
    "Dilation2D": lambda t: raw.Dilation2D(
        input=t(IMAGE),
        filter=t(IMAGE[0]),
        strides=[1] * 4,
        rates=[1] * 4,
        padding="VALID",
    ),
    "MirrorPadGrad": lambda t: raw.MirrorPadGrad(
        input=t(LARGE), paddings=[[0, 0], [0, 1]], mode="SYMMETRIC"
    ),
    "ResizeNearestNeighborGrad": lambda t: raw.ResizeNearestNeighborGrad(
        grads=t(IMAGE), size=[1, 1]
    ),
    "RGBToHSV": lambda t: raw.RGBToHSV(images=t(SMALL)),
    "MatrixInverse": lambda t: raw.MatrixInverse(input=t(SMALL[:, :2])),
    "Cholesky": lambda t: raw.Cholesky(input=t(np.float16([[4, 0.3], [0.3, 0.7]]))),
    "MatrixSolve": lambda t: raw.MatrixSolve(matrix=t(SMALL[:, :2]), rhs=t(SMALL[:, 1:])),
    "LinSpace": lambda t: raw.LinSpace(start=t(np.float16(0.1)), stop=t(np.float16(0.7)), num=9),
    "AdjustContrastv2": lambda t: raw.AdjustContrastv2(
        images=t(IMAGE[0]), contrast_factor=tf.constant(1.5)
    ),
    "MaxPool3D": lambda t: raw.MaxPool3D(
        input=t(IMAGE[None]), ksize=[1, 1, 2, 2, 1], strides=[1] * 5, padding="VALID"
    ),
    "BiasAddV1": lambda t: raw.BiasAddV1(value=t(LARGE), bias=t(LARGE[0])),
}


@pytest.mark.usefixtures("_ipu")
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("in_function", [False, True])
def test_computed_in_float32_and_rounded_once(kind, in_function):
    """By the operation itself in float32: no sum, product or pole is infinite in halves."""
    compute = CASES[kind]
    wide = compute(lambda array: tf.constant(array, tf.float32)).numpy()
    right = np.clip(wide, -65504, 65504).astype(np.float16)
    with tf.device("/device:IPU:0"):
        found = (tf.function(compute) if in_function else compute)(tf.constant)
    assert found.dtype == tf.float16
    np.testing.assert_array_equal(found.numpy(), right)


@pytest.mark.usefixtures("_ipu")
def test_a_range_adds_up_in_float32():
    """The last of 2,048 numbers is exact, where halves would stop at a step that is lost."""
    with tf.device("/device:IPU:0"):
        found = raw.Range(start=half(0), limit=half(205), delta=half(0.1)).numpy()
    right = np.cumsum(np.full(len(found), np.float16(0.1), np.float32)) - np.float32(
        np.float16(0.1)
    )
    np.testing.assert_array_equal(found, right.astype(np.float16))


def half(number):
    return tf.constant(number, tf.float16)
