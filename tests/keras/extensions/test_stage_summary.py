import keras

from ipu_keras.keras.extensions import (
    FunctionalLayerPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
)
from ipu_keras.keras.extensions.stage_summary import print_summary


def printed(assignments, line_length=None):
    lines = []
    print_summary("model", assignments, line_length, lines.append)
    return lines


def test_layers():
    layers = keras.layers.Dense(1, name="a"), keras.layers.ReLU(name="b")
    assignments = [
        SequentialLayerPipelineStageAssignment(layer, stage)
        for layer, stage in zip(layers, (0, None), strict=True)
    ]
    assert printed(assignments, 60) == [
        'Model: "model"',
        "_" * 60,
        "Layer (type)                                  Pipeline Stage",
        "=" * 60,
        "a (Dense)                                     0",
        "b (ReLU)                                      None",
        "_" * 60,
    ]


def test_calls():
    inputs = keras.Input([1], name="in")
    layer, add = keras.layers.Dense(1, name="a"), keras.layers.Add(name="add")
    add([layer(layer(inputs)), inputs])
    lines = printed(
        [
            FunctionalLayerPipelineStageAssignment(layer, 1, 0),
            FunctionalLayerPipelineStageAssignment(add, 0, 1),
        ]
    )
    assert {len(line) for line in lines if set(line) <= set("_=")} == {98}
    columns = [line.split("  ") for line in lines[2:6:1] if "=" not in line]
    assert [[column.strip() for column in row if column] for row in columns] == [
        ["Layer (type) (node index)", "Input Layers", "Pipeline Stage"],
        ["a (Dense) (1)", "a", "0"],
        ["add (Add) (0)", "a, in", "1"],
    ]


def test_long_names_are_cut():
    layer = keras.layers.Dense(1, name="long" * 20)
    lines = printed([SequentialLayerPipelineStageAssignment(layer, 0)], 40)
    assert lines[4] == "longlonglonglonglonglongl 0"
