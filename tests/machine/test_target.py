"""The hardware's numbers: complete, with sources, and consistent with each other."""

import dataclasses

import pytest

from ipu_keras.machine.target import (
    TARGETS,
    VERSIONS,
    Confidence,
    Provenance,
    target_named,
    target_of_version,
)


@pytest.mark.parametrize(
    ("name", "memory", "half", "single"),
    # Bytes of an IPU, and TFLOPS of both precisions as the datasheets have them.
    [
        ("gc2", 318_767_104, 124.5e12, 31.1e12),
        ("gc200", 940_572_672, 250.6e12, 62.6e12),
        ("bow", 940_572_672, 348.6e12, 87.1e12),
        ("c600", 940_572_672, 280e12, 70e12),
    ],
)
def test_peaks_of_an_ipu(name, memory, half, single):
    target = target_named(name)
    per_second = target.num_tiles * target.clock_hz
    assert target.ipu_bytes == memory
    assert per_second * max(target.amp_flops.values()) == pytest.approx(half, rel=1e-2)
    assert per_second * target.amp_flops["float32", "float32"] == pytest.approx(single, rel=1e-2)


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_a_tile_is_made_of_elements_and_code_has_some_of_them(target):
    for size in (target.tile_bytes, target.code_region_bytes):
        assert size % target.memory_element_bytes == 0
    assert target.code_region_bytes <= target.tile_bytes
    assert target.interleaved_bytes == {"gc2": 128 * 1024}.get(target.name, 416 * 1024)
    smaller = target.with_numbers(tile_bytes=1000)  # of which all is the region of instructions
    assert smaller.interleaved_bytes == 1000


def test_another_name():
    with pytest.raises(ValueError, match=r"one of gc2, gc200, bow, c600\. Received: target='gc3'"):
        target_named("gc3")


def test_the_target_of_a_generation():
    for version, name in VERSIONS.items():
        whole = TARGETS[name]
        assert target_of_version(version) is whole
        assert target_of_version(version, whole.num_tiles) is whole
    small = target_of_version("ipu1", 4)
    assert (small.num_tiles, small.provenance["num_tiles"].source) == (4, "caller")
    with pytest.raises(ValueError, match=r"one of ipu1, ipu2, ipu21\. Received: version='ipu3'"):
        target_of_version("ipu3")
    for tiles in (-1, 1217):
        message = rf"at most 1216, .* version 'ipu1' has\. Received: num_tiles={tiles}"
        with pytest.raises(ValueError, match=message):
            target_of_version("ipu1", tiles)


def test_numbers_of_the_caller():
    target = TARGETS["bow"].with_numbers(tile_bytes=1000)
    assert target.tile_bytes == 1000
    assert target.provenance["tile_bytes"] == Provenance("caller", Confidence.GUESSED)
    assert target.provenance["clock_hz"] == TARGETS["bow"].provenance["clock_hz"]
    with pytest.raises(ValueError, match=r"Received: \['tiles'\]"):
        target.with_numbers(tiles=4)


@pytest.mark.parametrize(
    ("provenance", "message"),
    [({}, "without a source for .*'clock_hz'"), ({"clock_hz": Provenance("hearsay")}, "hearsay")],
)
def test_a_number_without_a_source_is_refused(provenance, message):
    known = TARGETS["gc200"].provenance if provenance else {}
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TARGETS["gc200"], provenance={**known, **provenance})
