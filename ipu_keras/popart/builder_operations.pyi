# Written by `python tests/stub_files.py`.
from collections.abc import Sequence
from typing import Any, overload

from ipu_keras.popart.builder import Builder

class AiOnnxOperations:
    def abs(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Abs` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def acos(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Acos` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def acosh(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Acosh` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def add(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Add` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: A, B.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def add(
        self,
        args: Sequence[str],
        axis: int | None = None,
        broadcast: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `Add` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: A, B.
            axis: Integer. Defaults to `None`.
            broadcast: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def argmax(
        self,
        args: Sequence[str],
        axis: int = 0,
        keepdims: int = 1,
        debugContext: Any = '',
    ) -> str:
        """Adds `ArgMax` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            axis: Integer. Defaults to `0`.
            keepdims: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def argmin(
        self,
        args: Sequence[str],
        axis: int = 0,
        keepdims: int = 1,
        debugContext: Any = '',
    ) -> str:
        """Adds `ArgMin` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            axis: Integer. Defaults to `0`.
            keepdims: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def asin(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Asin` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def asinh(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Asinh` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def atan(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Atan` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def atanh(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Atanh` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def averagepool(
        self,
        args: Sequence[str],
        kernel_shape: Sequence[int],
        ceil_mode: int = 0,
        count_include_pad: int = 0,
        pads: Sequence[int] = [],
        strides: Sequence[int] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `AveragePool` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: X.
            kernel_shape: List of integers.
            ceil_mode: Integer. Defaults to `0`.
            count_include_pad: Integer. Defaults to `0`.
            pads: List of integers. Defaults to `[]`.
            strides: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def averagepool(
        self,
        args: Sequence[str],
        kernel_shape: Sequence[int],
        count_include_pad: int = 0,
        pads: Sequence[int] = [],
        strides: Sequence[int] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `AveragePool` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: X.
            kernel_shape: List of integers.
            count_include_pad: Integer. Defaults to `0`.
            pads: List of integers. Defaults to `[]`.
            strides: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def averagepool(
        self,
        args: Sequence[str],
        kernel_shape: Sequence[int],
        pads: Sequence[int] = [],
        strides: Sequence[int] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `AveragePool` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: X.
            kernel_shape: List of integers.
            pads: List of integers. Defaults to `[]`.
            strides: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def batchnormalization(
        self,
        args: Sequence[str],
        num_outputs: int,
        epsilon: float = 9.999999747378752e-06,
        momentum: float = 0.8999999761581421,
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `BatchNormalization` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: X, scale, B, mean, var.
            num_outputs: Number of results, 1..5.
            epsilon: Number. Defaults to `9.999999747378752e-06`.
            momentum: Number. Defaults to `0.8999999761581421`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def batchnormalization(
        self,
        args: Sequence[str],
        num_outputs: int,
        epsilon: float = 9.999999747378752e-06,
        momentum: float = 0.8999999761581421,
        spatial: int = 1,
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `BatchNormalization` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: X, scale, B, mean, var.
            num_outputs: Number of results, 1..5.
            epsilon: Number. Defaults to `9.999999747378752e-06`.
            momentum: Number. Defaults to `0.8999999761581421`.
            spatial: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def batchnormalization(
        self,
        args: Sequence[str],
        num_outputs: int,
        epsilon: float = 9.999999747378752e-06,
        is_test: int = 0,
        momentum: float = 0.8999999761581421,
        spatial: int = 1,
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `BatchNormalization` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: X, scale, B, mean, var.
            num_outputs: Number of results, 1..5.
            epsilon: Number. Defaults to `9.999999747378752e-06`.
            is_test: Integer. Defaults to `0`.
            momentum: Number. Defaults to `0.8999999761581421`.
            spatial: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def bitshift(self, args: Sequence[str], direction: str, debugContext: Any = '') -> str:
        """Adds `BitShift` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: X, Y.
            direction: String.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def cast(self, args: Sequence[str], to: Any, debugContext: Any = '') -> str:
        """Adds `Cast` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: input.
            to: Name of a dtype, such as `'FLOAT16'`, or ONNX's number of it.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def ceil(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Ceil` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def clip(
        self,
        args: Sequence[str],
        max: float = 3.4028234663852886e+38,
        min: float = -3.4028234663852886e+38,
        debugContext: Any = '',
    ) -> str:
        """Adds `Clip` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: input.
            max: Number. Defaults to `3.4028234663852886e+38`.
            min: Number. Defaults to `-3.4028234663852886e+38`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def clip(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Clip` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: input, min (or ''), max (or '').
            debugContext: Name of the operation. Defaults to `''`.
        """

    def compress(
        self,
        args: Sequence[str],
        axis: int | None = None,
        debugContext: Any = '',
    ) -> str:
        """Adds `Compress` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: input, condition.
            axis: Integer. Defaults to `None`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def concat(self, args: Sequence[str], axis: int, debugContext: Any = '') -> str:
        """Adds `Concat` of ai.onnx, as it is since version 4, to the model.

        Args:
            args: List of ids of tensors: inputs....
            axis: Integer.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def concatfromsequence(
        self,
        args: Sequence[str],
        axis: int,
        new_axis: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `ConcatFromSequence` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: input_sequence.
            axis: Integer.
            new_axis: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def constant(self, value: Any, debugContext: Any = '') -> str:
        """Adds `Constant` of ai.onnx, as it is since version 9, to the model.

        Args:
            value: NumPy array.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def constant(self, value: Any, is_value_sparse: Any = False, debugContext: Any = '') -> str:
        """Adds `Constant` of ai.onnx, as it is since version 11, to the model.

        Args:
            value: NumPy array.
            is_value_sparse: Must be `False`. Defaults to `False`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def constantofshape(self, args: Sequence[str], value: Any, debugContext: Any = '') -> str:
        """Adds `ConstantOfShape` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: input.
            value: NumPy array.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def conv(
        self,
        args: Sequence[str],
        dilations: Sequence[int] = [],
        group: int = 1,
        kernel_shape: Sequence[int] = [],
        pads: Sequence[int] = [],
        strides: Sequence[int] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `Conv` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: X, W, B (or '').
            dilations: List of integers. Defaults to `[]`.
            group: Integer. Defaults to `1`.
            kernel_shape: List of integers. Defaults to `[]`.
            pads: List of integers. Defaults to `[]`.
            strides: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def convinteger(
        self,
        args: Sequence[str],
        dilations: Sequence[int] = [],
        group: int = 1,
        kernel_shape: Sequence[int] = [],
        pads: Sequence[int] = [],
        strides: Sequence[int] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `ConvInteger` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: x, w, x_zero_point (or ''), w_zero_point (or '').
            dilations: List of integers. Defaults to `[]`.
            group: Integer. Defaults to `1`.
            kernel_shape: List of integers. Defaults to `[]`.
            pads: List of integers. Defaults to `[]`.
            strides: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def convtranspose(
        self,
        args: Sequence[str],
        dilations: Sequence[int] = [],
        group: int = 1,
        kernel_shape: Sequence[int] = [],
        output_padding: Sequence[int] = [],
        output_shape: Sequence[int] = [],
        pads: Sequence[int] = [],
        strides: Sequence[int] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `ConvTranspose` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: X, W, B (or '').
            dilations: List of integers. Defaults to `[]`.
            group: Integer. Defaults to `1`.
            kernel_shape: List of integers. Defaults to `[]`.
            output_padding: List of integers. Defaults to `[]`.
            output_shape: List of integers. Defaults to `[]`.
            pads: List of integers. Defaults to `[]`.
            strides: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def cos(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Cos` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def cosh(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Cosh` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def cumsum(
        self,
        args: Sequence[str],
        exclusive: int = 0,
        reverse: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `CumSum` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: x, axis.
            exclusive: Integer. Defaults to `0`.
            reverse: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def depthtospace(self, args: Sequence[str], blocksize: int, debugContext: Any = '') -> str:
        """Adds `DepthToSpace` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: input.
            blocksize: Integer.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def depthtospace(
        self,
        args: Sequence[str],
        blocksize: int,
        mode: str = 'DCR',
        debugContext: Any = '',
    ) -> str:
        """Adds `DepthToSpace` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: input.
            blocksize: Integer.
            mode: String. Defaults to `'DCR'`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def dequantizelinear(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `DequantizeLinear` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: x, x_scale, x_zero_point (or '').
            debugContext: Name of the operation. Defaults to `''`.
        """

    def det(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Det` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def div(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Div` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: A, B.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def div(
        self,
        args: Sequence[str],
        axis: int | None = None,
        broadcast: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `Div` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: A, B.
            axis: Integer. Defaults to `None`.
            broadcast: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def dropout(
        self,
        args: Sequence[str],
        num_outputs: int,
        ratio: float = 0.5,
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `Dropout` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: data.
            num_outputs: Number of results, 1..2.
            ratio: Number. Defaults to `0.5`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def dropout(
        self,
        args: Sequence[str],
        num_outputs: int,
        is_test: int = 0,
        ratio: float = 0.5,
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `Dropout` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: data.
            num_outputs: Number of results, 1..2.
            is_test: Integer. Defaults to `0`.
            ratio: Number. Defaults to `0.5`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def dynamicquantizelinear(self, args: Sequence[str], debugContext: Any = '') -> list[str]:
        """Adds `DynamicQuantizeLinear` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: x.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def elu(self, args: Sequence[str], alpha: float = 1.0, debugContext: Any = '') -> str:
        """Adds `Elu` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: X.
            alpha: Number. Defaults to `1.0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def equal(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Equal` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: A, B.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def equal(
        self,
        args: Sequence[str],
        axis: int | None = None,
        broadcast: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `Equal` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: A, B.
            axis: Integer. Defaults to `None`.
            broadcast: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def erf(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Erf` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def exp(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Exp` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def expand(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Expand` of ai.onnx, as it is since version 8, to the model.

        Args:
            args: List of ids of tensors: input, shape.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def eyelike(
        self,
        args: Sequence[str],
        dtype: int | None = None,
        k: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `EyeLike` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: input.
            dtype: Integer. Defaults to `None`.
            k: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def flatten(self, args: Sequence[str], axis: int = 1, debugContext: Any = '') -> str:
        """Adds `Flatten` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: input.
            axis: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def floor(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Floor` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def gather(self, args: Sequence[str], axis: int = 0, debugContext: Any = '') -> str:
        """Adds `Gather` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data, indices.
            axis: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def gatherelements(self, args: Sequence[str], axis: int = 0, debugContext: Any = '') -> str:
        """Adds `GatherElements` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: data, indices.
            axis: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def gathernd(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `GatherND` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: data, indices.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def gemm(
        self,
        args: Sequence[str],
        alpha: float = 1.0,
        beta: float = 1.0,
        transA: int = 0,
        transB: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `Gemm` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: A, B, C.
            alpha: Number. Defaults to `1.0`.
            beta: Number. Defaults to `1.0`.
            transA: Integer. Defaults to `0`.
            transB: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def gemm(
        self,
        args: Sequence[str],
        alpha: float = 1.0,
        beta: float = 1.0,
        broadcast: int = 0,
        transA: int = 0,
        transB: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `Gemm` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: A, B, C.
            alpha: Number. Defaults to `1.0`.
            beta: Number. Defaults to `1.0`.
            broadcast: Integer. Defaults to `0`.
            transA: Integer. Defaults to `0`.
            transB: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def globalaveragepool(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `GlobalAveragePool` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def globallppool(self, args: Sequence[str], p: int = 2, debugContext: Any = '') -> str:
        """Adds `GlobalLpPool` of ai.onnx, as it is since version 2, to the model.

        Args:
            args: List of ids of tensors: X.
            p: Integer. Defaults to `2`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def globalmaxpool(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `GlobalMaxPool` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def greater(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Greater` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: A, B.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def greater(
        self,
        args: Sequence[str],
        axis: int | None = None,
        broadcast: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `Greater` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: A, B.
            axis: Integer. Defaults to `None`.
            broadcast: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def gru(
        self,
        args: Sequence[str],
        num_outputs: int,
        activation_alpha: Sequence[float] = [],
        activation_beta: Sequence[float] = [],
        activations: Sequence[str] = [],
        clip: float | None = None,
        direction: str = 'forward',
        hidden_size: int | None = None,
        linear_before_reset: int = 0,
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `GRU` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: X, W, R, B (or ''), sequence_lens (or ''), initial_h (or '').
            num_outputs: Number of results, 0..2.
            activation_alpha: List of numbers. Defaults to `[]`.
            activation_beta: List of numbers. Defaults to `[]`.
            activations: List of strings. Defaults to `[]`.
            clip: Number. Defaults to `None`.
            direction: String. Defaults to `'forward'`.
            hidden_size: Integer. Defaults to `None`.
            linear_before_reset: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def gru(
        self,
        args: Sequence[str],
        num_outputs: int,
        activation_alpha: Sequence[float] = [],
        activation_beta: Sequence[float] = [],
        activations: Sequence[str] = [],
        clip: float | None = None,
        direction: str = 'forward',
        hidden_size: int | None = None,
        linear_before_reset: int = 0,
        output_sequence: int = 0,
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `GRU` of ai.onnx, as it is since version 3, to the model.

        Args:
            args: List of ids of tensors: X, W, R, B (or ''), sequence_lens (or ''), initial_h (or '').
            num_outputs: Number of results, 0..2.
            activation_alpha: List of numbers. Defaults to `[]`.
            activation_beta: List of numbers. Defaults to `[]`.
            activations: List of strings. Defaults to `[]`.
            clip: Number. Defaults to `None`.
            direction: String. Defaults to `'forward'`.
            hidden_size: Integer. Defaults to `None`.
            linear_before_reset: Integer. Defaults to `0`.
            output_sequence: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def hardmax(self, args: Sequence[str], axis: int = 1, debugContext: Any = '') -> str:
        """Adds `Hardmax` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: input.
            axis: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def hardsigmoid(
        self,
        args: Sequence[str],
        alpha: float = 0.20000000298023224,
        beta: float = 0.5,
        debugContext: Any = '',
    ) -> str:
        """Adds `HardSigmoid` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: X.
            alpha: Number. Defaults to `0.20000000298023224`.
            beta: Number. Defaults to `0.5`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def identity(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Identity` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def instancenormalization(
        self,
        args: Sequence[str],
        epsilon: float = 9.999999747378752e-06,
        debugContext: Any = '',
    ) -> str:
        """Adds `InstanceNormalization` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: input, scale, B.
            epsilon: Number. Defaults to `9.999999747378752e-06`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def isinf(
        self,
        args: Sequence[str],
        detect_negative: int = 1,
        detect_positive: int = 1,
        debugContext: Any = '',
    ) -> str:
        """Adds `IsInf` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: X.
            detect_negative: Integer. Defaults to `1`.
            detect_positive: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def isnan(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `IsNaN` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def leakyrelu(
        self,
        args: Sequence[str],
        alpha: float = 0.009999999776482582,
        debugContext: Any = '',
    ) -> str:
        """Adds `LeakyRelu` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: X.
            alpha: Number. Defaults to `0.009999999776482582`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def less(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Less` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: A, B.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def less(
        self,
        args: Sequence[str],
        axis: int | None = None,
        broadcast: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `Less` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: A, B.
            axis: Integer. Defaults to `None`.
            broadcast: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def log(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Log` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def logical_and(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `And` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: A, B.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def logical_and(
        self,
        args: Sequence[str],
        axis: int | None = None,
        broadcast: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `And` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: A, B.
            axis: Integer. Defaults to `None`.
            broadcast: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def logical_not(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Not` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def logical_or(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Or` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: A, B.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def logical_or(
        self,
        args: Sequence[str],
        axis: int | None = None,
        broadcast: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `Or` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: A, B.
            axis: Integer. Defaults to `None`.
            broadcast: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def logical_xor(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Xor` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: A, B.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def logical_xor(
        self,
        args: Sequence[str],
        axis: int | None = None,
        broadcast: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `Xor` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: A, B.
            axis: Integer. Defaults to `None`.
            broadcast: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def logsoftmax(self, args: Sequence[str], axis: int = 1, debugContext: Any = '') -> str:
        """Adds `LogSoftmax` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: input.
            axis: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def lpnormalization(
        self,
        args: Sequence[str],
        axis: int = -1,
        p: int = 2,
        debugContext: Any = '',
    ) -> str:
        """Adds `LpNormalization` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: input.
            axis: Integer. Defaults to `-1`.
            p: Integer. Defaults to `2`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def lppool(
        self,
        args: Sequence[str],
        kernel_shape: Sequence[int],
        p: int = 2,
        pads: Sequence[int] = [],
        strides: Sequence[int] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `LpPool` of ai.onnx, as it is since version 2, to the model.

        Args:
            args: List of ids of tensors: X.
            kernel_shape: List of integers.
            p: Integer. Defaults to `2`.
            pads: List of integers. Defaults to `[]`.
            strides: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def lrn(
        self,
        args: Sequence[str],
        size: int,
        alpha: float = 9.999999747378752e-05,
        beta: float = 0.75,
        bias: float = 1.0,
        debugContext: Any = '',
    ) -> str:
        """Adds `LRN` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: X.
            size: Integer.
            alpha: Number. Defaults to `9.999999747378752e-05`.
            beta: Number. Defaults to `0.75`.
            bias: Number. Defaults to `1.0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def lstm(
        self,
        args: Sequence[str],
        num_outputs: int,
        activation_alpha: Sequence[float] = [],
        activation_beta: Sequence[float] = [],
        activations: Sequence[str] = [],
        clip: float | None = None,
        direction: str = 'forward',
        hidden_size: int | None = None,
        input_forget: int = 0,
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `LSTM` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: X, W, R, B (or ''), sequence_lens (or ''), initial_h (or ''), initial_c (or ''), P (or '').
            num_outputs: Number of results, 0..3.
            activation_alpha: List of numbers. Defaults to `[]`.
            activation_beta: List of numbers. Defaults to `[]`.
            activations: List of strings. Defaults to `[]`.
            clip: Number. Defaults to `None`.
            direction: String. Defaults to `'forward'`.
            hidden_size: Integer. Defaults to `None`.
            input_forget: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def lstm(
        self,
        args: Sequence[str],
        num_outputs: int,
        activation_alpha: Sequence[float] = [],
        activation_beta: Sequence[float] = [],
        activations: Sequence[str] = [],
        clip: float | None = None,
        direction: str = 'forward',
        hidden_size: int | None = None,
        input_forget: int = 0,
        output_sequence: int = 0,
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `LSTM` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: X, W, R, B (or ''), sequence_lens (or ''), initial_h (or ''), initial_c (or ''), P (or '').
            num_outputs: Number of results, 0..3.
            activation_alpha: List of numbers. Defaults to `[]`.
            activation_beta: List of numbers. Defaults to `[]`.
            activations: List of strings. Defaults to `[]`.
            clip: Number. Defaults to `None`.
            direction: String. Defaults to `'forward'`.
            hidden_size: Integer. Defaults to `None`.
            input_forget: Integer. Defaults to `0`.
            output_sequence: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def matmul(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `MatMul` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: A, B.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def matmulinteger(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `MatMulInteger` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: A, B, a_zero_point (or ''), b_zero_point (or '').
            debugContext: Name of the operation. Defaults to `''`.
        """

    def max(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Max` of ai.onnx, as it is since version 8, to the model.

        Args:
            args: List of ids of tensors: data_0....
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def maxpool(
        self,
        args: Sequence[str],
        num_outputs: int,
        kernel_shape: Sequence[int],
        ceil_mode: int = 0,
        dilations: Sequence[int] = [],
        pads: Sequence[int] = [],
        storage_order: int = 0,
        strides: Sequence[int] = [],
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `MaxPool` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: X.
            num_outputs: Number of results, 1..2.
            kernel_shape: List of integers.
            ceil_mode: Integer. Defaults to `0`.
            dilations: List of integers. Defaults to `[]`.
            pads: List of integers. Defaults to `[]`.
            storage_order: Integer. Defaults to `0`.
            strides: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def maxpool(
        self,
        args: Sequence[str],
        num_outputs: int,
        kernel_shape: Sequence[int],
        pads: Sequence[int] = [],
        storage_order: int = 0,
        strides: Sequence[int] = [],
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `MaxPool` of ai.onnx, as it is since version 8, to the model.

        Args:
            args: List of ids of tensors: X.
            num_outputs: Number of results, 1..2.
            kernel_shape: List of integers.
            pads: List of integers. Defaults to `[]`.
            storage_order: Integer. Defaults to `0`.
            strides: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def maxpool(
        self,
        args: Sequence[str],
        kernel_shape: Sequence[int],
        pads: Sequence[int] = [],
        strides: Sequence[int] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `MaxPool` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: X.
            kernel_shape: List of integers.
            pads: List of integers. Defaults to `[]`.
            strides: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def maxroipool(
        self,
        args: Sequence[str],
        pooled_shape: Sequence[int],
        spatial_scale: float = 1.0,
        debugContext: Any = '',
    ) -> str:
        """Adds `MaxRoiPool` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: X, rois.
            pooled_shape: List of integers.
            spatial_scale: Number. Defaults to `1.0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def maxunpool(
        self,
        args: Sequence[str],
        kernel_shape: Sequence[int],
        pads: Sequence[int] = [],
        strides: Sequence[int] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `MaxUnpool` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: X, I, output_shape (or '').
            kernel_shape: List of integers.
            pads: List of integers. Defaults to `[]`.
            strides: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def mean(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Mean` of ai.onnx, as it is since version 8, to the model.

        Args:
            args: List of ids of tensors: data_0....
            debugContext: Name of the operation. Defaults to `''`.
        """

    def meanvariancenormalization(
        self,
        args: Sequence[str],
        axes: Sequence[int] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `MeanVarianceNormalization` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: X.
            axes: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def min(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Min` of ai.onnx, as it is since version 8, to the model.

        Args:
            args: List of ids of tensors: data_0....
            debugContext: Name of the operation. Defaults to `''`.
        """

    def mod(self, args: Sequence[str], fmod: int = 0, debugContext: Any = '') -> str:
        """Adds `Mod` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: A, B.
            fmod: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def mul(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Mul` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: A, B.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def mul(
        self,
        args: Sequence[str],
        axis: int | None = None,
        broadcast: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `Mul` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: A, B.
            axis: Integer. Defaults to `None`.
            broadcast: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def multinomial(
        self,
        args: Sequence[str],
        dtype: int = 6,
        sample_size: int = 1,
        seed: float | None = None,
        debugContext: Any = '',
    ) -> str:
        """Adds `Multinomial` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: input.
            dtype: Integer. Defaults to `6`.
            sample_size: Integer. Defaults to `1`.
            seed: Number. Defaults to `None`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def neg(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Neg` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def nonmaxsuppression(
        self,
        args: Sequence[str],
        center_point_box: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `NonMaxSuppression` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: boxes, scores, max_output_boxes_per_class (or ''), iou_threshold (or ''), score_threshold (or '').
            center_point_box: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def nonzero(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `NonZero` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def onehot(self, args: Sequence[str], axis: int = -1, debugContext: Any = '') -> str:
        """Adds `OneHot` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: indices, depth, values.
            axis: Integer. Defaults to `-1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def pad(
        self,
        args: Sequence[str],
        pads: Sequence[int],
        mode: str = 'constant',
        value: float = 0.0,
        debugContext: Any = '',
    ) -> str:
        """Adds `Pad` of ai.onnx, as it is since version 2, to the model.

        Args:
            args: List of ids of tensors: data.
            pads: List of integers.
            mode: String. Defaults to `'constant'`.
            value: Number. Defaults to `0.0`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def pad(self, args: Sequence[str], mode: str = 'constant', debugContext: Any = '') -> str:
        """Adds `Pad` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: data, pads, constant_value (or '').
            mode: String. Defaults to `'constant'`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def pow(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Pow` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: X, Y.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def pow(
        self,
        args: Sequence[str],
        axis: int | None = None,
        broadcast: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `Pow` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: X, Y.
            axis: Integer. Defaults to `None`.
            broadcast: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def prelu(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `PRelu` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: X, slope.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def qlinearconv(
        self,
        args: Sequence[str],
        dilations: Sequence[int] = [],
        group: int = 1,
        kernel_shape: Sequence[int] = [],
        pads: Sequence[int] = [],
        strides: Sequence[int] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `QLinearConv` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B (or '').
            dilations: List of integers. Defaults to `[]`.
            group: Integer. Defaults to `1`.
            kernel_shape: List of integers. Defaults to `[]`.
            pads: List of integers. Defaults to `[]`.
            strides: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def qlinearmatmul(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `QLinearMatMul` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def quantizelinear(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `QuantizeLinear` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: x, y_scale, y_zero_point (or '').
            debugContext: Name of the operation. Defaults to `''`.
        """

    def randomnormal(
        self,
        shape: Sequence[int],
        dtype: int = 1,
        mean: float = 0.0,
        scale: float = 1.0,
        seed: float | None = None,
        debugContext: Any = '',
    ) -> str:
        """Adds `RandomNormal` of ai.onnx, as it is since version 1, to the model.

        Args:
            shape: List of integers.
            dtype: Integer. Defaults to `1`.
            mean: Number. Defaults to `0.0`.
            scale: Number. Defaults to `1.0`.
            seed: Number. Defaults to `None`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def randomnormallike(
        self,
        args: Sequence[str],
        dtype: int | None = None,
        mean: float = 0.0,
        scale: float = 1.0,
        seed: float | None = None,
        debugContext: Any = '',
    ) -> str:
        """Adds `RandomNormalLike` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: input.
            dtype: Integer. Defaults to `None`.
            mean: Number. Defaults to `0.0`.
            scale: Number. Defaults to `1.0`.
            seed: Number. Defaults to `None`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def randomuniform(
        self,
        shape: Sequence[int],
        dtype: int = 1,
        high: float = 1.0,
        low: float = 0.0,
        seed: float | None = None,
        debugContext: Any = '',
    ) -> str:
        """Adds `RandomUniform` of ai.onnx, as it is since version 1, to the model.

        Args:
            shape: List of integers.
            dtype: Integer. Defaults to `1`.
            high: Number. Defaults to `1.0`.
            low: Number. Defaults to `0.0`.
            seed: Number. Defaults to `None`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def randomuniformlike(
        self,
        args: Sequence[str],
        dtype: int | None = None,
        high: float = 1.0,
        low: float = 0.0,
        seed: float | None = None,
        debugContext: Any = '',
    ) -> str:
        """Adds `RandomUniformLike` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: input.
            dtype: Integer. Defaults to `None`.
            high: Number. Defaults to `1.0`.
            low: Number. Defaults to `0.0`.
            seed: Number. Defaults to `None`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def range(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Range` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: start, limit, delta.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def reciprocal(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Reciprocal` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def reducel1(
        self,
        args: Sequence[str],
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        debugContext: Any = '',
    ) -> str:
        """Adds `ReduceL1` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            axes: List of integers. Defaults to `None`.
            keepdims: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def reducel2(
        self,
        args: Sequence[str],
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        debugContext: Any = '',
    ) -> str:
        """Adds `ReduceL2` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            axes: List of integers. Defaults to `None`.
            keepdims: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def reducelogsum(
        self,
        args: Sequence[str],
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        debugContext: Any = '',
    ) -> str:
        """Adds `ReduceLogSum` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            axes: List of integers. Defaults to `None`.
            keepdims: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def reducelogsumexp(
        self,
        args: Sequence[str],
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        debugContext: Any = '',
    ) -> str:
        """Adds `ReduceLogSumExp` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            axes: List of integers. Defaults to `None`.
            keepdims: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def reducemax(
        self,
        args: Sequence[str],
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        debugContext: Any = '',
    ) -> str:
        """Adds `ReduceMax` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            axes: List of integers. Defaults to `None`.
            keepdims: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def reducemean(
        self,
        args: Sequence[str],
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        debugContext: Any = '',
    ) -> str:
        """Adds `ReduceMean` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            axes: List of integers. Defaults to `None`.
            keepdims: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def reducemin(
        self,
        args: Sequence[str],
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        debugContext: Any = '',
    ) -> str:
        """Adds `ReduceMin` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            axes: List of integers. Defaults to `None`.
            keepdims: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def reduceprod(
        self,
        args: Sequence[str],
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        debugContext: Any = '',
    ) -> str:
        """Adds `ReduceProd` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            axes: List of integers. Defaults to `None`.
            keepdims: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def reducesum(
        self,
        args: Sequence[str],
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        debugContext: Any = '',
    ) -> str:
        """Adds `ReduceSum` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            axes: List of integers. Defaults to `None`.
            keepdims: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def reducesumsquare(
        self,
        args: Sequence[str],
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        debugContext: Any = '',
    ) -> str:
        """Adds `ReduceSumSquare` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            axes: List of integers. Defaults to `None`.
            keepdims: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def relu(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Relu` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def reshape(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Reshape` of ai.onnx, as it is since version 5, to the model.

        Args:
            args: List of ids of tensors: data, shape.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def resize(self, args: Sequence[str], mode: str = 'nearest', debugContext: Any = '') -> str:
        """Adds `Resize` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: X, scales.
            mode: String. Defaults to `'nearest'`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def resize(
        self,
        args: Sequence[str],
        coordinate_transformation_mode: str = 'half_pixel',
        cubic_coeff_a: float = -0.75,
        exclude_outside: int = 0,
        extrapolation_value: float = 0.0,
        mode: str = 'nearest',
        nearest_mode: str = 'round_prefer_floor',
        debugContext: Any = '',
    ) -> str:
        """Adds `Resize` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: X, roi, scales, sizes (or '').
            coordinate_transformation_mode: String. Defaults to `'half_pixel'`.
            cubic_coeff_a: Number. Defaults to `-0.75`.
            exclude_outside: Integer. Defaults to `0`.
            extrapolation_value: Number. Defaults to `0.0`.
            mode: String. Defaults to `'nearest'`.
            nearest_mode: String. Defaults to `'round_prefer_floor'`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def reversesequence(
        self,
        args: Sequence[str],
        batch_axis: int = 1,
        time_axis: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `ReverseSequence` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: input, sequence_lens.
            batch_axis: Integer. Defaults to `1`.
            time_axis: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def rnn(
        self,
        args: Sequence[str],
        num_outputs: int,
        activation_alpha: Sequence[float] = [],
        activation_beta: Sequence[float] = [],
        activations: Sequence[str] = [],
        clip: float | None = None,
        direction: str = 'forward',
        hidden_size: int | None = None,
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `RNN` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: X, W, R, B (or ''), sequence_lens (or ''), initial_h (or '').
            num_outputs: Number of results, 0..2.
            activation_alpha: List of numbers. Defaults to `[]`.
            activation_beta: List of numbers. Defaults to `[]`.
            activations: List of strings. Defaults to `[]`.
            clip: Number. Defaults to `None`.
            direction: String. Defaults to `'forward'`.
            hidden_size: Integer. Defaults to `None`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def rnn(
        self,
        args: Sequence[str],
        num_outputs: int,
        activation_alpha: Sequence[float] = [],
        activation_beta: Sequence[float] = [],
        activations: Sequence[str] = [],
        clip: float | None = None,
        direction: str = 'forward',
        hidden_size: int | None = None,
        output_sequence: int = 0,
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `RNN` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: X, W, R, B (or ''), sequence_lens (or ''), initial_h (or '').
            num_outputs: Number of results, 0..2.
            activation_alpha: List of numbers. Defaults to `[]`.
            activation_beta: List of numbers. Defaults to `[]`.
            activations: List of strings. Defaults to `[]`.
            clip: Number. Defaults to `None`.
            direction: String. Defaults to `'forward'`.
            hidden_size: Integer. Defaults to `None`.
            output_sequence: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def roialign(
        self,
        args: Sequence[str],
        mode: str = 'avg',
        output_height: int = 1,
        output_width: int = 1,
        sampling_ratio: int = 0,
        spatial_scale: float = 1.0,
        debugContext: Any = '',
    ) -> str:
        """Adds `RoiAlign` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: X, rois, batch_indices.
            mode: String. Defaults to `'avg'`.
            output_height: Integer. Defaults to `1`.
            output_width: Integer. Defaults to `1`.
            sampling_ratio: Integer. Defaults to `0`.
            spatial_scale: Number. Defaults to `1.0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def round(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Round` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def scan(
        self,
        args: Sequence[str],
        num_outputs: int,
        body: Any,
        num_scan_inputs: int,
        scan_input_axes: Sequence[int] = [],
        scan_input_directions: Sequence[int] = [],
        scan_output_axes: Sequence[int] = [],
        scan_output_directions: Sequence[int] = [],
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `Scan` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: initial_state_and_scan_inputs....
            num_outputs: Number of results, 1..any number.
            body: Builder of the graph.
            num_scan_inputs: Integer.
            scan_input_axes: List of integers. Defaults to `[]`.
            scan_input_directions: List of integers. Defaults to `[]`.
            scan_output_axes: List of integers. Defaults to `[]`.
            scan_output_directions: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def scan(
        self,
        args: Sequence[str],
        num_outputs: int,
        body: Any,
        num_scan_inputs: int,
        directions: Sequence[int] = [],
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `Scan` of ai.onnx, as it is since version 8, to the model.

        Args:
            args: List of ids of tensors: sequence_lens (or ''), initial_state_and_scan_inputs....
            num_outputs: Number of results, 1..any number.
            body: Builder of the graph.
            num_scan_inputs: Integer.
            directions: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def scatter(self, args: Sequence[str], axis: int = 0, debugContext: Any = '') -> str:
        """Adds `Scatter` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: data, indices, updates.
            axis: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def scatterelements(self, args: Sequence[str], axis: int = 0, debugContext: Any = '') -> str:
        """Adds `ScatterElements` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: data, indices, updates.
            axis: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def scatternd(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `ScatterND` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: data, indices, updates.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def selu(
        self,
        args: Sequence[str],
        alpha: float = 1.6732631921768188,
        gamma: float = 1.0507010221481323,
        debugContext: Any = '',
    ) -> str:
        """Adds `Selu` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: X.
            alpha: Number. Defaults to `1.6732631921768188`.
            gamma: Number. Defaults to `1.0507010221481323`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def sequenceat(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `SequenceAt` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: input_sequence, position.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def sequenceconstruct(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `SequenceConstruct` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: inputs....
            debugContext: Name of the operation. Defaults to `''`.
        """

    def sequenceempty(self, dtype: int | None = None, debugContext: Any = '') -> str:
        """Adds `SequenceEmpty` of ai.onnx, as it is since version 11, to the model.

        Args:
            dtype: Integer. Defaults to `None`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def sequenceerase(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `SequenceErase` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: input_sequence, position (or '').
            debugContext: Name of the operation. Defaults to `''`.
        """

    def sequenceinsert(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `SequenceInsert` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: input_sequence, tensor, position (or '').
            debugContext: Name of the operation. Defaults to `''`.
        """

    def sequencelength(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `SequenceLength` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: input_sequence.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def shape(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Shape` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def shrink(
        self,
        args: Sequence[str],
        bias: float = 0.0,
        lambd: float = 0.5,
        debugContext: Any = '',
    ) -> str:
        """Adds `Shrink` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: input.
            bias: Number. Defaults to `0.0`.
            lambd: Number. Defaults to `0.5`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def sigmoid(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Sigmoid` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def sign(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Sign` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def sin(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Sin` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def sinh(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Sinh` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def size(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Size` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def slice(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Slice` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: data, starts, ends, axes (or ''), steps (or '').
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def slice(
        self,
        args: Sequence[str],
        ends: Sequence[int],
        starts: Sequence[int],
        axes: Sequence[int] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `Slice` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            ends: List of integers.
            starts: List of integers.
            axes: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def softmax(self, args: Sequence[str], axis: int = 1, debugContext: Any = '') -> str:
        """Adds `Softmax` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: input.
            axis: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def softplus(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Softplus` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def softsign(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Softsign` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def spacetodepth(self, args: Sequence[str], blocksize: int, debugContext: Any = '') -> str:
        """Adds `SpaceToDepth` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: input.
            blocksize: Integer.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def split(
        self,
        args: Sequence[str],
        num_outputs: int,
        axis: int = 0,
        split: Sequence[int] = [],
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `Split` of ai.onnx, as it is since version 2, to the model.

        Args:
            args: List of ids of tensors: input.
            num_outputs: Number of results, 1..any number.
            axis: Integer. Defaults to `0`.
            split: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def splittosequence(
        self,
        args: Sequence[str],
        axis: int = 0,
        keepdims: int = 1,
        debugContext: Any = '',
    ) -> str:
        """Adds `SplitToSequence` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: input, split (or '').
            axis: Integer. Defaults to `0`.
            keepdims: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def sqrt(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Sqrt` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: X.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def squeeze(
        self,
        args: Sequence[str],
        axes: Sequence[int] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `Squeeze` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            axes: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def stringnormalizer(
        self,
        args: Sequence[str],
        case_change_action: str = 'NONE',
        is_case_sensitive: int = 0,
        locale: str = '',
        stopwords: Sequence[str] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `StringNormalizer` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: X.
            case_change_action: String. Defaults to `'NONE'`.
            is_case_sensitive: Integer. Defaults to `0`.
            locale: String. Defaults to `''`.
            stopwords: List of strings. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def sub(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Sub` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: A, B.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def sub(
        self,
        args: Sequence[str],
        axis: int | None = None,
        broadcast: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `Sub` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: A, B.
            axis: Integer. Defaults to `None`.
            broadcast: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def sum(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Sum` of ai.onnx, as it is since version 8, to the model.

        Args:
            args: List of ids of tensors: data_0....
            debugContext: Name of the operation. Defaults to `''`.
        """

    def tan(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Tan` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def tanh(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Tanh` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: input.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def tfidfvectorizer(
        self,
        args: Sequence[str],
        max_gram_length: int,
        max_skip_count: int,
        min_gram_length: int,
        mode: str,
        ngram_counts: Sequence[int],
        ngram_indexes: Sequence[int],
        pool_int64s: Sequence[int] = [],
        pool_strings: Sequence[str] = [],
        weights: Sequence[float] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `TfIdfVectorizer` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: X.
            max_gram_length: Integer.
            max_skip_count: Integer.
            min_gram_length: Integer.
            mode: String.
            ngram_counts: List of integers.
            ngram_indexes: List of integers.
            pool_int64s: List of integers. Defaults to `[]`.
            pool_strings: List of strings. Defaults to `[]`.
            weights: List of numbers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def thresholdedrelu(
        self,
        args: Sequence[str],
        alpha: float = 1.0,
        debugContext: Any = '',
    ) -> str:
        """Adds `ThresholdedRelu` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: X.
            alpha: Number. Defaults to `1.0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def tile(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Tile` of ai.onnx, as it is since version 6, to the model.

        Args:
            args: List of ids of tensors: input, repeats.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def topk(self, args: Sequence[str], axis: int = -1, debugContext: Any = '') -> list[str]:
        """Adds `TopK` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: X, K.
            axis: Integer. Defaults to `-1`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def topk(
        self,
        args: Sequence[str],
        axis: int = -1,
        largest: int = 1,
        sorted: int = 1,
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `TopK` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: X, K.
            axis: Integer. Defaults to `-1`.
            largest: Integer. Defaults to `1`.
            sorted: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def topk(
        self,
        args: Sequence[str],
        k: int,
        axis: int = -1,
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `TopK` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: X.
            k: Integer.
            axis: Integer. Defaults to `-1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def transpose(
        self,
        args: Sequence[str],
        perm: Sequence[int] = [],
        debugContext: Any = '',
    ) -> str:
        """Adds `Transpose` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            perm: List of integers. Defaults to `[]`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def unique(
        self,
        args: Sequence[str],
        num_outputs: int,
        axis: int | None = None,
        sorted: int = 1,
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `Unique` of ai.onnx, as it is since version 11, to the model.

        Args:
            args: List of ids of tensors: X.
            num_outputs: Number of results, 1..4.
            axis: Integer. Defaults to `None`.
            sorted: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def unsqueeze(self, args: Sequence[str], axes: Sequence[int], debugContext: Any = '') -> str:
        """Adds `Unsqueeze` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: data.
            axes: List of integers.
            debugContext: Name of the operation. Defaults to `''`.
        """

    @overload
    def upsample(self, args: Sequence[str], mode: str = 'nearest', debugContext: Any = '') -> str:
        """Adds `Upsample` of ai.onnx, as it is since version 10, to the model.

        Args:
            args: List of ids of tensors: X, scales.
            mode: String. Defaults to `'nearest'`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def upsample(
        self,
        args: Sequence[str],
        scales: Sequence[float],
        mode: str = 'nearest',
        debugContext: Any = '',
    ) -> str:
        """Adds `Upsample` of ai.onnx, as it is since version 7, to the model.

        Args:
            args: List of ids of tensors: X.
            scales: List of numbers.
            mode: String. Defaults to `'nearest'`.
            debugContext: Name of the operation. Defaults to `''`.
        """
    @overload
    def upsample(
        self,
        args: Sequence[str],
        height_scale: float,
        width_scale: float,
        mode: str = 'nearest',
        debugContext: Any = '',
    ) -> str:
        """Adds `Upsample` of ai.onnx, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: X.
            height_scale: Number.
            width_scale: Number.
            mode: String. Defaults to `'nearest'`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def where(self, args: Sequence[str], debugContext: Any = '') -> str:
        """Adds `Where` of ai.onnx, as it is since version 9, to the model.

        Args:
            args: List of ids of tensors: condition, X, Y.
            debugContext: Name of the operation. Defaults to `''`.
        """

class AiGraphcoreOperations:
    def abort(
        self,
        args: Sequence[str] = [],
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> list[str]:
        """Adds `Abort` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def atan2(self, args: Sequence[str], debugContext: Any = '', *, debugPrefix: Any = '') -> str:
        """Adds `Atan2` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: y, x.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def bitwiseand(self, args: Sequence[str] = [], debugContext: Any = '') -> str:
        """Adds `BitwiseAnd` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def bitwisenot(self, args: Sequence[str] = [], debugContext: Any = '') -> str:
        """Adds `BitwiseNot` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def bitwiseor(self, args: Sequence[str] = [], debugContext: Any = '') -> str:
        """Adds `BitwiseOr` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def bitwisexnor(self, args: Sequence[str] = [], debugContext: Any = '') -> str:
        """Adds `BitwiseXnor` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def bitwisexor(self, args: Sequence[str] = [], debugContext: Any = '') -> str:
        """Adds `BitwiseXor` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def ctcbeamsearchdecoder(
        self,
        args: Sequence[str],
        blank: int = 0,
        beam_width: int = 100,
        top_paths: int = 1,
        debug_context: Any = '',
    ) -> list[str]:
        """Adds `CtcBeamSearchDecoder` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: log_probs, lengths.
            blank: Integer. Defaults to `0`.
            beam_width: Integer. Defaults to `100`.
            top_paths: Integer. Defaults to `1`.
            debug_context: Name of the operation. Defaults to `''`.
        """

    def ctcloss(
        self,
        args: Sequence[str],
        reduction: Any = ...,
        blank: int = 0,
        outDataType: Any = 'UNDEFINED',
        debugContext: Any = '',
    ) -> str:
        """Adds `Ctc` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: log_probs, targets, input_lengths, target_lengths.
            reduction: A `ReductionType`. Defaults to `<ReductionType.Mean: 1>`.
            blank: Integer. Defaults to `0`.
            outDataType: String. Defaults to `'UNDEFINED'`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def depthtospace(
        self,
        args: Sequence[str],
        blocksize: int,
        mode: str,
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `DepthToSpace` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            blocksize: Integer.
            mode: String.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def detach(self, args: Sequence[str], debugContext: Any = '', *, debugPrefix: Any = '') -> str:
        """Adds `Detach` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def dynamicadd(
        self,
        args: Sequence[str],
        axes: Sequence[int],
        sizes: Sequence[int],
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `DynamicAdd` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: tensor, offset, slice.
            axes: List of integers.
            sizes: List of integers.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def dynamicslice(
        self,
        args: Sequence[str],
        axes: Sequence[int],
        sizes: Sequence[int],
        noOverlap: int = 0,
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `DynamicSlice` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: tensor, offset.
            axes: List of integers.
            sizes: List of integers.
            noOverlap: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def dynamicupdate(
        self,
        args: Sequence[str],
        axes: Sequence[int],
        sizes: Sequence[int],
        noOverlap: int = 0,
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `DynamicUpdate` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: tensor, offset, slice.
            axes: List of integers.
            sizes: List of integers.
            noOverlap: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def dynamiczero(
        self,
        args: Sequence[str],
        axes: Sequence[int],
        sizes: Sequence[int],
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `DynamicZero` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: tensor, offset.
            axes: List of integers.
            sizes: List of integers.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def expm1(self, args: Sequence[str], debugContext: Any = '', *, debugPrefix: Any = '') -> str:
        """Adds `Expm1` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def fmod(self, args: Sequence[str], debugContext: Any = '', *, debugPrefix: Any = '') -> str:
        """Adds `Fmod` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def gelu(self, args: Sequence[str], debugContext: Any = '', *, debugPrefix: Any = '') -> str:
        """Adds `Gelu` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def groupnormalization(
        self,
        args: Sequence[str],
        num_groups: int,
        epsilon: float = 1e-05,
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> list[str]:
        """Adds `GroupNormalization` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: x, scale, bias.
            num_groups: Integer.
            epsilon: Number. Defaults to `1e-05`.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def identityloss(
        self,
        args: Sequence[str],
        reduction: Any = ...,
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `IdentityLoss` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            reduction: A `ReductionType`. Defaults to `<ReductionType.Mean: 1>`.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def init(
        self,
        shape: Sequence[int],
        data_type: Any,
        init_type: Any,
        batch_axis: Any = None,
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
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
        """

    def l1loss(
        self,
        args: Sequence[str],
        lambda_: float,
        reduction: Any = ...,
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `L1` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            lambda_: Number.
            reduction: A `ReductionType`. Defaults to `<ReductionType.Mean: 1>`.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def log1p(self, args: Sequence[str], debugContext: Any = '', *, debugPrefix: Any = '') -> str:
        """Adds `Log1p` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def lstm(
        self,
        args: Sequence[str],
        outputFullSequence: int = 1,
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> list[str]:
        """Adds `LSTM` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: x, weights, bias, initial_state.
            outputFullSequence: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

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
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
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
        """

    def nllloss(
        self,
        args: Sequence[str],
        reduction: Any = ...,
        ignoreIndex: int | None = None,
        inputIsLogProbability: int = False,
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `Nll` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: probabilities, labels.
            reduction: A `ReductionType`. Defaults to `<ReductionType.Mean: 1>`.
            ignoreIndex: Integer. Defaults to `None`.
            inputIsLogProbability: Integer. Defaults to `False`.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def nop(self, args: Sequence[str], debugContext: Any = '', *, debugPrefix: Any = '') -> str:
        """Adds `Nop` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def printtensor(
        self,
        args: Sequence[str],
        print_gradient: int = 1,
        debugContext: Any = '',
        title: str = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `PrintTensor` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            print_gradient: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
            title: String. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def reducemedian(
        self,
        args: Sequence[str],
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        debugContext: Any = '',
    ) -> list[str]:
        """Adds `ReduceMedian` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            axes: List of integers. Defaults to `None`.
            keepdims: Integer. Defaults to `1`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def remainder(
        self,
        args: Sequence[str],
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `Remainder` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def replicatedallreduce(
        self,
        args: Sequence[str],
        commGroup: Any = None,
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `ReplicatedAllReduce` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            commGroup: `CommGroup`, or its two numbers. Defaults to `None`.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def reshape(
        self,
        args: Sequence[str],
        shape: Sequence[int],
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `Reshape` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            shape: List of integers.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def reverse(
        self,
        args: Sequence[str],
        dimensions: Sequence[int],
        debugContext: Any = '',
    ) -> str:
        """Adds `Reverse` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            dimensions: List of integers.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def round(self, args: Sequence[str], debugContext: Any = '', *, debugPrefix: Any = '') -> str:
        """Adds `Round` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def scale(
        self,
        args: Sequence[str],
        scale: float,
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `Scale` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            scale: Number.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def scaledadd(
        self,
        args: Sequence[str],
        scale0: float = 1.0,
        scale1: float = 1.0,
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `ScaledAdd` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: a, b, scale0 (or ''), scale1 (or '').
            scale0: Number. Defaults to `1.0`.
            scale1: Number. Defaults to `1.0`.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def scatterreduce(
        self,
        args: Sequence[str] = [],
        axis_size: int | None = None,
        axis: int = -1,
        reduction: Any = ...,
        debugContext: Any = '',
    ) -> str:
        """Adds `ScatterReduce` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: values, indices.
            axis_size: Integer. Defaults to `None`.
            axis: Integer. Defaults to `-1`.
            reduction: A `ScatterReduction`. Defaults to `<ScatterReduction.Sum: 0>`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def sequenceslice(
        self,
        args: Sequence[str],
        zeroUnused: int = 0,
        debugContext: Any = '',
    ) -> str:
        """Adds `SequenceSlice` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: source, destination, N, sourceOffset, destinationOffset.
            zeroUnused: Integer. Defaults to `0`.
            debugContext: Name of the operation. Defaults to `''`.
        """

    def shapeddropout(
        self,
        args: Sequence[str],
        shape: Sequence[int],
        ratio: float = 0.5,
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `ShapedDropout` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            shape: List of integers.
            ratio: Number. Defaults to `0.5`.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """

    def subsample(
        self,
        args: Sequence[str],
        strides: Sequence[int],
        debugContext: Any = '',
        *,
        debugPrefix: Any = '',
    ) -> str:
        """Adds `Subsample` of ai.graphcore, as it is since version 1, to the model.

        Args:
            args: List of ids of tensors: any number of tensors.
            strides: List of integers.
            debugContext: Name of the operation. Defaults to `''`.
            debugPrefix: Another name of `debugContext`.
        """
