"""Setters, made from descriptions."""

import numpy as np
import pytest

from ipu_keras.config import IPUConfig
from ipu_keras.settings.setters import REQUIRED, Argument, Setter, function_of


def setter(*arguments, **described):
    described = {"documentation": "Sets.", "example": None, **described}
    return function_of(Setter("set_some", arguments=arguments, **described), IPUConfig, __name__)


TILES = Argument("tiles", "io_tiles.num_io_tiles")
SHARE = Argument("share", "io_tiles.available_memory_proportion")
PLACE = Argument("place", "io_tiles.place_ops_on_io_tiles")
IPUS = Argument("ipus", "auto_select_ipus")


def test_numbers_of_numpy_and_integers_as_floats():
    config = setter(TILES, SHARE, IPUS, PLACE)(
        IPUConfig(), np.int64(8), 1, [np.int32(2), 1], np.True_
    )
    found = config.io_tiles
    assert (found.num_io_tiles, found.place_ops_on_io_tiles) == (8, True)
    assert (type(found.num_io_tiles), type(found.available_memory_proportion)) == (int, float)
    assert config.auto_select_ipus == [2, 1]


def test_all_are_checked_before_one_is_written():
    config = IPUConfig()
    function = setter(Argument("again", "allow_recompute"), TILES)
    message = r"^`tiles` sets `io_tiles\.num_io_tiles`, .* Received: tiles=-1\. .* must be 0 or mo"
    with pytest.raises(ValueError, match=message):
        function(config, again=True, tiles=-1)
    with pytest.raises(TypeError, match=r"^`tiles` sets .* Received: tiles='8'\. Trying to set "):
        function(config, tiles="8")
    assert repr(config) == "IPUConfig()"


def test_idle_ones_are_named_in_one_warning():
    idle = [
        Argument(name, default=False, why_idle=f"no {name}", unless=unless)
        for name, unless in (("a", ""), ("b", ""), ("c", ""), ("d", "a"))
    ]
    function = setter(*idle)
    with pytest.warns(UserWarning, match="no effect") as told:
        function(IPUConfig(), a=True, c=True, d=True)
    assert [str(one.message) for one in told] == [
        "These have no effect here: `a` (no a), `c` (no c)."
    ]
    function(IPUConfig())


def test_what_follows_from_a_description():
    function = setter(
        Argument("tiles", "io_tiles.num_io_tiles", REQUIRED), SHARE, example={"tiles": 8}
    )
    assert (function.__name__, function.__module__) == ("set_some", __name__)
    assert function.__doc__ == (
        "Sets.\n\nArgs:\n    opts: The `IPUConfig` to change.\n"
        "    tiles: Tiles of each IPU that are set apart. Sets `io_tiles.num_io_tiles`.\n"
        "    share: Share of these tiles' memory that may hold data, 0.0 to 1.0; the rest is for "
        "code.\n        Operations with more data stay on the other tiles, with a warning. Sets\n"
        "        `io_tiles.available_memory_proportion`.\n\nReturns:\n    `opts`.\n\nRaises:\n"
        "    TypeError: An argument is of another type.\n"
        "    ValueError: A value is refused, or arguments contradict each other.\n\nExample:\n\n"
        ">>> set_some(create_ipu_config(), tiles=8)\nIPUConfig(io_tiles.num_io_tiles=8)"
    )
    with pytest.raises(TypeError, match=r"^set_some\(\) missing a required argument: 'tiles'$"):
        function(IPUConfig())
