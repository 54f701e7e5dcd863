"""What copies and updates of parts cost."""

from graph_costs import LAUNCH, TILES, costs, program_costs
from hlo_graphs import argument, graph, inner_parameter, op, variable

from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.in_place import share_memory


def test_an_update_of_a_part_stays_in_place():
    # The slice's elements are copied; the rest stays, so a later reader finds all of it there.
    found = costs(
        argument("x", TILES * 32),
        argument("part", 32),
        argument("at"),
        op("y", "dynamic-update-slice", (TILES * 32,), "x", "part", "at"),
        op("z", "add", (TILES * 32,), "y", "x"),
        results=("y", "z"),
    )
    assert found["z"].exchange_bytes == 0


def test_an_update_of_what_somebody_needs_works_on_a_copy():
    # 32 of 64 floats on each tile are 3 vectors for a worker; the copy moves all 256 bytes, a
    # word at a time.
    ops = [
        argument("x", TILES * 64),
        argument("part", TILES * 32),
        op("at", "constant", (), dtype="int32", value=0),
        op("y", "dynamic-update-slice", (TILES * 64,), "x", "part", "at"),
    ]
    alone = costs(*ops)["y"]
    beside = costs(*ops, results=("x", "y"))["y"]
    assert alone.compute_cycles == 6 * (27 + 29 + 3 + 13) + LAUNCH
    assert beside.compute_cycles == alone.compute_cycles + 288 + 256 // 4 + LAUNCH
    assert beside.sync_cycles == alone.sync_cycles == 0
    assert (alone.detail, beside.detail) == ("", "on a copy")


def test_a_loop_copies_what_it_carries_without_exchange():
    inner = inner_parameter("i", TILES * 64)
    body = graph(inner, op("next", "reverse", (TILES * 64,), "i", dimensions=(0,)))
    condition = graph(inner, op("more", "compare", (), "i"))
    whole = op("while", "while", (TILES * 64,), "w", body=("condition", "body"), trip_count=3)
    functions = {"condition": condition, "body": body}
    program = flatten(graph(variable("w", TILES * 64), whole, functions=functions))
    found = program_costs(share_memory(program))
    # The variable stays as it is, so the loop works on a copy where it lies.
    first, again = found["while:0"], found["while/body/carried:0"]
    assert first.compute_cycles == again.compute_cycles == 288 + 256 // 4 + LAUNCH
    # A reversed array lies elsewhere.
    assert (first.exchange_bytes, again.exchange_bytes) == (0, 256)
