"""What it costs to move bytes between tiles, between IPUs, and to and from the host.

Cycles on one IPU, seconds beyond it. No number here is fitted: they are the target's, and
what the constants below name. But which form a formula has, such as on-chip ways at both
ends of a link, was chosen with the first generation's microbenchmarks in view, so how
these are met is no independent test. Median errors, by `benchmarks/fidelity_points.py`:
exchange on one IPU 9 %, 3 % without phases of a few tiles; links 6 %; host 7 %;
collectives 8 %, but 19 % for latencies of reductions, and a factor of two and a half in
bandwidths of broadcasts over IPUs and latencies of gathers over them.
"""

import math
from dataclasses import dataclass

from ipu_keras.compiler import vertices
from ipu_keras.compiler.vertex_rates import element_named
from ipu_keras.target import Target

# By proximity, a tile's word takes 37 to 98 ns (microbenchmarks).
_NEAREST_SHARE = 37 / 98
# Tiles that can receive the same at twice the rate come in pairs (poplibs,
# tilesPerSharedExchangeBus); the microbenchmarks see it with more than two receivers.
_MAX_UNSHARED_RECEIVERS = 2
# Instructions that set up each fragment, while payload of others moves (ipu-stack).
_FRAGMENT_CYCLES = 3
# IPUs come in pairs with four links inside, two to each neighbouring pair (poplibs' tests).
_OFF_BOARD_SHARE = 2 / 4
_IPUS_PER_BOARD = 2
# Tiles of several IPUs wait that long in each phase of a collective (auto pipeline).
_COLLECTIVE_IDLE_CYCLES = 3000
# Four IPUs share one host link, which is as wide as those of two (documents).
_IPUS_PER_HOST_LINK = 4
_HOST_LINK_WIDTH = 2


@dataclass(frozen=True)
class ExchangePhase:
    """What the busiest tile of one exchange between tiles of an IPU moves.

    Args:
        bytes_in: Received by the tile that receives most, in bytes.
        bytes_out: Sent by the tile that sends most, in bytes.
        is_shared: Whether pairs of tiles receive the same, and so use both their buses.
        num_fragments: Contiguous parts that the busiest tile sends or receives.
        num_tiles: Tiles that take part, one next to the other; all if absent.

    Raises:
        ValueError: A negative number of bytes, or no fragment or tile.
    """

    bytes_in: int
    bytes_out: int
    is_shared: bool = False
    num_fragments: int = 1
    num_tiles: int | None = None

    def __post_init__(self) -> None:
        _check_not_negative(bytes_in=self.bytes_in, bytes_out=self.bytes_out)
        _check_positive(num_fragments=self.num_fragments)
        if self.num_tiles is not None:
            _check_positive(num_tiles=self.num_tiles)


def exchange_cycles(target: Target, phase: ExchangePhase) -> int:
    """Cycles of one exchange on an IPU, without the synchronization before it.

    The busiest tile's bytes at the width of its bus, or the set-up of its fragments if
    that takes longer, and the way to the farthest tile. Source: poplibs, ConvModel;
    microbenchmarks for the way; ipu-stack for fragments.

    Args:
        target: The hardware.
        phase: What is moved.

    Returns:
        Tile cycles; none if nothing is moved.

    Example:

    4000 bytes at 4 bytes a cycle, and 157 to the farthest tile:

    >>> from ipu_keras.target import target_named
    >>> gc200 = target_named("gc200")
    >>> exchange_cycles(gc200, ExchangePhase(bytes_in=4000, bytes_out=100))
    1157
    >>> exchange_cycles(gc200, ExchangePhase(bytes_in=4000, bytes_out=100, is_shared=True))
    657
    """
    num_bytes = max(phase.bytes_in, phase.bytes_out)
    if num_bytes == 0:
        return 0
    rate = target.shared_exchange_bytes if phase.is_shared else target.exchange_bytes
    payload = math.ceil(num_bytes / rate)
    return max(payload, _FRAGMENT_CYCLES * phase.num_fragments) + _way_cycles(
        target, phase.num_tiles
    )


def sync_cycles(target: Target, num_ipus: int) -> int:
    """Cycles of the synchronization before an exchange or a compute set.

    Args:
        target: The hardware.
        num_ipus: IPUs whose tiles wait for one another.

    Raises:
        ValueError: `num_ipus` is not positive.
    """
    _check_positive(num_ipus=num_ipus)
    return target.sync_cycles if num_ipus == 1 else target.global_sync_cycles


def broadcast_cycles(target: Target, num_bytes: int, *, num_tiles: int, num_ipus: int = 1) -> int:
    """Cycles until tiles have the same bytes from one tile, synchronization included.

    Args:
        target: The hardware.
        num_bytes: Sent to each tile, in bytes.
        num_tiles: Tiles of each IPU that receive.
        num_ipus: IPUs whose tiles receive. Beyond one, only how long a few bytes take is
            checked against measurements: of many, they took up to three times as long.

    Raises:
        ValueError: A count that cannot be.

    Example:

    One word to every tile: 126 to synchronize, 3 to set up a fragment, 157 on the way.

    >>> from ipu_keras.target import target_named
    >>> broadcast_cycles(target_named("gc2"), 4, num_tiles=1216)
    286
    """
    is_shared = num_ipus == 1 and num_tiles > _MAX_UNSHARED_RECEIVERS
    phase = ExchangePhase(num_bytes, num_bytes, is_shared=is_shared, num_tiles=num_tiles)
    return _collective_cycles(target, phase, num_ipus)


def gather_cycles(target: Target, num_bytes: int, *, num_tiles: int, num_ipus: int = 1) -> int:
    """Cycles until one tile has the bytes of many, synchronization included.

    On one IPU the way costs nothing: near tiles send first, and are released before the
    last tile, for which synchronization is counted. What far tiles send arrives behind
    that. Source: microbenchmarks, in which 16, 304 and 1216 tiles took 134, 118 and 120
    cycles besides those of a word of each.

    Args:
        target: The hardware.
        num_bytes: Sent by each tile, in bytes.
        num_tiles: Tiles of each IPU that send.
        num_ipus: IPUs whose tiles send. Beyond one, measurements took about twice as long.

    Raises:
        ValueError: A count that cannot be.
    """
    received = num_bytes * num_tiles * num_ipus
    if num_ipus == 1:
        _check_positive(num_tiles=num_tiles)
        payload = math.ceil(received / target.exchange_bytes)
        return sync_cycles(target, num_ipus=1) + payload
    phase = ExchangePhase(bytes_in=received, bytes_out=num_bytes, num_tiles=num_tiles)
    return _collective_cycles(target, phase, num_ipus)


def scatter_cycles(target: Target, num_bytes: int, *, num_tiles: int, num_ipus: int = 1) -> int:
    """Cycles until many tiles have bytes of their own from one, synchronization included.

    Args:
        target: The hardware.
        num_bytes: Received by each tile, in bytes.
        num_tiles: Tiles of each IPU that receive.
        num_ipus: IPUs whose tiles receive.

    Raises:
        ValueError: A count that cannot be.
    """
    sent = num_bytes * num_tiles * num_ipus
    phase = ExchangePhase(bytes_in=num_bytes, bytes_out=sent, num_tiles=num_tiles)
    return _collective_cycles(target, phase, num_ipus)


def all_to_all_cycles(target: Target, num_bytes: int, *, num_tiles: int) -> int:
    """Cycles until each tile has bytes of each other one, synchronization included.

    Args:
        target: The hardware.
        num_bytes: From each tile to each other one, in bytes.
        num_tiles: Tiles that take part.

    Raises:
        ValueError: A count that cannot be.
    """
    moved = num_bytes * (num_tiles - 1)
    return _collective_cycles(target, ExchangePhase(moved, moved, num_tiles=num_tiles), 1)


def reduce_cycles(
    target: Target, *, dtype: str, num_elements: int, num_tiles: int, num_ipus: int = 1
) -> int:
    """Cycles of adding all that lies on the tiles to one number.

    Each tile first adds its own, even a single element. On one IPU the sums meet in two
    exchanges, on about the square root of the tiles and then on one, unless one exchange
    is faster. IPUs add theirs in pairs, then in pairs of pairs. Source: popops::reduce in
    poplibs for the stages on an IPU, the form of the measured latencies for those beyond.

    Args:
        target: The hardware.
        dtype: Of the elements.
        num_elements: On each tile.
        num_tiles: Of each IPU.
        num_ipus: That take part.

    Returns:
        Tile cycles, synchronization and the start of compute sets included.

    Raises:
        ValueError: A count that is not positive, or an unknown dtype.
    """
    _check_positive(num_elements=num_elements, num_tiles=num_tiles, num_ipus=num_ipus)
    num_bytes = element_named(dtype).num_bytes
    cycles = _add_cycles(target, dtype, num_elements)
    if num_tiles > 1:
        groups = math.isqrt(num_tiles)
        each = math.ceil(num_tiles / groups)
        cycles += min(
            _meet_cycles(target, dtype, num_tiles, num_tiles),
            _meet_cycles(target, dtype, each, num_tiles)
            + _meet_cycles(target, dtype, groups, num_tiles),
        )
    for hops in _doubling_hops(num_ipus):
        stage = _stage_seconds(target, num_bytes, hops=hops)
        cycles += math.ceil(stage * target.clock_hz) + _add_cycles(target, dtype, 2)
    return cycles


def link_seconds(
    target: Target, num_bytes: int, *, hops: int, off_board: bool | None = None
) -> float:
    """Seconds from the tiles of an IPU to those of another, without synchronization.

    Args:
        target: The hardware.
        num_bytes: In one direction, in bytes.
        hops: Links one behind the other.
        off_board: Whether the way leaves the pair of IPUs that has most links between
            them; more than one hop does. If absent, a single hop does not.

    Raises:
        ValueError: No such way.

    Example:

    A gigabyte to the other IPU of a pair of the first generation, at 55 GB/s:

    >>> from ipu_keras.target import target_named
    >>> round(link_seconds(target_named("gc2"), 10**9, hops=1), 5)
    0.01818
    """
    _check_positive(hops=hops)
    _check_not_negative(num_bytes=num_bytes)
    if hops > 1 and off_board is False:
        raise ValueError(
            "More than one hop leaves the board: leave out `off_board` or give a single hop. "
            f"Received: hops={hops}, off_board={off_board}"
        )
    bandwidth = target.link_bytes_per_second
    if off_board or hops > 1:
        bandwidth *= _OFF_BOARD_SHARE
    # Across both IPUs, to the link and from it.
    ways = 2 * target.exchange_latency_cycles / target.clock_hz
    return ways + hops * target.link_latency_seconds + num_bytes / bandwidth


def inter_ipu_copy_seconds(target: Target, num_bytes: int, *, source: int, to: int) -> float:
    """Seconds of a copy from the tiles of an IPU to those of another, synchronization included.

    The way is along a ladder of pairs: IPUs 0 and 1, 2 and 3 and so on are neighbours, as
    are the first, and the second, IPUs of neighbouring pairs.

    Args:
        target: The hardware.
        num_bytes: In bytes.
        source: Number of the IPU that has them.
        to: Number of the IPU that gets them.

    Raises:
        ValueError: Both are the same.

    Example:

    Between neighbours, 3,600 cycles of synchronization and waiting, 2 x 157 on chip, 0.16 us
    on the link, and 7000 bytes at 70 GB/s:

    >>> from ipu_keras.target import target_named
    >>> gc200 = target_named("gc200")
    >>> seconds = inter_ipu_copy_seconds(gc200, 7000, source=0, to=1)
    >>> round(seconds * gc200.clock_hz - 3600 - 314), round((0.16e-6 + 1e-7) * gc200.clock_hz)
    (346, 346)
    """
    pairs = abs(source // _IPUS_PER_BOARD - to // _IPUS_PER_BOARD)
    hops = pairs + (source % _IPUS_PER_BOARD != to % _IPUS_PER_BOARD)
    return _stage_seconds(target, num_bytes, hops=hops, off_board=pairs > 0)


def host_seconds(target: Target, num_bytes: int, *, num_ipus: int) -> float:
    """Seconds of a copy between the host and IPUs.

    Args:
        target: The hardware.
        num_bytes: To or from all IPUs together, in equal parts, in bytes.
        num_ipus: That the bytes are for.

    Raises:
        ValueError: A count that cannot be.

    Example:

    Four IPUs have the bandwidth of two:

    >>> from ipu_keras.target import target_named
    >>> seconds = host_seconds(target_named("gc2"), 10**10, num_ipus=4)
    >>> round(10**10 / seconds / 1e9, 2)
    11.72
    """
    _check_positive(num_ipus=num_ipus)
    _check_not_negative(num_bytes=num_bytes)
    boxes, rest = divmod(num_ipus, _IPUS_PER_HOST_LINK)
    width = boxes * _HOST_LINK_WIDTH + min(rest, _HOST_LINK_WIDTH)
    latency = target.host_latency_cycles / target.clock_hz
    return latency + num_bytes / (width * target.host_bytes_per_second)


def remote_seconds(target: Target, num_bytes: int, *, num_ipus: int) -> float:
    """Seconds of a copy between an IPU and the memory of its machine, synchronization included.

    Args:
        target: The hardware.
        num_bytes: Of one IPU, in bytes.
        num_ipus: That copy as much at the same time; those of a machine share its bandwidth.

    Raises:
        ValueError: A count that cannot be.

    Example:

    Alone, 20 GB/s; two of a machine have half of that each:

    >>> from ipu_keras.target import target_named
    >>> gc200 = target_named("gc200")
    >>> [round(remote_seconds(gc200, 10**9, num_ipus=n), 3) for n in (1, 2, 4, 16)]
    [0.05, 0.1, 0.2, 0.2]
    """
    _check_positive(num_ipus=num_ipus)
    _check_not_negative(num_bytes=num_bytes)
    bandwidth = target.remote_bytes_per_second / min(num_ipus, target.machine_ipus)
    return target.global_sync_cycles / target.clock_hz + num_bytes / bandwidth


def reduce_scatter_seconds(target: Target, num_bytes: int, *, num_ipus: int) -> float:
    """Seconds until each replica has its part of the sum of all, around a ring.

    Args:
        target: The hardware.
        num_bytes: That each IPU has to add, in bytes.
        num_ipus: Replicas, of one IPU each.

    Raises:
        ValueError: A count that cannot be.
    """
    part = _part_bytes(num_bytes, num_ipus)
    return (num_ipus - 1) * (
        _ring_stage_seconds(target, part, num_ipus) + _add_seconds(target, part)
    )


def all_gather_seconds(target: Target, num_bytes: int, *, num_ipus: int) -> float:
    """Seconds until each replica has the parts of all, around a ring.

    Args:
        target: The hardware.
        num_bytes: That each IPU has in the end, in bytes.
        num_ipus: Replicas, of one IPU each.

    Raises:
        ValueError: A count that cannot be.
    """
    part = _part_bytes(num_bytes, num_ipus)
    return (num_ipus - 1) * _ring_stage_seconds(target, part, num_ipus)


def all_reduce_seconds(target: Target, num_bytes: int, *, num_ipus: int) -> float:
    """Seconds until each replica has the sum of all.

    Around a ring, which moves the fewest bytes, or by doubling, which has the fewest
    stages: in each, all IPUs exchange everything with one that is twice as far, over links
    that as many share. The fastest counts.

    Args:
        target: The hardware.
        num_bytes: That each IPU has to add, in bytes.
        num_ipus: Replicas, of one IPU each.

    Raises:
        ValueError: A count that cannot be.

    Example:

    >>> from ipu_keras.target import target_named
    >>> gc200 = target_named("gc200")
    >>> all_reduce_seconds(gc200, 4096, num_ipus=1)
    0.0
    >>> all_reduce_seconds(gc200, 10**8, num_ipus=4) > all_reduce_seconds(
    ...     gc200, 10**8, num_ipus=2
    ... )
    True
    """
    ring = reduce_scatter_seconds(target, num_bytes, num_ipus=num_ipus)
    ring += all_gather_seconds(target, num_bytes, num_ipus=num_ipus)
    doubling = sum(
        _stage_seconds(target, num_bytes * hops, hops=hops, off_board=stage > 0)
        + _add_seconds(target, num_bytes)
        for stage, hops in enumerate(_doubling_hops(num_ipus))
    )
    return min(ring, float(doubling))


def all_to_all_seconds(target: Target, num_bytes: int, *, num_ipus: int) -> float:
    """Seconds until each replica has a part from each other one.

    The links in the middle of the ladder decide: half of the IPUs send their parts for
    the other half over the two columns.

    Args:
        target: The hardware.
        num_bytes: That each IPU has, in bytes: equal parts for all, itself included.
        num_ipus: Replicas, of one IPU each.

    Raises:
        ValueError: A count that cannot be.
    """
    part = _part_bytes(num_bytes, num_ipus)
    if num_ipus == 1:
        return 0.0
    if num_ipus == _IPUS_PER_BOARD:
        return _stage_seconds(target, part, hops=1)
    half = num_ipus // 2
    across = math.ceil(part * half * (num_ipus - half) / _IPUS_PER_BOARD)
    return _stage_seconds(target, across, hops=_farthest_hops(num_ipus), off_board=True)


def _way_cycles(target: Target, num_tiles: int | None) -> int:
    """From a tile to the farthest of some that are next to each other."""
    spanned = 1.0 if num_tiles is None else min(1.0, num_tiles / target.num_tiles)
    share = _NEAREST_SHARE + (1 - _NEAREST_SHARE) * spanned
    return round(share * target.exchange_latency_cycles)


def _collective_cycles(target: Target, phase: ExchangePhase, num_ipus: int) -> int:
    """Synchronization, and the exchange of one IPU or as far as the farthest one."""
    sync = sync_cycles(target, num_ipus)
    if num_ipus == 1:
        return sync + exchange_cycles(target, phase)
    payload = math.ceil(max(phase.bytes_in, phase.bytes_out) / target.exchange_bytes)
    links = link_seconds(target, 0, hops=_farthest_hops(num_ipus))
    return sync + payload + math.ceil(links * target.clock_hz)


def _farthest_hops(num_ipus: int) -> int:
    """Hops between opposite corners of a ladder of pairs."""
    return math.ceil(num_ipus / _IPUS_PER_BOARD)


def _doubling_hops(num_ipus: int) -> list[int]:
    """Hops between partners 1, 2, 4, ... apart, where pairs are the rungs of a ladder."""
    distances = [1 << stage for stage in range((num_ipus - 1).bit_length())]
    return [max(1, distance // _IPUS_PER_BOARD) for distance in distances]


def _add_cycles(target: Target, dtype: str, num_partials: int) -> int:
    """A compute set that adds all that is on a tile."""
    sums = vertices.reduce(
        target, operation="add", dtype=dtype, num_outputs=1, num_partials=num_partials
    )
    return target.launch_cycles + sums.cycles


def _meet_cycles(target: Target, dtype: str, num_partials: int, num_tiles: int) -> int:
    """Sums of tiles that are anywhere among some meet on one of them, and are added."""
    num_bytes = element_named(dtype).num_bytes
    phase = ExchangePhase(num_partials * num_bytes, num_bytes, num_tiles=num_tiles)
    return _collective_cycles(target, phase, 1) + _add_cycles(target, dtype, num_partials)


def _stage_seconds(
    target: Target, num_bytes: int, *, hops: int, off_board: bool | None = None
) -> float:
    """One exchange of a collective between IPUs."""
    waiting = (_COLLECTIVE_IDLE_CYCLES + target.global_sync_cycles) / target.clock_hz
    return waiting + link_seconds(target, num_bytes, hops=hops, off_board=off_board)


def _ring_stage_seconds(target: Target, num_bytes: int, num_ipus: int) -> float:
    return _stage_seconds(target, num_bytes, hops=1, off_board=num_ipus > _IPUS_PER_BOARD)


def _add_seconds(target: Target, num_bytes: int) -> float:
    """All tiles of an IPU add what they received; halves take as long for their bytes."""
    per_tile = math.ceil(num_bytes / target.num_tiles)
    added = vertices.elementwise(
        target,
        operation="add",
        dtype="float32",
        num_elements=math.ceil(per_tile / 4),
        num_operands=2,
    )
    return (target.launch_cycles + added.cycles) / target.clock_hz


def _part_bytes(num_bytes: int, num_ipus: int) -> int:
    _check_positive(num_ipus=num_ipus)
    _check_not_negative(num_bytes=num_bytes)
    return math.ceil(num_bytes / num_ipus)


def _check_positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"`{name}` must be positive. Received: {name}={count}")


def _check_not_negative(**counts: int) -> None:
    for name, count in counts.items():
        if count < 0:
            raise ValueError(f"`{name}` must not be negative. Received: {name}={count}")
