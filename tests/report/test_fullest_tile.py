"""Tiles as people count them."""

import doctest

from small_reports import report

from ipu_keras.report import fullest_tile as module
from ipu_keras.report.fullest_tile import fullest_tile


def test_the_example():
    assert doctest.testmod(module).failed == 0


def test_of_one_ipu():
    memory = report().model.memory
    assert fullest_tile(memory) == f"tile {memory.worst_tile}"
