"""What layers of programs that are built by hand have in memory."""

from html_reports import pipelined, report

from ipu_keras.report.layers import layers_of_values

KEYS = ("parameters", "variable_bytes", "activation_bytes", "peak_bytes")


def held(found):
    return {layer.name: tuple(getattr(layer, key) for key in KEYS) for layer in found.layers}


def test_what_layers_have():
    """`w` is of the first layer that adds it, though the optimizer writes it; so is its update."""
    size = 1472 * 64 * 4
    found = report()
    program, memory = found.model.program, found.model.memory
    assert layers_of_values(program)["w"] == "first"
    layers = held(found)
    assert layers["first"][:2] == (1472 * 64, size)
    assert layers["second"][:2] == layers["sgd"][:2] == (0, 0)
    # `a` takes over the memory of `x`, which is nobody's, and `new` is written where `w` lies.
    assert (layers["first"][2], layers["second"][2], layers["sgd"][2]) == (0, size, 0)
    assert sum(one[1] for one in layers.values()) == memory.bytes_by_category["variables"]
    # At the peak, `b` is sorted.
    assert memory.peak_position == 1
    assert [layers[name][3] for name in ("first", "second", "sgd")] == [size, size, 0]


def test_they_are_the_rows_by_layer():
    found = report()
    assert [layer.name for layer in found.layers] == [row.name for row in found.by("layer")]
    for layer, row in zip(found.layers, found.by("layer"), strict=True):
        assert (layer.cycles, layer.flops, layer.confidence) == (
            row.cycles,
            row.flops,
            row.confidence,
        )


def test_sums_of_gradients_are_no_parameters():
    """A stage has a matrix of 64 x 64, and as many bytes again for its gradients."""
    layers = held(pipelined())
    for stage in range(4):
        parameters, variable_bytes, *_ = layers[f"l{stage}"]
        assert (parameters, variable_bytes) == (64 * 64, 2 * 64 * 64 * 4)


def test_layers_in_json_and_text():
    found = report()
    plain = {layer.pop("name"): layer for layer in found.to_dict()["layers"]}
    for layer in found.layers:
        assert plain[layer.name] == {
            **{key: getattr(layer, key) for key in KEYS},
            "flops": layer.flops,
            "cycles": layer.cycles,
        }
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in str(found).splitlines()]
    (line,) = (one for one in cells if one and one[0] == "first")
    layer = next(one for one in found.layers if one.name == "first")
    assert line[1:] == [
        "94,208",
        "0.1",
        "368.0",
        "368.0",
        f"{layer.cycles:,}",
        f"{layer.cycles / found.busy_cycles:.1%}",
        "derived",
    ]
