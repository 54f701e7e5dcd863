"""A timeline in Perfetto's own format, a protocol buffer."""

from typing import TYPE_CHECKING

from ipu_keras.report.libraries import needs_report_extra
from ipu_keras.report.timeline import MEMORY, TRACKS, IpuTimeline, Slice, Timeline

if TYPE_CHECKING:
    from perfetto.trace_builder.proto_builder import TraceProtoBuilder

# All packets name one writer: Perfetto keeps its order at equal times, and a slice's end is written
# before the next beginning.
_SEQUENCE = 1


def perfetto_trace(timeline: Timeline) -> bytes:
    """Returns the content of a `.pftrace` file: equal bytes for equal timelines.

    Each IPU is a process with a track for host copies, layers and phases, and a counter of the
    memory in use, in bytes. Times are nanoseconds.
    """
    with needs_report_extra("A Perfetto trace"):
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder
    builder = TraceProtoBuilder()
    for number, ipu in enumerate(timeline.ipus):
        _Process(builder, number, timeline.clock_hz).write(ipu)
    return builder.serialize()


class _Process:
    def __init__(self, builder: "TraceProtoBuilder", number: int, clock_hz: float) -> None:
        self._builder = builder
        self._nanoseconds = 1e9 / clock_hz
        self._pid = number + 1  # 0 is a system's idle process
        # Tracks have numbers that are unique in the trace, the process being one of them.
        names = [*TRACKS, MEMORY]
        self._uuid = 1 + number * (1 + len(names))
        self._uuids = {name: self._uuid + 1 + rank for rank, name in enumerate(names)}

    def write(self, ipu: IpuTimeline) -> None:
        self._describe(ipu.name)
        for one in ipu.slices:
            self._slice(one)
        for sample in ipu.memory:
            self._event(sample.start, "TYPE_COUNTER", MEMORY).counter_value = sample.num_bytes

    def _describe(self, name: str) -> None:
        process = self._builder.add_packet().track_descriptor
        process.uuid = self._uuid
        process.child_ordering = process.EXPLICIT
        process.process.pid = self._pid
        process.process.process_name = name
        for rank, (track, uuid) in enumerate(self._uuids.items()):
            descriptor = self._builder.add_packet().track_descriptor
            descriptor.uuid = uuid
            descriptor.parent_uuid = self._uuid
            descriptor.name = track
            descriptor.sibling_order_rank = rank
            if track == MEMORY:
                descriptor.counter.unit = descriptor.counter.UNIT_SIZE_BYTES

    def _slice(self, one: Slice) -> None:
        begin = self._event(one.start, "TYPE_SLICE_BEGIN", one.track)
        begin.name = one.name
        for name, value in one.details.items():
            annotation = begin.debug_annotations.add()
            annotation.name = name
            if isinstance(value, int):
                annotation.int_value = value
            else:
                annotation.string_value = value
        self._event(one.start + one.cycles, "TYPE_SLICE_END", one.track)

    def _event(self, cycle: int, kind: str, track: str):
        packet = self._builder.add_packet()
        # Moments are rounded, not durations: an end and the beginning that follows are the same
        # cycle, so no gap comes between them.
        packet.timestamp = round(cycle * self._nanoseconds)
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.track_event.type = packet.track_event.Type.Value(kind)
        packet.track_event.track_uuid = self._uuids[track]
        return packet.track_event
