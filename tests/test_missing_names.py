import copy
import doctest
import importlib
import inspect
import pickle
import re
from pathlib import Path

import missing_names
import pytest

from ipu_keras import _missing_names, pipelining_ops, scopes, utils
from ipu_keras._aliases import real_name
from ipu_keras._missing_names import MissingNameError, documented_by_real_name

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
MISSING = missing_names.missing_names()
MODULES = sorted({name.rpartition(".")[0] for name in MISSING})


def explained(name: str) -> str:
    """What every error about a documented name that is missing begins with."""
    return re.escape(f"{name!r} is documented, and this version of ipu-keras does not have it yet")


def first_missing(name: str) -> str:
    """The outermost part of a name that is not there, by its shortest documented name."""
    parts = name.split(".")
    for stop in range(2, len(parts) + 1):
        part = ".".join(parts[:stop])
        if real_name(part) is not None and not missing_names.exists(part):
            return documented_by_real_name()[real_name(part)]
    raise AssertionError(name)


def test_examples():
    assert doctest.testmod(_missing_names).failed == 0


def test_some_are_missing_and_most_are_not():
    assert "tensorflow.python.ipu.ipu_run_config.RunConfig" in MISSING
    assert not {"tensorflow.python.ipu.ipu_strategy.IPUStrategy", "keras.ipu.extensions"} & {
        *MISSING
    }
    assert len(MISSING) < len(_missing_names.documented_names()) / 2


@pytest.mark.parametrize("name", MISSING)
def test_every_way_to_ask_for_a_name_says_that_it_is_missing(name):
    module, _, attribute = name.rpartition(".")
    expected = explained(first_missing(name))
    with pytest.raises(ImportError, match=expected):
        exec(f"from {module} import {attribute}")
    with pytest.raises(ImportError, match=expected):
        exec(f"import {name}")
    with pytest.raises(ImportError, match=expected):
        exec(f"from {real_name(module)} import {attribute}")
    with pytest.raises((MissingNameError, ModuleNotFoundError), match=expected):
        getattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("module", MODULES)
def test_modules_that_are_missing_are_said_to_be(module):
    parent, _, name = module.rpartition(".")
    if missing_names.exists(module) or not missing_names.exists(parent):
        return
    with pytest.raises(ModuleNotFoundError, match=explained(module)):
        exec(f"from {parent} import {name}")
    with pytest.raises(MissingNameError, match=explained(module)):
        getattr(importlib.import_module(parent), name)


def test_the_readme_lists_what_is_missing():
    assert missing_names.table(MISSING) in README, (
        "Replace the table under 'Not yet' by what this prints: python tests/missing_names.py"
    )


@pytest.mark.parametrize("name", ["sharding", "scopes", "utils"])
def test_names_that_nobody_documents_are_errors_as_python_words_them(name):
    module = importlib.import_module(f"tensorflow.python.ipu.{name}")
    with pytest.raises(AttributeError, match=r"^module '\w+\.\w+' has no attribute 'typo'$"):
        _ = module.typo
    with pytest.raises(ImportError, match="cannot import name 'typo'"):
        exec(f"from tensorflow.python.ipu.{name} import typo")
    with pytest.raises(ModuleNotFoundError, match=r"ipu_keras\.typo', which this version"):
        importlib.import_module("tensorflow.python.ipu.typo")


@pytest.mark.parametrize("module", [scopes, utils, importlib.import_module("ipu_keras")])
def test_tools_that_look_into_modules_see_what_is_there(module):
    assert not hasattr(module, "ipu_run_config")
    assert not hasattr(module, "__wrapped__")
    assert getattr(module, "RunConfig", None) is None
    assert not {name.rpartition(".")[2] for name in MISSING} & set(dir(module))
    before = set(dir(module))  # reading a name of the package can import more of it
    assert before <= dict(inspect.getmembers(module)).keys()
    assert inspect.unwrap(module) is module
    assert doctest.DocTestFinder().find(module)
    names: dict = {}
    exec(f"from {module.__name__} import *", names)
    assert names


def test_what_is_in_these_modules_is_copied_and_pickled():
    for found in (utils.reset_ipu_seed, pipelining_ops.PipelineSchedule.Grouped):
        assert pickle.loads(pickle.dumps(found)) is copy.deepcopy(found) is found
    with pytest.raises(AttributeError, match="ipu_run_config"):
        pickle.loads(b"cipu_keras\nipu_run_config\n.")
