"""Arguments as options of a configuration."""

import doctest

import numpy as np
import pytest

from ipu_keras.config import IPUConfig
from ipu_keras.settings import config_arguments
from ipu_keras.settings.config_arguments import warn_of_idle, write_arguments


def test_examples():
    assert doctest.testmod(config_arguments).failed == 0


def test_numbers_of_numpy_and_integers_as_floats():
    config = IPUConfig()
    write_arguments(
        config,
        tiles=("io_tiles.num_io_tiles", np.int64(8)),
        share=("io_tiles.available_memory_proportion", 1),
        ipus=("auto_select_ipus", [np.int32(2), 1]),
        place=("io_tiles.place_ops_on_io_tiles", np.True_),
    )
    found = config.io_tiles
    assert (found.num_io_tiles, found.place_ops_on_io_tiles) == (8, True)
    assert (type(found.num_io_tiles), type(found.available_memory_proportion)) == (int, float)
    assert config.auto_select_ipus == [2, 1]


def test_all_are_checked_before_one_is_written():
    config = IPUConfig()
    message = r"^`tiles` sets `io_tiles\.num_io_tiles`, .* Received: tiles=-1\. .* must be 0 or mo"
    with pytest.raises(ValueError, match=message):
        write_arguments(
            config, place=("allow_recompute", True), tiles=("io_tiles.num_io_tiles", -1)
        )
    with pytest.raises(TypeError, match=r"^`tiles` sets .* Received: tiles='8'\. Trying to set "):
        write_arguments(config, tiles=("io_tiles.num_io_tiles", "8"))
    assert repr(config) == "IPUConfig()"


def test_idle_ones_are_named_in_one_warning():
    with pytest.warns(UserWarning, match="no effect") as told:
        warn_of_idle(a=(True, "no a"), b=(False, "no b"), c=(True, "no c"))
    assert [str(one.message) for one in told] == [
        "These have no effect here: `a` (no a), `c` (no c)."
    ]
    warn_of_idle(b=(False, "no b"))
