"""How much memory code and vertices need, by pencil and paper."""

from ipu_keras.cost.flat.memory import Overhead
from ipu_keras.cost.tile.cost import Cost
from ipu_keras.cost.vertices.code import overhead_of
from ipu_keras.machine.target import TARGETS

GC200 = TARGETS["gc200"]


def test_compute_sets_of_one_type_share_their_code():
    map_ = Cost(num_vertices=1, tiles=1472, vertex="map add float32", exchange_bytes=4)
    fill = Cost(num_vertices=2, tiles=736, vertex="fill float32")
    wait = Cost()
    assert overhead_of([map_, map_, fill, wait], GC200) == Overhead(
        vertex_code=2 * 512,
        vertex_state=3 * 24,
        control_code=4 * 24,
        exchange_code=2 * 48,
        # What is left of the memory element that the code ends in.
        gaps=16 * 1024 - 1024 - 96 - 96,
        stack=GC200.stack_bytes,
    )


def test_of_an_operation_of_several_compute_sets_each_counts():
    part = Cost(num_vertices=1, tiles=1472, vertex="map add float32", exchange_bytes=4)
    whole = Cost(num_vertices=9, tiles=1472, vertex="Reversal", exchange_bytes=8, parts=(part,) * 2)
    assert overhead_of([whole], GC200) == overhead_of([part, part], GC200)
