"""Figures as text and pages say them."""

from dataclasses import replace

import pytest
from small_reports import report

from ipu_keras.report.error_bands import ErrorBands, error_bands
from ipu_keras.report.figures_in_words import (
    bound_in_words,
    error_line,
    samples_in_words,
    throughput_in_words,
    verdict_in_words,
)
from ipu_keras.report.report import Report


@pytest.mark.parametrize(("host_cycles", "words"), [(10**9, "host"), (0, "IPU")])
def test_what_takes_longer(host_cycles, words):
    found = Report.of(replace(report().model, host_cycles=host_cycles))
    assert bound_in_words(found) == words
    assert f"bound by the {words}\n" in str(found)


@pytest.mark.parametrize(
    ("num_replicas", "words"),
    [(1, "1,472 in a step"), (2, "1,472 in a step on each of 2 replicas")],
)
def test_samples(num_replicas, words):
    found = report(batch_size=1472, num_replicas=num_replicas)
    assert samples_in_words(found) == words
    assert f" samples/s, {words} " in " ".join(str(found).split())


def test_the_range_of_throughput():
    """Twice too fast, 0.8 times as fast, and of a model of another one, which does not count."""
    known = error_bands().programs[0]
    ran = [replace(known, reference="hardware", throughput=ratio) for ratio in (2.0, None, 0.8)]
    other = replace(known, reference="another model", throughput=9.0)
    bands = replace(error_bands(), programs=(*ran, other))
    found = replace(report(batch_size=16), error_bands=bands)
    modelled = found.samples_per_second
    assert found.throughput_range == pytest.approx((modelled / 2, modelled / 0.8))
    assert throughput_in_words(modelled, bands) == (
        f"{modelled:,.0f} ({modelled / 2:,.0f} to {modelled / 0.8:,.0f})"
    )
    assert found.to_dict()["throughput_range"] == list(found.throughput_range)
    assert replace(found, batch_size=None).to_dict()["throughput_range"] is None


def test_a_verdict_says_what_takes_the_memory():
    found = report()
    memory = found.model.memory
    most, *_ = sorted(memory.bytes_by_category.items(), key=lambda item: -item[1])
    words = verdict_in_words(found)
    assert words.startswith(
        f"It fits: tile {memory.worst_tile}, the fullest, needs {memory.max_tile_bytes:,} of "
        f"638,976 bytes; of all tiles' bytes, {most[0].replace('_', ' ')} "
        f"{most[1] / memory.total_bytes:.0%}, "
    )


def test_a_close_verdict():
    """Between what errors of whole programs allow, and with guessed code alone beyond."""
    found = report()
    memory = found.model.memory
    least, most = found.fullest_tile_range
    near = replace(memory, tile_bytes=(max(least, memory.max_tile_bytes) + most) // 2)
    code = replace(memory, code_region_bytes=memory.code_bytes - 1)
    for one, words in ((near, "It fits"), (code, "It does not fit")):
        said = verdict_in_words(Report.of(replace(found.model, memory=one)))
        assert said.startswith(f"{words}, but too closely to say: tile ")


def test_a_program_far_too_large_does_not_fit():
    model = report().model
    memory = replace(model.memory, tile_bytes=1000)
    assert verdict_in_words(Report.of(replace(model, memory=memory))).startswith(
        "It does not fit: "
    )


def test_the_error_in_one_line():
    ratios = [one.throughput for one in error_bands().programs if one.reference == "hardware"]
    assert error_line(error_bands()) == (
        f"Of whole programs on hardware, the model said {min(ratios):.2f} to {max(ratios):.2f} "
        "times the throughput that was measured"
    )
    nothing = ErrorBands(bands=(), points=(), programs=())
    assert error_line(nothing) == "The model was compared with no whole program on hardware"
