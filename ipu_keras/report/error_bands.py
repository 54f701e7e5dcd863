"""How far the model was from measurements of hardware."""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any


def error_bands() -> Mapping[str, Mapping[str, Any]]:
    """Points, median and largest absolute error by class of measurement.

    Example:

    >>> sorted(error_bands()["convolutions"])
    ['max_error', 'median_error', 'points']
    """
    # Written by benchmarks/fidelity.py.
    text = resources.files(__package__).joinpath("error_bands.json").read_text("utf-8")
    return json.loads(text)
