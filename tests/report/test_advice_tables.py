"""Tables of what searches found, which is made by hand."""

from dataclasses import replace

from html_reports import report

from ipu_keras.advice.balanced_pipeline import BalancedPipeline, LayerCost
from ipu_keras.advice.fixes import Fix
from ipu_keras.advice.planned_split import PlannedSplit
from ipu_keras.report.advice_tables import balance_table, fixes_table
from ipu_keras.report.text import rendered

FIXES = (
    Fix(changes={"dtype": "float16"}, max_tile_bytes=600_000, fits=True, seconds_per_sample=1e-3),
    Fix(changes={"num_ipus": 2}, max_tile_bytes=700_000, fits=False, seconds_per_sample=5e-7),
)


def cells(text):
    """The cells of each line of a table, but those of its headings."""
    lines = (line.split("│")[1:-1] for line in text.splitlines())
    return [[cell.strip() for cell in line] for line in lines if line]


def test_fixes():
    assert cells(rendered(fixes_table(FIXES))) == [
        ["float16", "600,000", "yes", "1.00 ms"],
        ["the layers on 2 IPUs", "700,000", "no", "500 ns"],
    ]


def test_reports_have_those_there_are():
    table = rendered(fixes_table(FIXES))
    assert table not in str(report())
    found = replace(report(), fixes=FIXES)
    assert table in str(found)
    assert [fix["changes"] for fix in found.to_dict()["fixes"]] == [one.changes for one in FIXES]


def test_stages():
    before = PlannedSplit(ends=(2, 4), cycles=(1000, 5000), tile_bytes=(1000, 3000), capacity=1000)
    after = PlannedSplit(ends=(3, 4), cycles=(3000, 3000), tile_bytes=(501, 1000), capacity=1000)
    layers = (LayerCost(1000, 0, 0, 0),) * 4
    found = BalancedPipeline(layers=layers, before=before, after=after)
    text = rendered(balance_table("Stages of a model", found))
    assert text.startswith("Stages of a model")
    assert cells(text) == [
        ["0", "2", "1,000", "100.0%", "3", "3,000", "50.1%"],
        ["1", "2", "5,000", "300.0%", "1", "3,000", "100.0%"],
        ["slowest", "", "5,000", "does not fit", "", "3,000", "fits"],
    ]
