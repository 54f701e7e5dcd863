"""The tables of the documentation that are made from the package."""

import re

import pytest
import reference

from ipu_keras._documented_names import documented_names


@pytest.mark.parametrize("path", reference.tables(), ids=lambda path: path.stem)
def test_tables_are_those_of_today(path):
    name, table = reference.tables()[path]
    text = path.read_text("utf-8")
    assert reference.with_table(text, name, table) == text, "python docs/site/reference.py"


def test_every_documented_name_is_in_the_table():
    listed = {one.name for one in reference.names()}
    for name in documented_names():
        assert re.sub(r"\.ipu\.(ops|optimizers)\.(\w+)\.(\w+)$", r".ipu.\2.\3", name) in listed


@pytest.mark.parametrize(
    ("name", "state", "lack"),
    [
        ("tensorflow.python.ipu.ipu_strategy.IPUStrategy", "works", ""),
        ("tensorflow.python.ipu.config.configure_ipu_system", "works", ""),
        ("tensorflow.python.ipu.config.IPUConfig", "partly", "options have no effect"),
        ("tensorflow.python.ipu.pipelining_ops.pipeline", "partly", "continuous_weight_updates"),
        ("tensorflow.python.ipu.utils.create_ipu_config", "partly", "enable_ipu_events"),
        ("keras.ipu.extensions.ModelExtension", "partly", "set_outfeed_queue_options"),
        ("tensorflow.python.ipu.ipu_run_config.RunConfig", "works", ""),
    ],
)
def test_states(name, state, lack):
    (found,) = (one for one in reference.names() if one.name == name)
    assert found.state == state
    assert bool(lack) == bool(found.lacks)
    assert lack in " ".join(found.lacks)


def test_what_works_says_what_it_is():
    for one in reference.names():
        assert one.found.__doc__, one.name
