"""What users are told when TensorFlow's executor, and not XLA, ran a step that failed."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from ipu_keras import popart

FLOAT, INT32, INT64, BOOL = (getattr(TensorProto, n) for n in ("FLOAT", "INT32", "INT64", "BOOL"))
INPUTS = {"x": (FLOAT, [4]), "good": (INT32, [2]), "bad": (INT32, [2]), "on": (BOOL, [])}
DATA = {"x": np.ones(4, np.float32), "good": np.int32([1, 2]), "bad": np.int32([1, 9])}
# XLA computes no step with a convolution of few passes.
IMAGES = {"image": (FLOAT, [1, 3, 8, 8]), "kernel": (FLOAT, [3, 3, 3, 3])}


def look_up(indices, output, name=""):
    return helper.make_node("Gather", ["x", indices], [output], name=name)


def graph_of(nodes, inputs, outputs):
    infos = [
        [helper.make_tensor_value_info(name, *each) for name, each in side.items()]
        for side in (inputs, outputs)
    ]
    return helper.make_graph(nodes, "graph", *infos)


def branch(indices, output):
    return graph_of([look_up(indices, output, "within")], {}, {output: (FLOAT, [2])})


def loop():
    body = graph_of(
        [
            look_up("bad", "found", "within"),
            helper.make_node("Identity", ["on_before"], ["on_after"]),
            helper.make_node("Add", ["before", "found"], ["after"]),
        ],
        {"count": (INT64, []), "on_before": (BOOL, []), "before": (FLOAT, [2])},
        {"on_after": (BOOL, []), "after": (FLOAT, [2])},
    )
    times = helper.make_tensor("times", INT64, [], [3])
    return [
        helper.make_node("Constant", [], ["times"], value=times),
        look_up("good", "start"),
        helper.make_node("Loop", ["times", "on", "start"], ["y"], body=body, name="outer"),
    ]


def run(session_of, nodes, batches=1, replicas=1, **options):
    inputs = {**INPUTS, **IMAGES}
    nodes = [*nodes, helper.make_node("Conv", list(IMAGES), ["other"])]
    graph = graph_of(nodes, inputs, {"y": (FLOAT, None), "other": (FLOAT, None)})
    opsets = [helper.make_opsetid("", 11)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=6).SerializeToString()
    if replicas > 1:
        options |= {"enableReplicatedGraphs": True, "replicatedGraphCount": replicas}
    session, anchors = session_of(proto, ["y", "other"], batches, replicas, **options)
    images = {name: np.zeros(shape, np.float32) for name, (_, shape) in IMAGES.items()}
    data = {**DATA, "on": np.array(True), **images}
    count = batches * replicas
    session.run(popart.PyStepIO({n: np.stack([a] * count) for n, a in data.items()}, anchors))


@pytest.mark.parametrize(
    ("nodes", "title"),
    [
        ([look_up("bad", "y", "look up")], "Gather 'look up'"),
        ([look_up("good", "p", "layer"), look_up("bad", "y", "layer/1")], "Gather 'layer/1'"),
        ([look_up("bad", "p"), helper.make_node("Identity", ["p"], ["y"])], "Gather 'p'"),
        # TensorFlow gives the second one of a name another name, whatever its letters' case.
        ([look_up("good", "p", "Look"), look_up("bad", "y", "look")], "Gather 'look'"),
        # Its own names may be those of nodes.
        ([look_up("bad", "y", "tensors_0")], "Gather 'tensors_0'"),
        (loop(), "Loop 'outer'"),
        (
            [
                helper.make_node(
                    "If",
                    ["on"],
                    ["y"],
                    then_branch=branch("bad", "then"),
                    else_branch=branch("good", "else"),
                    name="choice",
                )
            ],
            "If 'choice'",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
@pytest.mark.parametrize("batches", [1, 3])
def test_the_node_that_failed_and_why(session_of, nodes, title, batches):
    with pytest.raises(popart.popart_exception) as error:
        run(session_of, nodes, batches)
    assert str(error.value) == f"In {title}: indices[1] = 9 is not in [0, 4)"


def test_of_replicas_and_with_checks_of_numbers(session_of):
    with pytest.raises(popart.popart_exception, match=r"^In Gather 'y': indices\[1\] = 9 is not"):
        run(session_of, [look_up("bad", "y")], 2, 2, enableFloatingPointChecks=True)


def test_beside_random_numbers_and_an_input_that_nothing_uses(session_of):
    drawn = helper.make_node("RandomNormal", [], ["drawn"], shape=[2])
    added = helper.make_node("Add", ["found", "drawn"], ["y"])
    # Nothing takes `on`.
    run(session_of, [look_up("good", "found"), drawn, added], 3)
    with pytest.raises(popart.popart_exception, match=r"^In Gather 'found': indices\[1\] = 9 is"):
        run(session_of, [look_up("bad", "found"), drawn, added], 3)


def test_of_several_nodes_with_one_name_the_one_that_failed(session_of):
    nodes = [
        look_up("good", "p", "a"),
        helper.make_node("GatherND", ["x", "bads"], ["y"], name="a"),
    ]
    column = helper.make_node("Unsqueeze", ["bad"], ["bads"], axes=[1])
    with pytest.raises(popart.popart_exception) as error:
        run(session_of, [column, *nodes])
    # Without what TensorFlow calls it.
    assert str(error.value) == (
        "In GatherND 'a': indices[1] = [9] does not index into param shape [4]"
    )
