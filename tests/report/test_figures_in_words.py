"""Figures as text and pages say them."""

from dataclasses import replace

import pytest
from small_reports import report

from ipu_keras.report import Report
from ipu_keras.report.figures_in_words import bound_in_words, samples_in_words


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
    assert f" samples/s, {words}\n" in str(found)
