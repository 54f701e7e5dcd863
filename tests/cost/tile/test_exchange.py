"""Exchange, links, collectives and host against figures by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.cost.tile import exchange
from ipu_keras.cost.tile.exchange import ExchangePhase, Members, exchange_cycles
from ipu_keras.machine.target import target_named

GC2, GC200 = target_named("gc2"), target_named("gc200")
BYTES = st.integers(1, 10**9)
IPUS = st.integers(2, 64)
MEMBERS = st.builds(lambda n, racks: Members(n * racks, n), IPUS, st.integers(1, 5))
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
        # 3 cycles to set up, which as many bytes take too.
        (ExchangePhase(4, 4), 3 + 157),
        (ExchangePhase(13, 4), 4 + 157),
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
    assert exchange.all_gather_seconds(GC200, 4 * 10**6, Members(4, 4)) == pytest.approx(around)
    # 10**6 / 1472 are 680 bytes, 170 floats, 29 for a worker, 15 vectors.
    adding = (81 + 11 + 6 * (29 + 15 * 3)) * cycle
    ring = around + 3 * adding
    assert exchange.reduce_scatter_seconds(GC200, 4 * 10**6, Members(4, 4)) == pytest.approx(ring)
    # 2 of 4 IPUs send 2 of 4 parts of 1 MB to the others over 2 columns, 2 hops.
    across = stage + 0.16e-6 + 2e6 / 35e9
    assert exchange.all_to_all_seconds(GC200, 4 * 10**6, Members(4, 4)) == pytest.approx(across)
    # In a pair half of it crosses, at full width.
    pair = stage + 2e6 / 70e9
    assert exchange.all_to_all_seconds(GC200, 4 * 10**6, Members(2, 2)) == pytest.approx(pair)
    # A word is exchanged in two stages of doubling, not in six around the ring.
    word = 2 * (stage + (81 + 11 + 6 * (29 + 3)) * cycle) + 4 / 70e9 + 4 / 35e9
    assert exchange.all_reduce_seconds(GC200, 4, Members(4, 4)) == pytest.approx(word)


@pytest.mark.parametrize(
    ("num_replicas", "ipus_each", "in_rack", "racks"),
    [
        (1, 1, 1, 1),
        (48, 1, 48, 1),
        (64, 1, 64, 1),  # a Pod64
        # A full rack, and what is left.
        (65, 1, 64, 2),
        (96, 1, 64, 2),
        (256, 1, 64, 4),  # a Pod256
        (64, 4, 16, 4),
        # Replicas of two racks each take part from one.
        (2, 128, 1, 2),
    ],
)
def test_racks(num_replicas, ipus_each, in_rack, racks):
    members = Members.of(GC200, num_replicas, ipus_each=ipus_each)
    assert (members.num_replicas, members.in_rack, members.racks) == (num_replicas, in_rack, racks)


@pytest.mark.parametrize("num_bytes", [4, 10**6, 10**8])
@pytest.mark.parametrize("ipus_each", [1, 3, 16])
# In an all-to-all, parts get smaller.
@pytest.mark.parametrize("collective", REPLICATED[:3])
def test_more_replicas_are_never_faster(collective, ipus_each, num_bytes):
    members = [Members.of(GC200, count, ipus_each=ipus_each) for count in range(1, 257)]
    seconds = [collective(GC200, num_bytes, each) for each in members]
    assert seconds == sorted(seconds)


def test_collectives_of_racks():
    cycle = 1 / 1.33e9
    stage = (3000 + 600 + 314) * cycle + 0.16e-6
    # A machine has two ports of 12.5 GB/s for four IPUs.
    gateway, share = (3000 + 600 + 314) * cycle + 9.3e-6, 6.25e9
    racks = Members(16, in_rack=4)
    # Quarters of 1 MB, three times around the ring of four racks, and parts of 1 MB in each.
    around = 3 * (stage + 1e6 / 35e9) + 3 * (gateway + 0.25e6 / share)
    assert exchange.all_gather_seconds(GC200, 4 * 10**6, racks) == pytest.approx(around)
    # Of 680 and of 170 bytes, or 15 and 4 vectors of a worker, a tile adds.
    adding = 3 * (81 + 11 + 6 * (29 + 15 * 3)) * cycle + 3 * (81 + 11 + 6 * (29 + 4 * 3)) * cycle
    found = exchange.reduce_scatter_seconds(GC200, 4 * 10**6, racks)
    assert found == pytest.approx(around + adding)
    # Ten tensors wait ten times for the gateways in each stage: two of doubling take less time
    # than six around the ring.
    inside = 6 * (stage + 1e6 / 35e9) + 3 * (81 + 11 + 6 * (29 + 15 * 3)) * cycle
    doubling = gateway + 9 * 9.3e-6 + 1e6 / share + (81 + 11 + 6 * (29 + 15 * 3)) * cycle
    found = exchange.all_reduce_seconds(GC200, 4 * 10**6, racks, num_tensors=10)
    assert found == pytest.approx(inside + 2 * doubling)
    # Sixteenths of 4 MB: 2 of 4 IPUs to 2 others over 2 columns, and all to twelve elsewhere.
    across = stage + 0.16e-6 + 0.5e6 / 35e9 + gateway + 12 * 0.25e6 / share
    assert exchange.all_to_all_seconds(GC200, 4 * 10**6, racks) == pytest.approx(across)


def test_a_copy_to_another_rack():
    ways = (3000 + 600 + 314) / 1.33e9
    # Alone, over both ports of the machine.
    found = exchange.inter_ipu_copy_seconds(GC200, 25 * 10**6, source=63, to=64)
    assert found == pytest.approx(ways + 9.3e-6 + 1e-3)


@pytest.mark.parametrize("collective", REPLICATED)
@given(fewer=BYTES, more=BYTES, members=MEMBERS)
def test_more_bytes_are_never_faster(collective, fewer, more, members):
    fewer, more = sorted((fewer, more))
    assert 0 < collective(GC200, fewer, members) <= collective(GC200, more, members)
    assert collective(GC200, more, Members(1, 1)) == 0


@given(BYTES, MEMBERS)
def test_all_reduce_is_bounded(num_bytes, members):
    seconds = exchange.all_reduce_seconds(GC200, num_bytes, members)
    scattered = exchange.reduce_scatter_seconds(GC200, num_bytes, members)
    gathered = exchange.all_gather_seconds(GC200, num_bytes, members)
    # No IPU can do with less than everything through its widest link.
    assert num_bytes / GC200.link_bytes_per_second < seconds
    assert seconds <= (scattered + gathered) * (1 + 1e-12)


@pytest.mark.parametrize("collective", REPLICATED)
@given(num_bytes=BYTES, in_rack=IPUS, racks=st.integers(2, 5))
def test_other_racks_and_more_tensors_take_longer(collective, num_bytes, in_rack, racks):
    alone = collective(GC200, num_bytes, Members(racks, 1))
    together = collective(GC200, num_bytes, Members(racks, 1), num_tensors=3)
    # Between two and five racks are at least one stage.
    assert together - alone >= 2 * 9.29e-6
    within = collective(GC200, num_bytes, Members(in_rack, in_rack))
    assert within == collective(GC200, num_bytes, Members(in_rack, in_rack), num_tensors=3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ExchangePhase(-1, 0), "`bytes_in` must not be negative. Received: bytes_in=-1"),
        (lambda: ExchangePhase(0, -4), "`bytes_out` must not be negative. Received: bytes_out=-4"),
        (lambda: exchange.sync_cycles(GC2, 0), "`num_ipus` must be positive. Received: num_ipus=0"),
        (lambda: exchange.link_seconds(GC2, 1, hops=0), "`hops` must be positive"),
        (
            lambda: exchange.link_seconds(GC2, 1, hops=2, off_board=False),
            "leaves the board: .* Received: hops=2, off_board=False",
        ),
        (lambda: exchange.host_seconds(GC2, -4, num_ipus=1), "num_bytes=-4"),
        (lambda: exchange.all_reduce_seconds(GC2, -4, Members(2, 2)), "num_bytes=-4"),
        (lambda: Members.of(GC2, 0), "num_replicas=0"),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
