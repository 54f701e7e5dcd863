"""The tree of programs that are built by hand."""

from hlo_graphs import argument, graph, inner_parameter, loop, op
from html_reports import pipelined, report

from ipu_keras.report.program_tree import program_tree


def tree(found, **options):
    return program_tree(found.model, found.rows, **options)


def shape(nodes):
    """Names of nodes, with those of their children."""
    return [(one.name, shape(one.children)) if one.children else one.name for one in nodes]


def test_layers_in_the_order_of_execution():
    found = report()
    (forward,) = tree(found)
    assert shape([forward]) == [
        ("forward", [("first", ["a"]), ("second", ["b"]), ("sgd", ["new"])])
    ]
    assert (forward.cycles, forward.num_compute_sets) == (found.busy_cycles, 3)
    first = forward.children[0]
    assert first.children[0].row == found.rows[0]
    assert (first.cycles, first.row) == (found.rows[0].cycles, None)


def test_a_loop_has_a_body():
    (forward,) = tree(report(loop(5)))
    body = ("body", [("(no layer)", ["while/body/next"])])
    assert shape([forward]) == [("forward", [("loop while", [body]), ("(no layer)", ["y"])])]
    (inside,) = forward.children[0].children[0].children[0].children
    assert inside.row.repeat == 5


def test_a_loop_in_a_branch():
    condition = graph(inner_parameter("i", 4), op("more", "compare", (), "i"))
    body = graph(inner_parameter("i", 4), op("next", "negate", (4,), "i"))
    looped = op("while", "while", (4,), "a", body=("condition", "body"), trip_count=9)
    first = graph(inner_parameter("a", 4), looped)
    second = graph(inner_parameter("b", 4), op("c", "sort", (4,), "b", dimensions=(0,)))
    either = op(
        "if", "conditional", (4,), "p", "x", "x", body=("first", "second"), num_branch_inputs=(1, 1)
    )
    functions = {"first": first, "second": second, "condition": condition, "body": body}
    of = graph(
        op("p", "parameter", (), dtype="bool", role="argument"),
        argument("x", 4),
        either,
        functions=functions,
    )
    (forward,) = tree(report(of))
    names = [name for name, _ in shape(forward.children)]
    assert names == ["conditional if"]
    branches = dict(shape(forward.children[0].children))
    assert branches.keys() == {"branch 0", "branch 1"}
    assert branches["branch 0"][0][0] == "loop if/branch0/while"


def test_stages_have_phases():
    found = shape(tree(pipelined()))
    assert [name for name, _ in found[:4]] == [f"stage {k}" for k in range(4)]
    for _, ((phase, _), *_) in found[:4]:
        assert phase == "forward"
    assert "weight update" in [name for name, _ in found]


def test_a_tree_of_too_many_ends_at_layers():
    assert shape(tree(report(), max_compute_sets=2)) == [("forward", ["first", "second", "sgd"])]
