"""Valid arguments for each method of each opset of ai.onnx, and builders that are given them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ipu_keras.popart.builder import Builder


@dataclass(frozen=True)
class Call:
    """The arguments of a method.

    Args:
        inputs: Of the operation: arrays for tensors with a value, names of dtypes and shapes for
            others, an empty string for one that is left out; `None` for no `args`.
        arguments: All others, by name.
        since: The first opset that has it in this form.
    """

    inputs: tuple[Any, ...] | None
    arguments: dict[str, Any] = field(default_factory=dict)
    since: int = 6


def f(*shape: int) -> tuple[str, tuple[int, ...]]:
    return "FLOAT", shape


def boolean(*shape: int) -> tuple[str, tuple[int, ...]]:
    return "BOOL", shape


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def of(*inputs: Any, since: int = 6, **arguments: Any) -> Call:
    return Call(inputs, arguments, since)


_X = f(2, 3)
_IMAGE = f(1, 2, 4, 4)
_POOLED = {"kernel_shape": [2, 2]}
_UINT8 = ("UINT8", (2, 3))
_SCALE, _ZERO = np.array(0.5, np.float32), np.array(3, np.uint8)

_UNARY = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "elu",
    "erf",
    "exp",
    "floor",
    "hardmax",
    "hardsigmoid",
    "identity",
    "isinf",
    "isnan",
    "leakyrelu",
    "log",
    "logsoftmax",
    "lpnormalization",
    "neg",
    "nonzero",
    "randomnormallike",
    "randomuniformlike",
    "reciprocal",
    "reducel1",
    "reducel2",
    "reducelogsum",
    "reducelogsumexp",
    "reducemax",
    "reducemean",
    "reducemin",
    "reduceprod",
    "reducesum",
    "reducesumsquare",
    "relu",
    "round",
    "selu",
    "shape",
    "shrink",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "size",
    "softmax",
    "softplus",
    "softsign",
    "sqrt",
    "tan",
    "tanh",
    "thresholdedrelu",
    "argmax",
    "argmin",
    "flatten",
    "transpose",
    "eyelike",
]
_BINARY = [
    "add",
    "div",
    "mul",
    "sub",
    "pow",
    "max",
    "mean",
    "min",
    "sum",
    "prelu",
    "less",
    "greater",
    "equal",
]
_LOGICAL = ["logical_and", "logical_or", "logical_xor"]

_LSTM = (f(5, 2, 3), f(1, 16, 3), f(1, 16, 4))
_GRU = (f(5, 2, 3), f(1, 12, 3), f(1, 12, 4))
_RNN = (f(5, 2, 3), f(1, 4, 3), f(1, 4, 4))
_NORMAL = (_IMAGE, f(2), f(2), f(2), f(2))

# By method, the forms that it has had, oldest first.
CALLS: dict[str, list[Call]] = {
    **{name: [of(_X)] for name in _UNARY},
    **{name: [of(_X, _X)] for name in _BINARY},
    **{name: [of(boolean(2, 3), boolean(2, 3))] for name in _LOGICAL},
    "equal": [of(("INT32", (2, 3)), ("INT32", (2, 3)))],
    "logical_not": [of(boolean(2, 3))],
    "averagepool": [of(_IMAGE, **_POOLED)],
    "batchnormalization": [of(*_NORMAL, num_outputs=1)],
    "bitshift": [of(_UINT8, _UINT8, direction="LEFT")],
    "cast": [of(_X, to="INT32")],
    "clip": [of(_X, min=-1.0), of(_X, np.array(-1, np.float32), since=11)],
    "compress": [of(_X, np.array([True, False]), axis=0)],
    "concat": [of(_X, _X, axis=1)],
    "constant": [Call(None, {"value": np.array([1.0, 2.0], np.float32)})],
    "constantofshape": [of(ints(2, 3), value=np.array([1.5], np.float32))],
    "conv": [of(_IMAGE, f(3, 2, 3, 3), f(3), strides=[2, 2])],
    "convinteger": [of(("UINT8", (1, 2, 4, 4)), ("UINT8", (3, 2, 3, 3)))],
    "convtranspose": [of(_IMAGE, f(2, 3, 3, 3), strides=[2, 2])],
    "cumsum": [of(_X, np.array(1, np.int32))],
    "depthtospace": [of(f(1, 4, 2, 2), blocksize=2)],
    "dequantizelinear": [of(_UINT8, _SCALE, _ZERO)],
    "det": [of(f(3, 3))],
    "dropout": [of(_X, num_outputs=1)],
    "dynamicquantizelinear": [of(_X)],
    "expand": [of(f(3, 1), ints(2, 3, 4))],
    "gather": [of(_X, ints(0, 1))],
    "gatherelements": [of(_X, ("INT64", (2, 2)), axis=1)],
    "gathernd": [of(_X, ("INT64", (2, 1)))],
    "gemm": [of(_X, f(3, 4), f(2, 4)), of(_X, f(3, 4), f(4), since=7), of(_X, f(3, 4), since=11)],
    "globalaveragepool": [of(_IMAGE)],
    "globallppool": [of(_IMAGE)],
    "globalmaxpool": [of(_IMAGE)],
    "gru": [of(*_GRU, num_outputs=2, hidden_size=4)],
    "instancenormalization": [of(_IMAGE, f(2), f(2))],
    "lrn": [of(_IMAGE, size=3)],
    "lppool": [of(_IMAGE, **_POOLED)],
    "lstm": [of(*_LSTM, num_outputs=3, hidden_size=4)],
    "matmul": [of(_X, f(3, 4))],
    "matmulinteger": [of(_UINT8, ("UINT8", (3, 4)))],
    "maxpool": [of(_IMAGE, **_POOLED), of(_IMAGE, num_outputs=2, **_POOLED, since=8)],
    "maxroipool": [of(_IMAGE, np.array([[0, 0, 0, 3, 3]] * 3, np.float32), pooled_shape=[2, 2])],
    "maxunpool": [of(f(1, 1, 2, 2), ("INT64", (1, 1, 2, 2)), **_POOLED, strides=[2, 2])],
    "meanvariancenormalization": [of(_IMAGE)],
    "mod": [of(("INT32", (2, 3)), ("INT32", (2, 3)))],
    "multinomial": [of(_X, sample_size=4)],
    "nonmaxsuppression": [of(f(1, 6, 4), f(1, 1, 6), ints(3))],
    "onehot": [of(("INT64", (2,)), np.array([4], np.int64), np.array([0, 1], np.float32))],
    "pad": [
        of(_X, pads=[0, 1, 0, 1]),
        of(_X, ints(0, 1, 0, 1), np.array(0, np.float32), since=11),
    ],
    "qlinearconv": [
        of(
            *(("UINT8", (1, 1, 4, 4)), _SCALE, _ZERO, ("UINT8", (1, 1, 2, 2)), _SCALE, _ZERO),
            *(_SCALE, _ZERO),
        )
    ],
    "qlinearmatmul": [of(_UINT8, _SCALE, _ZERO, ("UINT8", (3, 4)), _SCALE, _ZERO, _SCALE, _ZERO)],
    "quantizelinear": [of(_X, _SCALE, _ZERO)],
    "randomnormal": [Call(None, {"shape": [2, 3]})],
    "randomuniform": [Call(None, {"shape": [2, 3]})],
    "range": [of(*(np.array(each, np.int64) for each in (0, 6, 2)))],
    "reshape": [of(_X, ints(3, 2))],
    "resize": [
        of(_IMAGE, np.array([1, 1, 2, 2], np.float32)),
        of(
            *(_IMAGE, np.zeros(0, np.float32), np.array([1, 1, 2, 2], np.float32)),
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
            since=11,
        ),
    ],
    "reversesequence": [of(f(4, 2), ints(3, 4))],
    "rnn": [of(*_RNN, num_outputs=2, hidden_size=4)],
    "roialign": [of(_IMAGE, f(3, 4), ints(0, 0, 0))],
    "scatter": [of(_X, ("INT64", (1, 3)), f(1, 3))],
    "scatterelements": [of(_X, ("INT64", (1, 3)), f(1, 3))],
    "scatternd": [of(_X, ("INT64", (1, 1)), f(1, 3))],
    "slice": [
        of(_X, starts=[0, 1], ends=[1, 3]),
        of(_X, ints(0, 1), ints(1, 3), since=10),
    ],
    "spacetodepth": [of(_IMAGE, blocksize=2)],
    "split": [of(f(4, 3), num_outputs=2, axis=0, split=[1, 3])],
    "splittosequence": [of(f(4, 3), ints(1, 3))],
    "squeeze": [of(f(2, 1, 3), axes=[1])],
    "tile": [of(_X, ints(2, 1))],
    "topk": [of(_X, k=2), of(_X, ints(2), since=10)],
    "unique": [of(f(6), num_outputs=4)],
    "unsqueeze": [of(_X, axes=[0, 2])],
    "upsample": [
        of(_IMAGE, height_scale=2.0, width_scale=2.0),
        of(_IMAGE, scales=[1.0, 1.0, 2.0, 2.0], since=7),
        of(_IMAGE, np.array([1, 1, 2, 2], np.float32), since=9),
    ],
    "where": [of(boolean(2, 3), _X, _X)],
}


def if_(builder: Builder, opset: Any) -> Any:
    condition = builder.addInputTensor("BOOL", [])
    x = builder.addInputTensor("FLOAT", [2, 3])
    branches = []
    for method in ("neg", "relu"):
        branch = builder.createSubgraphBuilder()
        branch.addInputTensorFromParentGraph(x)
        branch.addOutputTensor(getattr(opset_of(branch, opset.version), method)([x]))
        branches.append(branch)
    return opset.logical_if([condition], 1, *branches)


def loop(builder: Builder, opset: Any) -> Any:
    count = builder.addInitializedInputTensor(np.array(3, np.int64))
    goes_on = builder.addInitializedInputTensor(np.array(True))
    start = builder.addInputTensor("FLOAT", [2, 3])
    body = builder.createSubgraphBuilder()
    body.addInputTensor("INT64", [])
    body_goes_on = body.addInputTensor("BOOL", [])
    carried = body.addInputTensor("FLOAT", [2, 3])
    inner = opset_of(body, opset.version)
    more = inner.add([carried, carried])
    body.addOutputTensor(inner.identity([body_goes_on]))
    body.addOutputTensor(more)
    body.addOutputTensor(inner.neg([more]))
    return opset.loop([count, goes_on, start], 2, body)


def scan(builder: Builder, opset: Any) -> Any:
    is_first = opset.version == 8
    shape = [1, 2] if is_first else [2]
    start = builder.addInputTensor("FLOAT", shape)
    sequence = builder.addInputTensor("FLOAT", [*shape[:-1], 5, 2])
    body = builder.createSubgraphBuilder()
    carried = body.addInputTensor("FLOAT", [2])
    element = body.addInputTensor("FLOAT", [2])
    inner = opset_of(body, opset.version)
    total = inner.add([carried, element])
    body.addOutputTensor(total)
    body.addOutputTensor(inner.neg([total]))
    return opset.scan([*([""] if is_first else []), start, sequence], 2, body, 1)


def sequence(method: str) -> Callable[[Builder, Any], Any]:
    def call(builder: Builder, opset: Any) -> Any:
        tensors = [builder.addInputTensor("FLOAT", [2, 3]) for _ in range(2)]
        place = builder.addInitializedInputTensor(np.array(0, np.int64))
        if method == "sequenceempty":
            return opset.sequenceempty(1)
        made = opset.sequenceconstruct(tensors)
        match method:
            case "sequenceconstruct":
                return made
            case "sequenceinsert":
                return opset.sequenceinsert([made, tensors[0], place])
            case "concatfromsequence":
                return opset.concatfromsequence([made], 0)
            case "sequencelength":
                return opset.sequencelength([made])
        return getattr(opset, method)([made, place])

    return call


# Those whose arguments are made with the builder; strings have no dtype that inputs may have.
SPECIAL: dict[str, Callable[[Builder, Any], Any]] = {
    "logical_if": if_,
    "loop": loop,
    "scan": scan,
    **{
        name: sequence(name)
        for name in (
            *("sequenceat", "sequenceconstruct", "sequenceempty", "sequenceerase"),
            *("sequenceinsert", "sequencelength", "concatfromsequence"),
        )
    },
    "stringnormalizer": lambda builder, opset: opset.stringnormalizer(
        [builder.addInputTensor("STRING", [3])], case_change_action="LOWER"
    ),
    "tfidfvectorizer": lambda builder, opset: opset.tfidfvectorizer(
        [builder.addInputTensor("INT32", [6])],
        max_gram_length=2,
        max_skip_count=0,
        min_gram_length=1,
        mode="TF",
        ngram_counts=[0, 2],
        ngram_indexes=[0, 1, 2],
        pool_int64s=[2, 3, 5, 4],
    ),
}


def opset_of(builder: Builder, version: int) -> Any:
    """An opset of ai.onnx of a builder."""
    return getattr(builder, f"aiOnnxOpset{version}")


def called(builder: Builder, name: str, version: int) -> list[str]:
    """Calls a method with valid arguments; returns the ids of the results."""
    opset = opset_of(builder, version)
    if name in SPECIAL:
        results = SPECIAL[name](builder, opset)
    else:
        call = [each for each in CALLS[name] if each.since <= version][-1]
        arguments = dict(call.arguments)
        if call.inputs is not None:
            arguments["args"] = [_added(builder, each) for each in call.inputs]
        results = getattr(opset, name)(**arguments)
    return [results] if isinstance(results, str) else results


def _added(builder: Builder, given: Any) -> str:
    if isinstance(given, str):
        return given
    if isinstance(given, np.ndarray):
        return builder.addInitializedInputTensor(given)
    return builder.addInputTensor(*given)
