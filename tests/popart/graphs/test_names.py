"""Names are unique where one tensor can see another."""

from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.popart.graphs.names import Names


def added(names: Names, name: str) -> str:
    new = names.new(name)
    names.add([new])
    return new


def test_what_is_taken_gets_a_number():
    names = Names()
    assert [added(names, "Add:0") for _ in range(3)] == ["Add:0", "Add:0/1", "Add:0/2"]
    assert names.new("Sub:0", ["Sub:0"]) == "Sub:0/1"


def test_scopes_come_first():
    names = Names()
    names.open_scope("a")
    names.open_scope("b")
    assert added(names, "x") == "a/b/x"
    names.close_scope()
    assert names.in_scope("x") == "a/x"
    assert added(names, "b/x") == "a/b/x/1"
    names.close_scope()
    assert names.in_scope("") == ""


def test_graphs_side_by_side_may_use_one_name():
    main = Names()
    branches = [Names(main), Names(main)]
    assert [added(branch, "Neg:0") for branch in branches] == ["Neg:0", "Neg:0"]
    # What is within is seen from around it, and the other way round.
    assert added(main, "Neg:0") == "Neg:0/1"
    assert added(Names(branches[0]), "Neg:0") == "Neg:0/2"


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["x", "y", "x/1"]))))
def test_no_name_is_twice_in_a_line_of_graphs(additions):
    graphs = [Names()]
    for _ in range(3):
        graphs.append(Names(graphs[-1]))
    made = [added(graphs[position], name) for position, name in additions]
    assert len(set(made)) == len(made)
