"""Tables of what a search found, which is made by hand."""

from report_rows import cells

from ipu_keras.advice.balanced_pipeline import BalancedPipeline, LayerCost, PlannedSplit
from ipu_keras.report.advice_tables import balance_table
from ipu_keras.report.text import rendered


def test_stages():
    before = PlannedSplit(ends=(2, 4), cycles=(1000, 5000), tile_bytes=(1000, 3000), capacity=1000)
    after = PlannedSplit(ends=(3, 4), cycles=(3000, 3000), tile_bytes=(501, 700), capacity=1000)
    layers = (LayerCost(1000, 0, 0, 0),) * 4
    found = BalancedPipeline(layers=layers, before=before, after=after)
    text = rendered(balance_table("Stages of a model", found))
    assert text.startswith("Stages of a model")
    assert cells(text) == [
        ["0", "2", "1,000", "100.0%", "3", "3,000", "50.1%"],
        ["1", "2", "5,000", "300.0%", "1", "3,000", "70.0%"],
        ["slowest", "", "5,000", "does not fit", "", "3,000", "fits"],
    ]


def test_what_is_too_close_to_say():
    """Of programs that were published, the fullest tile has up to a fourth more than modelled."""
    split = PlannedSplit(ends=(1, 2), cycles=(10, 20), tile_bytes=(10, 900), capacity=1000)
    found = BalancedPipeline(layers=(LayerCost(1, 0, 0, 0),) * 2, before=split, after=split)
    footer = cells(rendered(balance_table("Stages", found)))[-1]
    assert footer == ["slowest", "", "20", *["too close to say", "", "20", "too close to say"]]
