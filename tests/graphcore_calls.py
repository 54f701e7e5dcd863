"""Valid arguments for each method of ai.graphcore, and builders that are given them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ipu_keras.popart.builder import Builder
from ipu_keras.popart.options.enumerations import DataType, InitType, ReductionType


def inputs(builder: Builder, *given: Any) -> list[str]:
    """Ids of inputs of such shapes; pairs have a dtype, arrays become tensors with a value."""
    ids = []
    for each in given:
        if isinstance(each, np.ndarray):
            ids.append(builder.addInitializedInputTensor(each))
        elif isinstance(each, str):
            ids.append(each)
        else:
            dtype, shape = each if isinstance(each[0], str) else ("FLOAT", each)
            ids.append(builder.addInputTensor(dtype, list(shape)))
    return ids


def _call(builder: Builder, name: str, *given: Any, **arguments: Any) -> Any:
    arguments["args"] = inputs(builder, *given)
    return getattr(builder.aiGraphcore, name)(**arguments)


def _of(name: str, *given: Any, **arguments: Any) -> Callable[[Builder], Any]:
    return lambda builder: _call(builder, name, *given, **arguments)


def call(builder: Builder) -> Any:
    x = builder.addInputTensor("FLOAT", [2, 3])
    callee = builder.createSubgraphBuilder()
    inner = callee.addInputTensor("FLOAT", [2, 3])
    callee.addOutputTensor(callee.aiOnnx.relu([inner]))
    return builder.aiGraphcore.call([x], 1, callee)


def multiconv(builder: Builder) -> Any:
    first = inputs(builder, (1, 2, 5, 5), (3, 2, 3, 3), (3,))
    second = inputs(builder, (1, 2, 4, 4), (1, 2, 2, 2))
    return builder.aiGraphcore.multiconv([first, second], pads=[[1, 1, 1, 1], [0, 0, 0, 0]])


_X = (2, 3)
_INTS = ("INT32", (2, 3))
_OFFSET = ("UINT32", (1,))
_LENGTHS = np.array([4, 4], np.uint32)

# By method: what calls it, and the shapes of its results.
GRAPHCORE_CALLS: dict[str, tuple[Callable[[Builder], Any], list[list[int]]]] = {
    **{
        name: (_of(name, _X), [[2, 3]])
        for name in ("detach", "expm1", "gelu", "log1p", "nop", "printtensor", "round")
    },
    **{name: (_of(name, _X, _X), [[2, 3]]) for name in ("atan2", "fmod", "remainder", "scaledadd")},
    **{
        name: (_of(name, _INTS, _INTS), [[2, 3]])
        for name in ("bitwiseand", "bitwiseor", "bitwisexor", "bitwisexnor")
    },
    "abort": (_of("abort", ("BOOL", ())), []),
    "bitwisenot": (_of("bitwisenot", _INTS), [[2, 3]]),
    "call": (call, [[2, 3]]),
    "ctcbeamsearchdecoder": (
        _of("ctcbeamsearchdecoder", (4, 2, 3), _LENGTHS, beam_width=2, top_paths=1),
        [[2, 1], [2, 1], [2, 1, 4]],
    ),
    "ctcloss": (
        _of(
            "ctcloss",
            *((4, 2, 3), ("UINT32", (2, 2)), _LENGTHS, np.array([2, 2], np.uint32)),
        ),
        [[]],
    ),
    "depthtospace": (_of("depthtospace", (1, 4, 2, 2), blocksize=2, mode="CRD"), [[1, 1, 4, 4]]),
    "dynamicadd": (_of("dynamicadd", _X, _OFFSET, (1, 3), axes=[0], sizes=[1]), [[2, 3]]),
    "dynamicslice": (_of("dynamicslice", _X, _OFFSET, axes=[0], sizes=[1]), [[1, 3]]),
    "dynamicupdate": (_of("dynamicupdate", _X, _OFFSET, (1, 3), axes=[0], sizes=[1]), [[2, 3]]),
    "dynamiczero": (_of("dynamiczero", _X, _OFFSET, axes=[0], sizes=[1]), [[2, 3]]),
    "groupnormalization": (
        _of("groupnormalization", (2, 4, 3, 3), (4,), (4,), num_groups=2),
        [[2, 4, 3, 3], [4], [4]],
    ),
    "identityloss": (_of("identityloss", _X), [[]]),
    "init": (
        lambda builder: builder.aiGraphcore.init([2, 3], DataType.FLOAT16, InitType.Zero),
        [[2, 3]],
    ),
    "l1loss": (
        _of("l1loss", _X, **{"lambda": 0.1, "reduction": ReductionType.NoReduction}),
        [[2, 3]],
    ),
    "lstm": (_of("lstm", (5, 2, 3), (4, 7, 4)), [[5, 2, 4], [2, 4]]),
    "multiconv": (multiconv, [[1, 3, 5, 5], [1, 1, 3, 3]]),
    "nllloss": (_of("nllloss", _X, ("INT32", (2,)), ignoreIndex=1), [[]]),
    "reducemedian": (_of("reducemedian", _X, axes=[1], keepdims=0), [[2], [2]]),
    "replicatedallreduce": (_of("replicatedallreduce", _X), [[2, 3]]),
    "reshape": (_of("reshape", _X, shape=[3, 2]), [[3, 2]]),
    "reverse": (_of("reverse", _X, dimensions=[1]), [[2, 3]]),
    "scale": (_of("scale", _X, scale=2.0), [[2, 3]]),
    "scatterreduce": (_of("scatterreduce", _X, ("INT32", (2, 3)), axis_size=4), [[2, 4]]),
    "sequenceslice": (
        _of(
            "sequenceslice",
            *((4, 3), (4, 3)),
            *(np.array([each], np.uint32) for each in (2, 0, 1)),
        ),
        [[4, 3]],
    ),
    "shapeddropout": (_of("shapeddropout", _X, shape=[2, 1], ratio=0.25), [[2, 3]]),
    "subsample": (_of("subsample", (4, 6), strides=[2, 3]), [[2, 2]]),
}


def graphcore_called(builder: Builder, name: str) -> list[str]:
    """Calls a method with valid arguments; returns the ids of the results."""
    results = GRAPHCORE_CALLS[name][0](builder)
    if results is None:
        return []
    return [results] if isinstance(results, str) else results
