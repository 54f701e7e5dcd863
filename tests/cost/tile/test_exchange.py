"""Exchange, links, collectives and host against figures by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.cost.tile import exchange
from ipu_keras.cost.tile.exchange import ExchangePhase, exchange_cycles
from ipu_keras.machine.target import target_named

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
        (lambda: ExchangePhase(0, -4), "`bytes_out` must not be negative. Received: bytes_out=-4"),
        (lambda: exchange.sync_cycles(GC2, 0), "`num_ipus` must be positive. Received: num_ipus=0"),
        (lambda: exchange.link_seconds(GC2, 1, hops=0), "`hops` must be positive"),
        (
            lambda: exchange.link_seconds(GC2, 1, hops=2, off_board=False),
            "leaves the board: .* Received: hops=2, off_board=False",
        ),
        (lambda: exchange.host_seconds(GC2, -4, num_ipus=1), "num_bytes=-4"),
        (lambda: exchange.all_reduce_seconds(GC2, 4, num_ipus=0), "num_ipus=0"),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
