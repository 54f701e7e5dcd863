"""What reports say of the model's error is what the comparison with hardware gives."""

import dataclasses
import re
from pathlib import Path

import fidelity
import fidelity_convolutions
import fidelity_points
import fidelity_programs
import fidelity_refits
import hlo_programs
import poplibs
import pytest
import tensorflow as tf
from html_reports import report
from measured import Comparison
from scipy.stats import spearmanr

import ipu_keras
from ipu_keras.machine.target import TARGETS
from ipu_keras.report.error_bands import (
    Band,
    BenchmarkError,
    ErrorBands,
    PointError,
    ProgramError,
    error_bands,
)

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "cost-model.md"


@pytest.fixture(scope="module")
def points():
    return fidelity.comparisons()


@pytest.fixture(scope="module")
def found(points):
    return fidelity.error_bands(points, fidelity_programs.comparisons(), poplibs.errors())


def test_reports_say_what_the_comparison_gives(found):
    assert error_bands() == found, "run `python benchmarks/fidelity.py --write`"


def test_the_documentation_shows_the_same():
    tables = fidelity.markdown(error_bands())
    assert tables in PAGE.read_text("utf-8"), "run `python benchmarks/fidelity.py --markdown`"


def test_the_documentation_shows_what_numbers_are_without_each_network(points):
    layers = [point for point in points if point.id.startswith("convolution-")]
    table = fidelity_refits.markdown(fidelity_refits.refits(layers))
    assert table in PAGE.read_text("utf-8"), "run `python benchmarks/fidelity.py --refits`"


def test_goals_that_are_missed():
    """So that it is noticed if a change of the model meets or misses another one."""
    assert fidelity.missed_goals(error_bands()) == [
        "grouped convolutions of 4 channels a group",
        "exchange of words on an IPU",
        "copies of a word to another IPU",
    ]


def test_the_matrix_unit(points):
    errors = [abs(one.error) for one in fidelity.by_kind(points)[fidelity_convolutions.MATRIX_UNIT]]
    assert len(errors) == 64
    assert max(errors) <= 0.05


def test_the_order_of_convolutions(points):
    """By throughput, of layers that nothing was chosen by."""
    kinds = fidelity.by_kind(points)
    sizes = (
        fidelity_convolutions.SMALL,
        fidelity_convolutions.MEDIUM,
        fidelity_convolutions.LARGE,
    )
    members = [one for size in sizes for one in kinds[size]]
    assert len(members) == 80
    order = spearmanr([one.measured for one in members], [one.modelled for one in members])
    assert order.statistic >= 0.95


# -- which points count --------------------------------------------------------


def test_each_point_is_an_input_or_has_a_program_or_a_reason():
    inputs = {point["id"] for point in fidelity_points.points() if point["input_of"]}
    programs, reasons = fidelity_points.modelled_points(), set(fidelity_points.NOT_MODELLED)
    sets = inputs, programs, reasons
    assert sum(map(len, sets)) == len(fidelity_points.points())
    assert set().union(*sets) == {point["id"] for point in fidelity_points.points()}


@pytest.mark.parametrize(
    ("point", "number", "value"),
    [
        ("V10", "exchange_bytes", 6.34e9 / 1.6e9),
        ("V11", "exchange_bytes", 7679e9 / 1216 / 1.6e9),
        ("M02", "exchange_bytes", 6.35e9 / 1.6e9),
        ("V15", "shared_exchange_bytes", 12.46e9 / 1.6e9),
        ("V12", "link_bytes_per_second", 55.0e9),
        ("V22", "host_bytes_per_second", 5.86e9),
        ("M22", "host_latency_cycles", 8.81e-6 * 1.6e9),
        # Of the hops that it takes longer to 8, 4 and 2 boards than to the one before.
        ("M08", "link_latency_seconds", (0.900e-6 - 0.747e-6) / 1),
        ("M09", "link_latency_seconds", (1.231e-6 - 0.900e-6) / 2),
        ("M10", "link_latency_seconds", (1.921e-6 - 1.231e-6) / 4),
    ],
)
def test_inputs_are_what_the_targets_numbers_come_from(point, number, value):
    (row,) = (one for one in fidelity_points.points() if one["id"] == point)
    assert row["input_of"] == f"gc2.{number}"
    assert getattr(TARGETS["gc2"], number) == pytest.approx(value, rel=0.08)


def test_numbers_of_the_microbenchmarks_have_inputs():
    """Whoever calibrates a target's number by a point of the data has to say so there."""
    named = {
        name.removeprefix("gc2.")
        for name in (point["input_of"] for point in fidelity_points.points())
        if name.startswith("gc2.")
    }
    calibrated = {
        name
        for name, origin in TARGETS["gc2"].provenance.items()
        if (origin.source, origin.confidence.value) == ("microbenchmarks", "calibrated")
    }
    # The way on chip comes from a table by distance, of which the data have no point.
    assert named == calibrated - {"exchange_latency_cycles"}


def test_inputs_suffice_for_what_was_chosen():
    """The points between them did not have to be seen."""
    assert fidelity_convolutions.refitted_weight_load_bytes() == TARGETS["bow"].weight_load_bytes
    assert fidelity_convolutions.has_refitted_empty_compute_sets()


def test_the_layer_of_two_channels_a_group_is_an_input(points):
    halves = [one for one in points if "single halves" in one.input_of]
    assert {one.description.partition(",")[0] for one in halves} == {"ResNeXt Conv2_2"}


def test_layers_of_three_channels_are_inputs(points):
    thirds = [one for one in points if "no words" in one.input_of]
    assert {one.description.partition(",")[0] for one in thirds} == {
        "ResNet50 Conv1",
        "VGG16 Conv1_1",
        "AlexNet Conv1",
    }


# -- errors --------------------------------------------------------------------


def comparison(*, kind="sums", measured=2.0, modelled=1.0, unit="us", **others):
    return Comparison(
        id="X",
        kind=kind,
        target="gc2",
        description="of X",
        measured=measured,
        modelled=modelled,
        unit=unit,
        **others,
    )


@pytest.mark.parametrize(
    ("unit", "measured", "modelled", "error"),
    [
        ("us", 2.0, 1.0, -0.5),
        ("cycles", 2.0, 3.0, 0.5),
        # Twice as many in a second take half the time.
        ("GB/s", 2.0, 4.0, -0.5),
        ("TFLOPS", 3.0, 2.0, 0.5),
        ("Gsamples/s", 3.0, 2.0, 0.5),
    ],
)
def test_errors_are_of_the_time(unit, measured, modelled, error):
    found = comparison(measured=measured, modelled=modelled, unit=unit)
    assert found.error == pytest.approx(error)


def test_a_band_is_of_three_points_that_are_no_inputs():
    times = [(1.0, -30), (3.0, 40), (4.0, 90)]
    sums = [comparison(modelled=time, cycles_off=off) for time, off in times]
    few = [comparison(kind="few", modelled=time) for time in (2.5, 1.5)]
    inputs = [comparison(kind=kind, input_of="gc2.clock_hz") for kind in ("sums", "few", "host")]
    found = fidelity.error_bands([*sums, *few, *inputs], [], [])
    assert found.bands == (
        Band(
            kind="sums",
            target="gc2",
            points=3,
            median_error=0.5,
            median_absolute_error=0.5,
            least_error=-0.5,
            greatest_error=1.0,
            median_cycles_off=40,
        ),
    )
    # Of two points, each is shown; of one kind, there are inputs only.
    assert found.points == tuple(
        PointError(kind="few", target="gc2", description="of X", error=error)
        for error in (0.25, -0.25)
    )


@pytest.mark.parametrize("measured", ["a convolution", "a product", "a sum"])
def test_small_programs_are_those_of_tensorflow(measured):
    """What is modelled of them is what a report says of a user's function."""
    gc2 = TARGETS["gc2"]
    half = {"dtype": tf.float16}
    if measured == "a convolution":
        program = hlo_programs.convolution(
            batch=4, size=28, kernel=3, in_channels=64, out_channels=128, stride=2, groups=2
        )
        specs = tf.TensorSpec((4, 28, 28, 64), **half), tf.TensorSpec((3, 3, 32, 128), **half)
        written = ipu_keras.profile(
            lambda x, w: tf.nn.conv2d(x, w, 2, "SAME"), *specs, target="gc2"
        )
    elif measured == "a product":
        left, right = (hlo_programs.argument(name, 300, 300) for name in "ab")
        program = hlo_programs.product(left, right)
        specs = tf.TensorSpec((300, 300)), tf.TensorSpec((300, 300))
        written = ipu_keras.profile(tf.matmul, *specs, target="gc2")
    else:
        program = hlo_programs.total(1216, 32)
        written = ipu_keras.profile(tf.reduce_sum, tf.TensorSpec((1216, 32)), target="gc2")
    assert written.compute_cycles == hlo_programs.model_of(gc2, program).compute_cycles


# -- reports -------------------------------------------------------------------

BENCHMARKS = tuple(
    BenchmarkError(
        kind=kind,
        target=target,
        programs=4,
        cycles=cycles,
        cycles_of_nine_in_ten=0.3,
        total_bytes=0.2,
        total_bytes_of_nine_in_ten=0.4,
        fullest_tile_bytes=0.01,
        fullest_tile_bytes_of_nine_in_ten=0.5,
    )
    for target, kind, cycles in (
        ("gc2", "products", 0.2),
        ("gc200", "convolutions", 0.059),
        ("gc200", "pooling", 0.4),
    )
)

ERRORS = ErrorBands(
    bands=(
        Band(
            kind="sums",
            target="gc2",
            points=3,
            median_error=-0.8,
            median_absolute_error=0.8,
            least_error=-0.9,
            greatest_error=0.004,
            median_cycles_off=-1234,
        ),
        Band(
            kind="copies",
            target="gc2",
            points=4,
            median_error=3.0,
            median_absolute_error=3.0,
            least_error=-0.1,
            greatest_error=4.0,
            median_cycles_off=None,
        ),
    ),
    points=(PointError(kind="products", target="bow", description="of halves", error=-0.123),),
    programs=(
        ProgramError(
            program="MLP",
            target="bow",
            reference="hardware",
            throughput=7.06,
            cycles=None,
            total_bytes=None,
            fullest_tile_bytes=None,
            fits=True,
            configuration="batch 32",
        ),
        ProgramError(
            program="BERT",
            target="bow",
            reference="hardware",
            throughput=0.5,
            cycles=None,
            total_bytes=1.25,
            fullest_tile_bytes=None,
            fits=False,
            configuration="pretraining",
        ),
    ),
)


def test_sentences():
    programs, operations = ERRORS.sentences("gc200")
    assert programs == (
        "Whole programs on bow, modelled divided by hardware: throughput MLP 7.06, BERT 0.50; "
        "bytes of all tiles BERT 1.25; BERT would not fit, but did"
    )
    assert operations == (
        "Errors of single operations say little of these, and hold for where they were measured, "
        "gc2 and bow; none was measured on gc200"
    )
    assert ERRORS.sentences("bow") == (programs, operations.partition(";")[0])
    fitting = dataclasses.replace(ERRORS, programs=ERRORS.programs[:1])
    assert fitting.sentences("bow")[0].endswith("throughput MLP 7.06; all fit, as they did")


def test_the_table_of_a_terminal():
    assert ERRORS.table().rows == (
        ("sums", "gc2", "3", "5.0 times too fast", "80%", "-1,234"),
        ("copies", "gc2", "4", "4.0 times too slow", "300%", ""),
        ("products: of halves", "bow", "1", "-12%", "", ""),
    )


def test_each_form_of_a_report_has_the_errors(tmp_path):
    found = dataclasses.replace(report(), error_bands=ERRORS)
    found.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    for text in (str(found), page, found._repr_html_()):
        plain = " ".join(re.sub(r"<[^>]*>", "", text).split())
        for sentence in ERRORS.sentences("gc200"):
            assert sentence in plain
    assert "│ sums " in str(found)
    assert found.to_dict()["error_bands"] == {
        "bands": [dataclasses.asdict(band) for band in ERRORS.bands],
        "points": [dataclasses.asdict(point) for point in ERRORS.points],
        "programs": [dataclasses.asdict(program) for program in ERRORS.programs],
        "benchmarks": [],
    }


@pytest.mark.parametrize(
    ("target", "ipu", "errors"),
    [
        ("gc2", "gc2", "products 20% and 1%"),
        ("bow", "gc200", "convolutions 6% and 1%, pooling 40% and 1%"),
    ],
)
def test_reports_have_benchmarks_of_their_architecture(target, ipu, errors):
    sentences = dataclasses.replace(ERRORS, benchmarks=BENCHMARKS).sentences(target)
    assert sentences[-2] == (
        f"Poplibs' benchmarks on {ipu}, median errors of cycles and of the fullest tile against "
        f"Graphcore's IPU Model: {errors}"
    )
