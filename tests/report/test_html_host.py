"""Pictures of executions on the host, from moments that are made up."""

import dataclasses

import pytest
from html_tree import read_html
from small_reports import report

from ipu_keras.program.executions import Execution
from ipu_keras.report import html
from ipu_keras.report.html_host import HOST_WORKS, HostBar, host_picture

# Waits 2 ms and 6 ms, executes 3 ms and 5 ms, and has 4 ms in between.
EXECUTIONS = (
    Execution(waited=2_000_000, began=12_000_000, ended=15_000_000),
    Execution(waited=6_000_000, began=25_000_000, ended=30_000_000),
)


def page(found):
    return read_html(html.page(found))


def test_a_picture():
    found = host_picture(EXECUTIONS, 0.001)
    assert found.bars == (
        HostBar(0, "exchange", 0, 2_000_000),
        HostBar(0, "forward", 2_000_000, 3_000_000),
        HostBar(1, "update", 2_000_000, 1_000_000),
        HostBar(0, "exchange", 9_000_000, 6_000_000),
        HostBar(0, "forward", 15_000_000, 5_000_000),
        HostBar(1, "update", 15_000_000, 1_000_000),
    )
    assert found.nanoseconds == 20_000_000
    assert (found.executing, found.waiting, found.between) == pytest.approx((4e-3, 4e-3, 4e-3))


def test_an_ipu_that_is_slower_than_the_host():
    """Its first execution begins after 2 ms, the next one when that is done."""
    found = host_picture(EXECUTIONS, 0.1)
    assert [bar.start for bar in found.bars if bar.lane == 1] == [2_000_000, 102_000_000]
    assert found.nanoseconds == 202_000_000
    assert host_picture(EXECUTIONS[:1], 0.1).between == 0


def test_the_last_of_many():
    many = [Execution(waited=0, began=10 * k, ended=10 * k + 5 + k) for k in range(20)]
    found = host_picture(many, 1e-9)
    assert (found.num_shown, found.num_executions) == (16, 20)
    assert found.bars[1] == HostBar(0, "forward", 0, 9)
    assert found.executing == pytest.approx(14.5e-9)


def test_the_section_of_a_page():
    assert host_picture((), 0.1) is None
    whole = page(dataclasses.replace(report(), executions=EXECUTIONS))
    section = whole.section("host")
    assert "#host" in [link.attributes["href"] for link in whole.all("nav")[0].all("a")]
    assert [one.text for one in section.all("title")][:2] == [
        "waits for data: 2.00 ms",
        "executes: 3.00 ms",
    ]
    bars = [(one.attributes["x"], one.attributes["width"]) for one in section.all("rect")]
    assert bars[:2] == [("0.0", "1000.0"), ("1000.0", "1500.0")]
    text = " ".join(section.all("p")[1].text.split())
    assert "This host took 4.00 ms for an execution" in text
    assert "waited 4.00 ms for its data, and had 4.00 ms between executions" in text
    assert "dataset_benchmark" not in text
    assert [one.text.strip() for one in section.all("li")][-3:] == [*HOST_WORKS.values()]


def test_a_slow_input_is_told_what_measures_it():
    slow = dataclasses.replace(report(), executions=EXECUTIONS[1:])
    assert "dataset_benchmark" in page(slow).section("host").all("p")[1].text
