"""Costs moving bytes between tiles, between IPUs, and to and from the host.

Cycles on one IPU, seconds beyond it. The numbers are the target's, and the constants below.
"""

import math
from dataclasses import dataclass

from ipu_keras.cost.tile import vertices
from ipu_keras.machine.target import Target

# Which form a formula has, such as on-chip ways at both ends of a link, was chosen with the
# first generation's microbenchmarks in view.
#
# Instructions that set up what a tile sends, while payload of others moves (ipu-stack: three
# control words for each fragment overlap the payload).
_SET_UP_CYCLES = 3
# IPUs come in pairs with four links inside, two to each neighbouring pair (poplibs' tests). The
# microbenchmarks agree: 55.0 GB/s on a board, 27.7 off it.
_OFF_BOARD_SHARE = 2 / 4
_IPUS_PER_BOARD = 2
# Tiles of several IPUs wait that long in each phase of a collective (auto pipeline).
_COLLECTIVE_IDLE_CYCLES = 3000
# The four IPUs of a machine share a host link of 100 Gb/s, about that of two (documents).
_IPUS_PER_HOST_LINK = 4
_HOST_LINK_WIDTH = 2


@dataclass(frozen=True)
class ExchangePhase:
    """Bytes that the busiest receiver and the busiest sender of one exchange on an IPU move."""

    bytes_in: int
    bytes_out: int

    def __post_init__(self) -> None:
        _check_not_negative(bytes_in=self.bytes_in, bytes_out=self.bytes_out)


def exchange_cycles(target: Target, phase: ExchangePhase) -> int:
    """Returns the cycles of one exchange on an IPU, without the synchronization before it.

    Example:

    4000 bytes at 4 bytes a cycle, and 157 to the farthest tile:

    >>> from ipu_keras.machine.target import target_named
    >>> gc200 = target_named("gc200")
    >>> exchange_cycles(gc200, ExchangePhase(bytes_in=4000, bytes_out=100))
    1157
    """
    num_bytes = max(phase.bytes_in, phase.bytes_out)
    if num_bytes == 0:
        return 0
    # The busiest tile's bytes at the width of its bus, or its set-up if that takes longer, and
    # the way to the farthest tile. Source: poplibs, ConvModel; microbenchmarks for the way;
    # ipu-stack for the set-up.
    payload = math.ceil(num_bytes / target.exchange_bytes)
    return max(payload, _SET_UP_CYCLES) + target.exchange_latency_cycles


def sync_cycles(target: Target, num_ipus: int) -> int:
    """Returns the cycles of the synchronization before an exchange or a compute set."""
    _check_positive(num_ipus=num_ipus)
    return target.sync_cycles if num_ipus == 1 else target.global_sync_cycles


def link_seconds(
    target: Target, num_bytes: int, *, hops: int, off_board: bool | None = None
) -> float:
    """Returns the seconds from the tiles of an IPU to those of another, without synchronization.

    Args:
        off_board: Whether the way leaves the pair of IPUs that has most links between them; more
            than one hop does. If `None`, a single hop does not.

    Example:

    A gigabyte to the other IPU of a pair of the first generation, at 55 GB/s:

    >>> from ipu_keras.machine.target import target_named
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
    """Returns the seconds of a copy from an IPU's tiles to another's, synchronization included.

    Example:

    Between neighbours, 3,600 cycles of synchronization and waiting, 2 x 157 on chip, 0.16 us
    on the link, and 7000 bytes at 70 GB/s:

    >>> from ipu_keras.machine.target import target_named
    >>> gc200 = target_named("gc200")
    >>> seconds = inter_ipu_copy_seconds(gc200, 7000, source=0, to=1)
    >>> round(seconds * gc200.clock_hz - 3600 - 314), round((0.16e-6 + 1e-7) * gc200.clock_hz)
    (346, 346)
    """
    if source // target.rack_ipus != to // target.rack_ipus:
        return _gateway_stage_seconds(target, num_bytes, sharing=1, num_tensors=1)
    pairs = abs(source // _IPUS_PER_BOARD - to // _IPUS_PER_BOARD)
    # IPUs form a ladder of pairs: 0 and 1, 2 and 3 and so on are neighbours, as are the first,
    # and the second, IPUs of neighbouring pairs. The way is along a column, then over a rung.
    hops = pairs + (source % _IPUS_PER_BOARD != to % _IPUS_PER_BOARD)
    return _stage_seconds(target, num_bytes, hops=hops, off_board=pairs > 0)


def host_seconds(target: Target, num_bytes: int, *, num_ipus: int) -> float:
    """Returns the seconds in which IPUs together copy so many bytes to or from the host.

    Example:

    Four IPUs have the bandwidth of two:

    >>> from ipu_keras.machine.target import target_named
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
    """Returns the seconds of a copy between each of some IPUs and the memory of its machine.

    Example:

    Alone, 20 GB/s; two of a machine have half of that each:

    >>> from ipu_keras.machine.target import target_named
    >>> gc200 = target_named("gc200")
    >>> [round(remote_seconds(gc200, 10**9, num_ipus=n), 3) for n in (1, 2, 4, 16)]
    [0.05, 0.1, 0.2, 0.2]
    """
    _check_positive(num_ipus=num_ipus)
    _check_not_negative(num_bytes=num_bytes)
    # IPUs of a machine share its bandwidth. Synchronization is included.
    bandwidth = target.remote_bytes_per_second / min(num_ipus, target.machine_ipus)
    return target.global_sync_cycles / target.clock_hz + num_bytes / bandwidth


@dataclass(frozen=True)
class Members:
    """Replicas that take part in a collective, as links and gateways connect them.

    Args:
        num_replicas: Those of all racks together.
        in_rack: Those of a full rack, which links connect, while gateways connect racks. If all
            racks are not full, the full ones are waited for.
    """

    num_replicas: int
    in_rack: int

    @classmethod
    def of(cls, target: Target, num_replicas: int, *, ipus_each: int = 1) -> "Members":
        """Returns how neighbouring replicas are spread over racks.

        Example:

        A Pod256 has four racks, and a replica of four IPUs is one of 16 in each:

        >>> from ipu_keras.machine.target import target_named
        >>> members = Members.of(target_named("gc200"), 64, ipus_each=4)
        >>> members, members.racks
        (Members(num_replicas=64, in_rack=16), 4)
        """
        _check_positive(num_replicas=num_replicas, ipus_each=ipus_each)
        # A replica that is larger than a rack takes part from one of its racks.
        return cls(num_replicas, min(num_replicas, max(1, target.rack_ipus // ipus_each)))

    @property
    def racks(self) -> int:
        """Racks that replicas are in."""
        return math.ceil(self.num_replicas / self.in_rack)

    def part_bytes(self, num_bytes: int) -> int:
        """Returns the bytes of a member's part of a tensor that all of a rack share."""
        _check_not_negative(num_bytes=num_bytes)
        return math.ceil(num_bytes / self.in_rack)


def reduce_scatter_seconds(
    target: Target, num_bytes: int, members: Members, *, num_tensors: int = 1
) -> float:
    """Returns the seconds until each replica has its part of the sum of all.

    Parts are made around a ring in each rack, and then around one of racks, where each replica
    exchanges its part with those of the others that have the same.
    """
    part = members.part_bytes(num_bytes)
    across = math.ceil(part / members.racks)
    stage = _ring_stage_seconds(target, part, members.in_rack) + _add_seconds(target, part)
    between = _between_racks_seconds(target, across, num_tensors) + _add_seconds(target, across)
    return (members.in_rack - 1) * stage + (members.racks - 1) * between


def all_gather_seconds(
    target: Target, num_bytes: int, members: Members, *, num_tensors: int = 1
) -> float:
    """Returns the seconds until each replica has the parts of all, around rings.

    `num_bytes` are those that each has in the end.
    """
    part = members.part_bytes(num_bytes)
    across = math.ceil(part / members.racks)
    stage = _ring_stage_seconds(target, part, members.in_rack)
    between = _between_racks_seconds(target, across, num_tensors)
    return (members.in_rack - 1) * stage + (members.racks - 1) * between


def all_reduce_seconds(
    target: Target, num_bytes: int, members: Members, *, num_tensors: int = 1
) -> float:
    """Returns the seconds until each replica has the sum of all.

    Example:

    51 MB take 2.9 ms at half of 70 GB/s, to which 126 stages add 0.4 ms. In two racks, the
    parts of 0.8 MB cross at 6.25 GB/s, in 0.13 ms.

    >>> from ipu_keras.machine.target import target_named
    >>> gc200 = target_named("gc200")
    >>> for racks in (1, 2):
    ...     print(round(1e3 * all_reduce_seconds(gc200, 51 * 10**6, Members(64 * racks, 64)), 2))
    3.28
    3.42
    >>> all_reduce_seconds(gc200, 4096, Members(1, 1))
    0.0
    """
    # A ring moves the fewest bytes. Doubling has the fewest stages: in each, all IPUs exchange
    # everything with one that is twice as far, over links that as many share. The fastest
    # counts, and so it does between racks.
    rack = Members(members.in_rack, members.in_rack)
    ring = reduce_scatter_seconds(target, num_bytes, rack)
    ring += all_gather_seconds(target, num_bytes, rack)
    ring += _all_reduce_of_racks(target, members.part_bytes(num_bytes), members, num_tensors)
    doubling = sum(
        _stage_seconds(target, num_bytes * hops, hops=hops, off_board=stage > 0)
        + _add_seconds(target, num_bytes)
        for stage, hops in enumerate(_doubling_hops(members.in_rack))
    )
    doubling += _all_reduce_of_racks(target, num_bytes, members, num_tensors)
    return min(ring, float(doubling))


def all_to_all_seconds(
    target: Target, num_bytes: int, members: Members, *, num_tensors: int = 1
) -> float:
    """Returns the seconds until each replica has a part from each other one.

    `num_bytes` are what each has: equal parts for all, itself included.
    """
    _check_not_negative(num_bytes=num_bytes)
    num_ipus = members.in_rack
    part = math.ceil(num_bytes / members.num_replicas)
    seconds = 0.0
    if members.racks > 1:
        others = num_ipus * (members.racks - 1)
        seconds = _between_racks_seconds(target, part * others, num_tensors)
    if num_ipus == 1:
        return seconds
    if num_ipus == _IPUS_PER_BOARD:
        return seconds + _stage_seconds(target, part, hops=1)
    # The links in the middle of the ladder decide: half of the IPUs send their parts for the
    # other half over the two columns.
    half = num_ipus // 2
    across = math.ceil(part * half * (num_ipus - half) / _IPUS_PER_BOARD)
    return seconds + _stage_seconds(target, across, hops=_farthest_hops(num_ipus), off_board=True)


def _all_reduce_of_racks(
    target: Target, num_bytes: int, members: Members, num_tensors: int
) -> float:
    """Returns the seconds in which each replica sums with those at its place in other racks."""
    racks = members.racks
    part = math.ceil(num_bytes / racks)
    stage = _between_racks_seconds(target, part, num_tensors)
    ring = (racks - 1) * (2 * stage + _add_seconds(target, part))
    whole = _between_racks_seconds(target, num_bytes, num_tensors)
    doubling = (racks - 1).bit_length() * (whole + _add_seconds(target, num_bytes))
    return min(ring, doubling)


def _farthest_hops(num_ipus: int) -> int:
    """Returns the hops between opposite corners of a ladder of pairs."""
    return math.ceil(num_ipus / _IPUS_PER_BOARD)


def _doubling_hops(num_ipus: int) -> list[int]:
    """Returns the hops between partners 1, 2, 4, ... apart, where pairs are rungs of a ladder."""
    distances = [1 << stage for stage in range((num_ipus - 1).bit_length())]
    return [max(1, distance // _IPUS_PER_BOARD) for distance in distances]


def _stage_seconds(
    target: Target, num_bytes: int, *, hops: int, off_board: bool | None = None
) -> float:
    waiting = (_COLLECTIVE_IDLE_CYCLES + target.global_sync_cycles) / target.clock_hz
    return waiting + link_seconds(target, num_bytes, hops=hops, off_board=off_board)


def _ring_stage_seconds(target: Target, num_bytes: int, num_ipus: int) -> float:
    return _stage_seconds(target, num_bytes, hops=1, off_board=num_ipus > _IPUS_PER_BOARD)


def _between_racks_seconds(target: Target, num_bytes: int, num_tensors: int) -> float:
    # All IPUs of a machine send at once, pipelines' stages too: they update at the same time.
    return _gateway_stage_seconds(
        target, num_bytes, sharing=target.machine_ipus, num_tensors=num_tensors
    )


def _gateway_stage_seconds(
    target: Target, num_bytes: int, *, sharing: int, num_tensors: int
) -> float:
    """Returns the seconds to another rack, all of which are behind one switch.

    Each tensor has the latency, also where one collective has several: updates over racks take
    milliseconds longer than in one (MLPerf), of which the bytes explain tenths.
    """
    waiting = (_COLLECTIVE_IDLE_CYCLES + target.global_sync_cycles) / target.clock_hz
    ways = 2 * target.exchange_latency_cycles / target.clock_hz
    payload = num_bytes * sharing / target.gateway_bytes_per_second
    return waiting + ways + num_tensors * target.gateway_latency_seconds + payload


def _add_seconds(target: Target, num_bytes: int) -> float:
    """Returns the seconds in which an IPU's tiles add what they received; halves take as long."""
    per_tile = math.ceil(num_bytes / target.num_tiles)
    added = vertices.elementwise(
        target,
        operation="add",
        dtype="float32",
        num_elements=math.ceil(per_tile / 4),
        num_operands=2,
    )
    return (target.launch_cycles + added.cycles) / target.clock_hz


def _check_positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"`{name}` must be positive. Received: {name}={count}")


def _check_not_negative(**counts: int) -> None:
    for name, count in counts.items():
        if count < 0:
            raise ValueError(f"`{name}` must not be negative. Received: {name}={count}")
