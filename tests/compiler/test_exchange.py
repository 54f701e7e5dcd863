"""Exchange, links, collectives and host against figures by hand and against hardware."""

import functools
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fidelity_points import comparisons
from ipu_keras.compiler import exchange
from ipu_keras.compiler.exchange import ExchangePhase, exchange_cycles
from ipu_keras.target import target_named

GC2, GC200 = target_named("gc2"), target_named("gc200")
BYTES = st.integers(1, 10**9)
IPUS = st.integers(2, 64)
REPLICATED = [
    exchange.all_reduce_seconds,
    exchange.all_gather_seconds,
    exchange.reduce_scatter_seconds,
    exchange.all_to_all_seconds,
]


@pytest.mark.parametrize(
    ("phase", "cycles"),
    [
        (ExchangePhase(0, 0), 0),
        # 4 bytes a cycle, and 157 to the farthest tile.
        (ExchangePhase(4001, 8), 1001 + 157),
        (ExchangePhase(8, 4001), 1001 + 157),
        (ExchangePhase(4001, 8, is_shared=True), 501 + 157),
        # 3 cycles for a fragment, while payload moves.
        (ExchangePhase(4000, 8, num_fragments=333), 1000 + 157),
        (ExchangePhase(4000, 8, num_fragments=500), 1500 + 157),
        # Half of the tiles: 157 * (37 + 98) / 2 / 98 = 108.1.
        (ExchangePhase(4000, 8, num_tiles=736), 1000 + 108),
        # Next to each other: 157 * 37 / 98 = 59.3, and 0.1 for the one next to it.
        (ExchangePhase(4000, 8, num_tiles=1), 1000 + 59),
    ],
)
def test_a_phase(phase, cycles):
    assert exchange_cycles(GC200, phase) == cycles


@given(*[st.integers(0, 10**6)] * 4)
def test_a_phase_takes_as_long_as_its_slower_direction(bytes_in, bytes_out, more_in, more_out):
    fewer = exchange_cycles(GC200, ExchangePhase(bytes_in, bytes_out))
    more = exchange_cycles(GC200, ExchangePhase(bytes_in + more_in, bytes_out + more_out))
    assert fewer <= more
    assert fewer == exchange_cycles(GC200, ExchangePhase(bytes_out, bytes_in))


def test_patterns_on_an_ipu():
    # Of 126 + 157: 4864 bytes at 3.96 are 1229 cycles, at 7.8 they are 624.
    assert exchange.gather_cycles(GC2, 4, num_tiles=1216) == 126 + 1229
    assert exchange.scatter_cycles(GC2, 4, num_tiles=1216) == 283 + 1229
    assert exchange.broadcast_cycles(GC2, 4864, num_tiles=1216) == 283 + 624
    assert exchange.all_to_all_cycles(GC2, 4, num_tiles=1217) == 283 + 1229
    # Two receivers next to each other do not share a bus.
    assert exchange.broadcast_cycles(GC2, 4864, num_tiles=2) == 126 + 59 + 1229


def test_patterns_on_several_ipus():
    # 500 to synchronize, 2 ways of 157, a hop of 256 cycles for each pair; 2 * 1216 words
    # at 3.96 bytes are 2457 cycles.
    assert exchange.scatter_cycles(GC2, 4, num_tiles=1216, num_ipus=2) == 500 + 570 + 2457
    assert exchange.gather_cycles(GC2, 4, num_tiles=1216, num_ipus=2) == 500 + 570 + 2457
    assert exchange.broadcast_cycles(GC2, 8, num_tiles=1216, num_ipus=16) == 500 + 314 + 2048 + 3


def test_reduction():
    reduce = functools.partial(exchange.reduce_cycles, GC2, dtype="float32", num_elements=1)
    # Vertices of one output: 81 + 11 + 6 * (57 + 2 for each 2), without exchange.
    assert reduce(num_tiles=1) == 446
    # 1216 tiles in 34 groups of at most 36: 144 and 136 bytes are 37 and 35 cycles.
    in_groups = (126 + 157 + 37) + 81 + 11 + 6 * (57 + 36)
    of_groups = (126 + 157 + 35) + 81 + 11 + 6 * (57 + 34)
    on_ipu = 446 + in_groups + of_groups
    assert reduce(num_tiles=1216) == on_ipu == 2372
    # Idle, synchronization, 2 ways, a hop, 0.1 for 4 bytes; 2 numbers are added.
    stage = 3000 + 500 + 314 + 256 + 1 + 446
    assert reduce(num_tiles=1216, num_ipus=2) == on_ipu + stage
    # 16 IPUs: partners are 1, 1, 2 and 4 hops apart.
    assert reduce(num_tiles=1216, num_ipus=16) == on_ipu + 4 * stage + (0 + 0 + 1 + 3) * 256
    # Few tiles meet at once.
    assert reduce(num_tiles=2) == 446 + 126 + 59 + 3 + 446


def test_links():
    fixed = 314 / 1.6e9
    assert exchange.link_seconds(GC2, 0, hops=1) == pytest.approx(fixed + 0.16e-6)
    near = fixed + 0.16e-6 + 55e6 / 55e9
    assert exchange.link_seconds(GC2, 55_000_000, hops=1) == pytest.approx(near)
    far = fixed + 0.48e-6 + 55e6 / 27.5e9
    assert exchange.link_seconds(GC2, 55_000_000, hops=3) == pytest.approx(far)
    off_board = exchange.link_seconds(GC2, 55_000_000, hops=1, off_board=True)
    assert off_board == pytest.approx(far - 0.32e-6)


@pytest.mark.parametrize(
    ("num_ipus", "width"), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 3), (8, 4), (16, 8)]
)
def test_four_ipus_share_the_host_link_of_two(num_ipus, width):
    # 160000 cycles at 1.33 GHz, 7 GB/s for each IPU's width.
    expected = 160_000 / 1.33e9 + 7e9 / (width * 7e9)
    assert exchange.host_seconds(GC200, 7 * 10**9, num_ipus=num_ipus) == pytest.approx(expected)


def test_collectives_of_replicas():
    cycle = 1 / 1.33e9
    stage = (3000 + 600 + 314) * cycle + 0.16e-6
    # A quarter of 4 MB at half of 70 GB/s, three times around the ring.
    around = 3 * (stage + 1e6 / 35e9)
    assert exchange.all_gather_seconds(GC200, 4 * 10**6, num_ipus=4) == pytest.approx(around)
    # 10**6 / 1472 are 680 bytes, 170 floats, 29 for a worker, 15 vectors.
    adding = (81 + 11 + 6 * (29 + 15 * 3)) * cycle
    ring = around + 3 * adding
    assert exchange.reduce_scatter_seconds(GC200, 4 * 10**6, num_ipus=4) == pytest.approx(ring)
    # 2 of 4 IPUs send 2 of 4 parts of 1 MB to the others over 2 columns, 2 hops.
    across = stage + 0.16e-6 + 2e6 / 35e9
    assert exchange.all_to_all_seconds(GC200, 4 * 10**6, num_ipus=4) == pytest.approx(across)
    # In a pair half of it crosses, at full width.
    pair = stage + 2e6 / 70e9
    assert exchange.all_to_all_seconds(GC200, 4 * 10**6, num_ipus=2) == pytest.approx(pair)
    # A word is exchanged in two stages of doubling, not in six around the ring.
    word = 2 * (stage + (81 + 11 + 6 * (29 + 3)) * cycle) + 4 / 70e9 + 4 / 35e9
    assert exchange.all_reduce_seconds(GC200, 4, num_ipus=4) == pytest.approx(word)


@pytest.mark.parametrize("collective", REPLICATED)
@given(fewer=BYTES, more=BYTES, num_ipus=IPUS)
def test_more_bytes_are_never_faster(collective, fewer, more, num_ipus):
    fewer, more = sorted((fewer, more))
    assert collective(GC200, fewer, num_ipus=num_ipus) > 0
    assert collective(GC200, fewer, num_ipus=num_ipus) <= collective(GC200, more, num_ipus=num_ipus)
    assert collective(GC200, more, num_ipus=1) == 0


@given(BYTES, IPUS)
def test_all_reduce_is_bounded(num_bytes, num_ipus):
    seconds = exchange.all_reduce_seconds(GC200, num_bytes, num_ipus=num_ipus)
    scattered = exchange.reduce_scatter_seconds(GC200, num_bytes, num_ipus=num_ipus)
    gathered = exchange.all_gather_seconds(GC200, num_bytes, num_ipus=num_ipus)
    # No IPU can do with less than everything through its widest link.
    assert num_bytes / GC200.link_bytes_per_second < seconds <= scattered + gathered


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ExchangePhase(-1, 0), "`bytes_in` must not be negative. Received: bytes_in=-1"),
        (lambda: ExchangePhase(0, 0, num_fragments=0), "`num_fragments` must be positive"),
        (lambda: ExchangePhase(0, 0, num_tiles=0), "`num_tiles` must be positive"),
        (lambda: exchange.sync_cycles(GC2, 0), "`num_ipus` must be positive. Received: num_ipus=0"),
        (lambda: exchange.link_seconds(GC2, 1, hops=0), "`hops` must be positive"),
        (
            lambda: exchange.link_seconds(GC2, 1, hops=2, off_board=False),
            "leaves the board: .* Received: hops=2, off_board=False",
        ),
        (lambda: exchange.host_seconds(GC2, -4, num_ipus=1), "num_bytes=-4"),
        (lambda: exchange.all_reduce_seconds(GC2, 4, num_ipus=0), "num_ipus=0"),
        (lambda: exchange.all_to_all_cycles(GC2, 4, num_tiles=0), "Received"),
        (
            lambda: exchange.reduce_cycles(GC2, dtype="f4", num_elements=1, num_tiles=1),
            "Received: dtype='f4'",
        ),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# Largest median error by category, over the list that calibrates and over all points.
GOALS = {
    "on-chip exchange": (0.05, 0.10),
    "links": (0.20, 0.20),
    "collectives": (0.20, 0.20),
    "host": (0.20, 0.20),
    "vertices": (0.05, 0.05),
}


@pytest.mark.parametrize("category", GOALS)
def test_hardware_is_met(category):
    points = [point for point in comparisons() if point.category == category]
    listed = [abs(point.error) for point in points if point.id.startswith("V")]
    assert median(listed) <= GOALS[category][0], points
    assert median(abs(point.error) for point in points) <= GOALS[category][1], points


def test_every_point_that_can_be_predicted_is_compared():
    compared = [point.id for point in comparisons()]
    assert len(set(compared)) == len(compared)
    assert {f"V{number:02}" for number in range(3, 25)} | {"V26", "V27", "V28", "V29"} == {
        name for name in compared if name.startswith("V")
    }
