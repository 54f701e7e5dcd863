import keras
import pytest
from staged_models import (
    KINDS,
    assign,
    dense,
    functional,
    made_subclass,
    raises,
    sequential,
    stages,
)

from ipu_keras.keras.extensions import (
    FunctionalLayerPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    PipelineStage,
    SequentialLayerPipelineStageAssignment,
)
from ipu_keras.keras.extensions.model_pipeline import print_summary


@pytest.fixture(params=KINDS)
def model(strategy, request):
    with strategy.scope():
        return request.param()


# Assignments


def test_no_layer_has_a_stage_at_first(model):
    assignment = model.get_pipeline_stage_assignment()
    assert [(entry.layer.name, entry.pipeline_stage) for entry in assignment] == [
        ("a", None),
        ("b", None),
        ("a", None),
    ]
    assert model._ipu.stages.pipeline(True, 4) is None
    assert model._ipu.stages.pipeline(False, 4) is None


def test_stages_that_are_set(model):
    assign(model, [0, 1, 1])
    first, second = (model.get_pipeline_stage_assignment() for _ in range(2))
    assert [entry.pipeline_stage for entry in first] == [0, 1, 1]
    first[0].pipeline_stage = 7
    assert second[0].pipeline_stage == 0
    assert stages(model) == [0, 1, 1]


@pytest.mark.parametrize("build", [sequential, made_subclass])
def test_integers(strategy, build):
    with strategy.scope():
        model = build()
    model.set_pipeline_stage_assignment([0, 0, 1])
    assert stages(model) == [0, 0, 1]
    with raises(ValueError, "-1 is not a valid pipeline stage.\nStages are integers"):
        model.set_pipeline_stage_assignment([0, -1, 1])
    assert stages(model) == [0, 0, 1]


def test_a_functional_model_takes_no_integers(strategy):
    with strategy.scope():
        model = functional()
    message = (
        "All elements of `pipeline_stage_assignment` need to be instances of "
        "FunctionalLayerPipelineStageAssignment. Received: 0 at index 0"
    )
    with raises(ValueError, message):
        model.set_pipeline_stage_assignment([0, 0, 1])


@pytest.mark.parametrize("assignment", [(0, 1, 1), None, "011", 3])
def test_what_is_no_list(model, assignment):
    message = (
        "`pipeline_stage_assignment` needs to be a list.\nReceived: pipeline_stage_assignment="
        f"{assignment!r} of type {type(assignment).__name__}"
    )
    with raises(ValueError, message):
        model.set_pipeline_stage_assignment(assignment)


@pytest.mark.parametrize("length", [0, 2, 4])
def test_a_list_of_another_length(model, length):
    message = (
        f"The length of the provided `pipeline_stage_assignment` ({length}) does not match the "
        "number of layers in the graph (3)."
    )
    with raises(ValueError, message):
        model.set_pipeline_stage_assignment([0] * length)


def test_another_order(model):
    assignment = model.get_pipeline_stage_assignment()
    for entry, stage in zip(assignment, (1, 0, 1), strict=True):
        entry.pipeline_stage = stage
    message = "`pipeline_stage_assignment` needs to have the order of `get_pipeline_stage_assignm"
    with raises(ValueError, message):
        model.set_pipeline_stage_assignment([assignment[i] for i in (1, 0, 2)])
    assert stages(model) == [None] * 3


def test_calls_of_a_layer_in_another_order(strategy):
    with strategy.scope():
        models = functional(), made_subclass()
    for model in models:
        first, middle, last = model.get_pipeline_stage_assignment()
        message = "`pipeline_stage_assignment` needs to have the order of"
        with pytest.raises(ValueError, match=rf"^{message}.* call 1,.* where call 0 of a is exp"):
            model.set_pipeline_stage_assignment([last, middle, first])


def test_mixed_entries(strategy):
    with strategy.scope():
        model = sequential()
    layers = model.layers
    message = (
        "All elements of `pipeline_stage_assignment` need to be integers or all instances of "
        "SequentialLayerPipelineStageAssignment. Received: "
    )
    entry = SequentialLayerPipelineStageAssignment(layers[0], 0)
    with raises(ValueError, f"{message}1 at index 1"):
        model.set_pipeline_stage_assignment([entry, 1, 1])
    for mixed in ([0, "1", 1], ["1", 0, 1], [0, 1, "1"], ["1", entry, 1]):
        with raises(ValueError, f"{message}'1' at index {mixed.index('1')}"):
            model.set_pipeline_stage_assignment(mixed)
    assert stages(model) == [None] * 3
    other = ModelLayerPipelineStageAssignment(layers[1], 0, 1)
    with raises(ValueError, f"{message}{other!r} at index 1"):
        model.set_pipeline_stage_assignment([entry, other, entry])


def test_assignments_that_users_make(strategy):
    with strategy.scope():
        model = functional()
    entries = [
        FunctionalLayerPipelineStageAssignment(entry.layer, entry.node_index, stage)
        for entry, stage in zip(model.get_pipeline_stage_assignment(), (0, 1, 2), strict=True)
    ]
    model.set_pipeline_stage_assignment(entries)
    assert stages(model) == [0, 1, 2]


@pytest.mark.parametrize(
    ("assigned", "of_graph", "of_sequence"),
    [
        ([0, None, 1], "However, b has not been assigned", "However, b has not been assigned"),
        ([0, 1, 0], "Layer a in pipeline stage 0 has a dependency", "Layer a has been assigned to"),
        ([0, 2, 2], "All stages in a pipeline must have", "Layer b has been assigned to pipeline"),
        ([1, 1, 1], "All stages in a pipeline must have", "The first layer in a pipelined sequ"),
    ],
)
def test_stages_that_cannot_be(model, assigned, of_graph, of_sequence):
    message = of_sequence if isinstance(model, keras.Sequential) else of_graph
    with pytest.raises((ValueError, RuntimeError), match=message):
        assign(model, assigned)
    assert stages(model) == [None] * 3


def test_what_was_compiled_for_other_stages_is_dropped(model):
    model.train_function = print
    assign(model, [0, 1, 1])
    assert model.train_function is None
    model.predict_function = print
    model.reset_pipeline_stage_assignment()
    assert model.predict_function is None


def test_a_reset(staged):
    staged.reset_pipeline_stage_assignment()
    assert stages(staged) == [None] * 3
    assert staged._ipu.stages.pipeline(True, 4) is None


def test_a_reset_of_what_scopes_have_assigned(strategy):
    with strategy.scope():
        with PipelineStage(0):
            layer = dense("a")
        model = keras.Sequential([keras.Input([2]), layer])
    assert stages(model) == [0]
    model.reset_pipeline_stage_assignment()
    assert stages(model) == [None]
    assign(model, [0])
    assert stages(model) == [0]


def test_what_is_set_goes_before_the_scopes(strategy):
    with strategy.scope():
        inputs = keras.Input([2])
        with PipelineStage(1):
            x = dense("a")(inputs)
            model = keras.Model(inputs, dense("b")(x))
    assign(model, [0, 1])
    assert stages(model) == [0, 1]


def test_layers_added_later(strategy):
    with strategy.scope():
        model = sequential()
    model.set_pipeline_stage_assignment([0, 1, 1])
    model.add(dense("more"))
    with raises(ValueError, "The length of the provided `pipeline_stage_assignment` (3) does not"):
        model._ipu.stages.pipeline(False, 4)


def test_a_sequential_model_before_it_is_built(strategy):
    with strategy.scope():
        model = keras.Sequential([dense("a"), dense("b")])
    model.set_pipeline_stage_assignment([0, 1])
    assert model._ipu.stages.pipeline(False, 2).num_stages == 2


def test_inbound_layers(strategy):
    with strategy.scope():
        models = functional(), made_subclass()
    names = [
        [[layer.name for layer in entry.inbound_layers] for entry in assignment]
        for assignment in (model.get_pipeline_stage_assignment() for model in models)
    ]
    inputs = models[0].inputs[0]._keras_history[0].name
    assert names == [[[inputs], ["a"], ["b"]], [[], ["a"], ["b"]]]


def test_a_summary(staged):
    lines = []
    staged.print_pipeline_stage_assignment_summary(line_length=70, print_fn=lines.append)
    assert lines[0] == f'Model: "{staged.name}"'
    rows = [line.split() for line in lines[4:-1]]
    assert [(row[0], row[-1]) for row in rows] == [("a", "0"), ("b", "1"), ("a", "1")]
    assert max(map(len, lines)) == 70


def test_a_summary_on_the_screen(staged, capsys):
    staged.print_pipeline_stage_assignment_summary()
    assert capsys.readouterr().out.splitlines()[1] == "_" * 98


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
