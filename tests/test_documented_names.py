import copy
import doctest
import importlib
import inspect
import pickle

import pytest

from ipu_keras import _documented_names, pipelining_ops, scopes, utils


def test_examples():
    assert doctest.testmod(_documented_names).failed == 0


def test_no_documented_name_is_missing():
    names = [name.rpartition(".") for name in _documented_names.documented_names()]
    assert len(names) == 344
    for module, _, name in names:
        assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


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
    assert not hasattr(module, "typo")
    assert not hasattr(module, "__wrapped__")
    assert getattr(module, "RunConfig", None) is None
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
    with pytest.raises(AttributeError, match="typo"):
        pickle.loads(b"cipu_keras\ntypo\n.")


def test_strategies_of_several_processes_are_attributes_before_they_are_imported(run_forked):
    script = """
    from tensorflow.python import ipu
    found = ipu.horovod.ipu_multi_replica_strategy.IPUMultiReplicaStrategy
    assert ipu.distributed is ipu.horovod
    print(found.__name__, hasattr(ipu.horovod, "typo"))
    """
    assert run_forked(script).stdout.strip() == "IPUMultiReplicaStrategy False"
