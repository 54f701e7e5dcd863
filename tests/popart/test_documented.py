"""Names of document 003 have the signatures that are documented there."""

import importlib
import inspect
import re
from typing import Any

import pytest

# Makes the names known: without the hook of an installation, `popart` is the folder of tests.
import ipu_keras  # noqa: F401

# By name, the documented signatures: one, those of all overloads, or none for a class of which no
# constructor is documented.
DOCUMENTED: dict[str, list[str]] = {
    "popart.builder.AiGraphcore": ["(builder, version)"],
    "popart.builder.AiGraphcore.call": ["(args, num_outputs, callee, debugName='')"],
    "popart.builder.AiGraphcoreOpset1": ["(builder, version)"],
    "popart.builder.AiOnnx": ["(builder, version)"],
    "popart.builder.AiOnnx.logical_if": ["(args, num_outputs, else_branch, then_branch, name='')"],
    "popart.builder.AiOnnx.loop": ["(args, num_outputs, body, debugContext='')"],
    "popart.builder.AiOnnx10": ["(builder, version)"],
    "popart.builder.AiOnnx11": ["(builder, version)"],
    "popart.builder.AiOnnx6": ["(builder, version)"],
    "popart.builder.AiOnnx7": ["(builder, version)"],
    "popart.builder.AiOnnx8": ["(builder, version)"],
    "popart.builder.AiOnnx8.scan": [
        "(args, num_outputs, body, num_scan_inputs, directions=[], debugContext='')"
    ],
    "popart.builder.AiOnnx9": ["(builder, version)"],
    "popart.builder.AiOnnx9.scan": [
        (
            "(args, num_outputs, body, num_scan_inputs, scan_input_axes=[], "
            "scan_input_directions=[], scan_output_axes=[], scan_output_directions=[], "
            "debugContext='')"
        )
    ],
    "popart.builder.AiOnnxMl": ["(builder, version)"],
    "popart.builder.Builder": ["(modelProtoOrFilename=None, opsets=None, builderCore=None)"],
    "popart.builder.Builder.createSubgraphBuilder": ["()"],
    "popart.builder.Builder.reshape_const": ["(aiOnnx, args, shape, debugContext='')"],
    "popart.writer.NetWriter": ["(inNames, outNames, optimizer, dataFlow, inputShapeInfo)"],
    "popart.writer.NetWriter.infer": ["(inputsMap)"],
    "popart.writer.NetWriter.saveModel": ["(filename)"],
    "popart.writer.NetWriter.train": ["(inputsMap)"],
    "popart_core._BuilderCore": [],
    "popart_core._BuilderCore.addInitializedInputTensor": [
        "(initVal, debugPrefix='')",
        "(initVal, debugContext='')",
    ],
    "popart_core._BuilderCore.addInputTensor": [
        "(tensorInfo, debugPrefix='')",
        "(tensorInfo, debugContext='')",
        "(dataType, shape, debugPrefix='')",
        "(dataType, shape, debugContext='')",
    ],
    "popart_core._BuilderCore.addInputTensorFromParentGraph": ["(tensorId)"],
    "popart_core._BuilderCore.addNodeAttribute": [
        "(attributeName, attributeValue, nodeOutputNames)"
    ],
    "popart_core._BuilderCore.addOutputTensor": ["(outputName)"],
    "popart_core._BuilderCore.addUntypedInputTensor": ["(debugPrefix='')", "(debugContext='')"],
    "popart_core._BuilderCore.checkpointOutput": ["(nodeOutputNames)"],
    "popart_core._BuilderCore.commGroup": ["(type=0, groupSize=0)"],
    "popart_core._BuilderCore.customOp": [
        "(opName, opVersion, domain, inputs, attributes, numOutputs=1, name='')"
    ],
    "popart_core._BuilderCore.excludePatterns": ["(nodeOutputName, patternNames)"],
    "popart_core._BuilderCore.executionPhase": ["(nodeOutputNames, value=0)", "(value=0)"],
    "popart_core._BuilderCore.getAllNodeAttributeNames": ["(nodeOutputNames)"],
    "popart_core._BuilderCore.getExecutionPhase": ["()"],
    "popart_core._BuilderCore.getFloatNodeAttribute": ["(attributeName, nodeOutputNames)"],
    "popart_core._BuilderCore.getFloatVectorNodeAttribute": ["(attributeName, nodeOutputNames)"],
    "popart_core._BuilderCore.getInputTensorIds": ["()"],
    "popart_core._BuilderCore.getInt64NodeAttribute": ["(attributeName, nodeOutputNames)"],
    "popart_core._BuilderCore.getInt64VectorNodeAttribute": ["(attributeName, nodeOutputNames)"],
    "popart_core._BuilderCore.getModelProto": ["()"],
    "popart_core._BuilderCore.getNameScope": ["(name='')"],
    "popart_core._BuilderCore.getOutputTensorIds": ["()"],
    "popart_core._BuilderCore.getPartialsType": ["(nodeOutputName)"],
    "popart_core._BuilderCore.getPipelineStage": ["()"],
    "popart_core._BuilderCore.getRecomputeOutputInBackwardPass": [
        "(nodeOutputName)",
        "(nodeOutputNames)",
    ],
    "popart_core._BuilderCore.getStringNodeAttribute": ["(attributeName, nodeOutputNames)"],
    "popart_core._BuilderCore.getStringVectorNodeAttribute": ["(attributeName, nodeOutputNames)"],
    "popart_core._BuilderCore.getTensorDtypeString": ["(id)"],
    "popart_core._BuilderCore.getTensorShape": ["(id)"],
    "popart_core._BuilderCore.getTrainableTensorIds": ["()"],
    "popart_core._BuilderCore.getValueTensorIds": ["()"],
    "popart_core._BuilderCore.getVirtualGraph": ["()", "(nodeOutputNames)"],
    "popart_core._BuilderCore.hasExecutionPhase": ["()"],
    "popart_core._BuilderCore.hasPipelineStage": ["()"],
    "popart_core._BuilderCore.hasVirtualGraph": ["()"],
    "popart_core._BuilderCore.isInitializer": ["(id)"],
    "popart_core._BuilderCore.nameScope": ["(name)"],
    "popart_core._BuilderCore.nodeHasAttribute": ["(attributeName, nodeOutputNames)"],
    "popart_core._BuilderCore.outlineAttributes": ["(arg0, /)"],
    "popart_core._BuilderCore.outputTensorLocation": [
        "(nodeOutputNames, value=<popart_core.TensorLocation object>)",
        "(value=<popart_core.TensorLocation object>)",
    ],
    "popart_core._BuilderCore.pipelineStage": ["(nodeOutputNames, value=0)", "(value)"],
    "popart_core._BuilderCore.recomputeOutput": [
        "(nodeOutputNames, value=<RecomputeType.Undefined: 0>)",
        "(value=<RecomputeType.Undefined: 0>)",
    ],
    "popart_core._BuilderCore.recomputeOutputInBackwardPass": [
        "(nodeOutputName, value=<RecomputeType.Recompute: 2>)",
        "(nodeOutputNames, value=<RecomputeType.Recompute: 2>)",
    ],
    "popart_core._BuilderCore.removeNodeAttribute": ["(attributeName, nodeOutputNames)"],
    "popart_core._BuilderCore.saveInitializersExternally": ["(ids, filename)"],
    "popart_core._BuilderCore.saveModelProto": ["(filename)"],
    "popart_core._BuilderCore.schedulePriority": ["(value)"],
    "popart_core._BuilderCore.setAvailableMemoryProportion": [
        "(nodeOutputName, availableMemoryProportion)"
    ],
    "popart_core._BuilderCore.setGraphName": ["(name)"],
    "popart_core._BuilderCore.setInplacePreferences": ["(nodeOutputName, prefs)"],
    "popart_core._BuilderCore.setPartialsType": ["(nodeOutputName, partialsType)"],
    "popart_core._BuilderCore.setSerializeMatMul": [
        "(nodeOutputName, mode, factor=0, keep_precision=False)"
    ],
    "popart_core._BuilderCore.virtualGraph": ["(nodeOutputNames, value=0)", "(value)"],
    "popart_core.AiGraphcoreOpset1": [],
    "popart_core.AiGraphcoreOpset1.abort": [
        "(args=[], debugPrefix='')",
        "(args=[], debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.atan2": ["(args, debugPrefix='')", "(args, debugContext='')"],
    "popart_core.AiGraphcoreOpset1.bitwiseand": ["(args=[], debugContext='')"],
    "popart_core.AiGraphcoreOpset1.bitwisenot": ["(args=[], debugContext='')"],
    "popart_core.AiGraphcoreOpset1.bitwiseor": ["(args=[], debugContext='')"],
    "popart_core.AiGraphcoreOpset1.bitwisexnor": ["(args=[], debugContext='')"],
    "popart_core.AiGraphcoreOpset1.bitwisexor": ["(args=[], debugContext='')"],
    "popart_core.AiGraphcoreOpset1.call": [
        "(args, num_outputs, callee, debugPrefix='')",
        "(args, num_outputs, callee, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.ctcbeamsearchdecoder": [
        "(args, blank=0, beam_width=100, top_paths=1, debug_context='')"
    ],
    "popart_core.AiGraphcoreOpset1.ctcloss": [
        (
            "(args, reduction=<ReductionType.Mean: 1>, blank=0, outDataType='UNDEFINED', "
            "debugContext='')"
        )
    ],
    "popart_core.AiGraphcoreOpset1.depthtospace": [
        "(args, blocksize, mode, debugPrefix='')",
        "(args, blocksize, mode, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.detach": ["(args, debugPrefix='')", "(args, debugContext='')"],
    "popart_core.AiGraphcoreOpset1.dynamicadd": [
        "(args, axes, sizes, debugPrefix='')",
        "(args, axes, sizes, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.dynamicslice": [
        "(args, axes, sizes, noOverlap=0, debugPrefix='')",
        "(args, axes, sizes, noOverlap=0, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.dynamicupdate": [
        "(args, axes, sizes, noOverlap=0, debugPrefix='')",
        "(args, axes, sizes, noOverlap=0, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.dynamiczero": [
        "(args, axes, sizes, debugPrefix='')",
        "(args, axes, sizes, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.expm1": ["(args, debugPrefix='')", "(args, debugContext='')"],
    "popart_core.AiGraphcoreOpset1.fmod": ["(args, debugContext='')", "(args, debugPrefix='')"],
    "popart_core.AiGraphcoreOpset1.gelu": ["(args, debugPrefix='')", "(args, debugContext='')"],
    "popart_core.AiGraphcoreOpset1.groupnormalization": [
        "(args, num_groups, epsilon=9.999999747378752e-06, debugPrefix='')",
        "(args, num_groups, epsilon=9.999999747378752e-06, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.identityloss": [
        "(args, reduction=<ReductionType.Mean: 1>, debugPrefix='')",
        "(args, reduction=<ReductionType.Mean: 1>, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.init": [
        "(shape, data_type, init_type, batch_axis, debugPrefix='')",
        "(shape, data_type, init_type, batch_axis, debugContext='')",
        "(shape, data_type, init_type, debugPrefix='')",
        "(shape, data_type, init_type, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.l1loss": [
        "(args, lambda, reduction=<ReductionType.Mean: 1>, debugPrefix='')",
        "(args, lambda, reduction=<ReductionType.Mean: 1>, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.log1p": ["(args, debugPrefix='')", "(args, debugContext='')"],
    "popart_core.AiGraphcoreOpset1.lstm": [
        "(args, outputFullSequence=1, debugPrefix='')",
        "(args, outputFullSequence=1, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.multiconv": [
        (
            "(args, dilations=[], inDilations=[], pads=[], outPads=[], strides=[], "
            "availableMemoryProportions=[], partialsTypes=[], planType=None, "
            "perConvReservedTiles=None, cycleBackOff=None, debugPrefix='')"
        ),
        (
            "(args, dilations=[], inDilations=[], pads=[], outPads=[], strides=[], "
            "availableMemoryProportions=[], partialsTypes=[], planType=None, "
            "perConvReservedTiles=None, cycleBackOff=None, debugContext='')"
        ),
    ],
    "popart_core.AiGraphcoreOpset1.nllloss": [
        (
            "(args, reduction=<ReductionType.Mean: 1>, ignoreIndex=None, "
            "inputIsLogProbability=False, debugPrefix='')"
        ),
        (
            "(args, reduction=<ReductionType.Mean: 1>, ignoreIndex=None, "
            "inputIsLogProbability=False, debugContext='')"
        ),
    ],
    "popart_core.AiGraphcoreOpset1.nop": ["(args, debugPrefix='')", "(args, debugContext='')"],
    "popart_core.AiGraphcoreOpset1.printtensor": [
        "(args, print_gradient=1, debugPrefix='', title='')",
        "(args, print_gradient=1, debugContext='', title='')",
    ],
    "popart_core.AiGraphcoreOpset1.reducemedian": [
        "(args, axes=None, keepdims=1, debugContext='')"
    ],
    "popart_core.AiGraphcoreOpset1.remainder": [
        "(args, debugPrefix='')",
        "(args, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.replicatedallreduce": [
        "(args, commGroup=None, debugPrefix='')",
        "(args, commGroup=None, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.reshape": [
        "(args, shape, debugPrefix='')",
        "(args, shape, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.reverse": ["(args, dimensions, debugContext='')"],
    "popart_core.AiGraphcoreOpset1.round": ["(args, debugPrefix='')", "(args, debugContext='')"],
    "popart_core.AiGraphcoreOpset1.scale": [
        "(args, scale, debugPrefix='')",
        "(args, scale, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.scaledadd": [
        "(args, scale0=1.0, scale1=1.0, debugPrefix='')",
        "(args, scale0=1.0, scale1=1.0, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.scatterreduce": [
        "(args=[], axis_size, axis=-1, reduction=<ScatterReduction.Sum: 0>, debugContext='')"
    ],
    "popart_core.AiGraphcoreOpset1.sequenceslice": ["(args, zeroUnused=0, debugContext='')"],
    "popart_core.AiGraphcoreOpset1.shapeddropout": [
        "(args, shape, ratio=0.5, debugPrefix='')",
        "(args, shape, ratio=0.5, debugContext='')",
    ],
    "popart_core.AiGraphcoreOpset1.subsample": [
        "(args, strides, debugPrefix='')",
        "(args, strides, debugContext='')",
    ],
    "popart_core.Optimizer": [],
    "popart_core.Optimizer.getLossScalingVal": ["()"],
    "popart_core.SGD": [],
    "popart_core.SGD.insertSpecific": ["(arg0, arg1, /)"],
    "popart_core.SGD.dampenings": ["()"],
    "popart_core.SGD.learningRates": ["()"],
    "popart_core.SGD.momentums": ["()"],
    "popart_core.SGD.velocityScalings": ["()"],
    "popart_core.SGD.weightDecays": ["()"],
    "popart_core.Adam": [],
    "popart_core.Adam.insertSpecific": ["(arg0, arg1, /)"],
    "popart_core.Adam.beta1s": ["()"],
    "popart_core.Adam.beta2s": ["()"],
    "popart_core.Adam.epss": ["()"],
    "popart_core.Adam.learningRates": ["()"],
    "popart_core.Adam.maxWeightNorms": ["()"],
    "popart_core.Adam.weightDecays": ["()"],
    "popart_core.ConstSGD": [],
}


def found(name: str) -> Any:
    """What a dotted name stands for."""
    module, _, rest = name.partition(".")
    thing: Any = importlib.import_module(module)
    for part in rest.split("."):
        thing = getattr(thing, part)
    return thing


def parameters_of(thing: Any) -> list[inspect.Parameter]:
    """Those that a caller can give."""
    parameters = list(inspect.signature(thing).parameters.values())
    return parameters if inspect.isclass(thing) else parameters[1:]


def documented_parameters(text: str) -> list[tuple[str, str | None]]:
    """Names with defaults as they are written."""
    inner = text[1:-1]
    parts = [part for part in re.split(r", (?=\w+(?:=|,|$)|/)", inner) if part not in ("", "/")]
    return [(name, default or None) for name, _, default in (p.partition("=") for p in parts)]


def is_default(parameter: inspect.Parameter, documented: str) -> bool:
    """Whether a default is the one that a document writes down."""
    default = parameter.default
    if documented.startswith("<"):
        kind = documented.strip("<>").split(":")[0].split(" ")[0]
        return kind in (str(default), f"popart_core.{type(default).__name__}")
    if isinstance(default, float):
        return abs(default - float(documented)) < 1e-9
    return repr(default) == documented


@pytest.mark.parametrize("name", DOCUMENTED)
def test_it_has_a_documented_signature(name):
    thing = found(name)
    assert thing.__doc__
    if not DOCUMENTED[name]:
        assert inspect.isclass(thing)
        return
    given = {each.name.rstrip("_"): each for each in parameters_of(thing)}
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in given.values())
    for text in DOCUMENTED[name]:
        for parameter, default in documented_parameters(text):
            assert takes_any or parameter in given, text
            if default is not None and not takes_any:
                assert is_default(given[parameter], default), (text, parameter)


@pytest.mark.parametrize("name", [name for name, texts in DOCUMENTED.items() if len(texts) == 1])
def test_parameters_are_in_the_documented_order(name):
    expected = [parameter for parameter, _ in documented_parameters(DOCUMENTED[name][0])]
    assert [each.name.rstrip("_") for each in parameters_of(found(name))] == expected
