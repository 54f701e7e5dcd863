"""The graph of operations of a small program."""

from html_reports import report

from ipu_keras.report.operation_graph import operation_graph


def test_what_each_takes():
    found = report()
    shape = "float32[1472, 64]"
    a, b, new = (row.cycles for row in found.rows)
    assert operation_graph(found.model, found.rows) == {
        "layers": ["first", "second", "sgd"],
        "operations": [
            [
                *("a", 0, "elementwise", "forward", a, [shape], ["add"]),
                [f"input x {shape}", f"variable w {shape}"],
            ],
            ["b", 1, "sort", "forward", b, [shape], ["sort"], [0]],
            [
                *("new", 2, "elementwise", "forward", new, [shape], ["multiply"]),
                [f"variable w {shape}", 1],
            ],
        ],
    }


def test_a_graph_of_too_many_is_cut():
    found = report()
    shown = operation_graph(found.model, found.rows, max_operations=1)
    assert [one[0] for one in shown["operations"]] == ["a"]
    assert shown["layers"] == ["first"]
