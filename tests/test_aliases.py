"""The documented import names, in processes that start as a user's does.

Where the order of imports does not matter, TensorFlow and `ipu_keras` are there already.
"""

import importlib.metadata
import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
HOOK = PROJECT / "ipu_keras" / "import_hook.pth"


def run(script: str, *, hook: bool = True) -> str:
    """Returns what a new Python prints for `script`; with `hook`, as if ours were installed.

    The interpreter reads no `.pth` file of its own, so an installed ipu-keras cannot help.
    """
    start = f"""\
        import site, sys
        sys.path[:0] = {[str(PROJECT), *sys.path]!r}
        if {hook}:
            site.addpackage({str(HOOK.parent)!r}, {HOOK.name!r}, set())
        """
    finished = subprocess.run(
        [sys.executable, "-S", "-c", textwrap.dedent(start) + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_keras_first():
    run("""
        from keras import ipu
        import ipu_keras, keras
        assert ipu is ipu_keras.keras is keras.ipu

        import tensorflow as tf
        assert tf.keras.ipu is ipu
        from tensorflow.keras import layers
        assert tf.keras.ipu is ipu
        from tensorflow.keras import ipu as fourth_name
        assert fourth_name is ipu
        from tensorflow.python.ipu import keras as fifth_name
        assert fifth_name is ipu
        """)


def test_what_scripts_take_from_the_package_itself(run_forked):
    run_forked("""
        from tensorflow.python import ipu
        from tensorflow.python.ipu.layers import Dropout
        from tensorflow.python.ipu.losses import CTCLoss
        import importlib.metadata, ipu_keras
        assert ipu.layers is ipu.keras.layers and ipu.losses is ipu.keras.losses
        assert Dropout is ipu.keras.layers.Dropout and CTCLoss is ipu.keras.losses.CTCLoss
        assert ipu.optimizers.CrossReplicaOptimizer
        assert ipu.gradient_accumulation.GradientAccumulationReductionMethod
        assert ipu.outlined_function is ipu.functional_ops.outlined_function
        assert ipu_keras.__version__ == importlib.metadata.version("ipu-keras")
        """)


def test_operations_have_two_homes(run_forked):
    run_forked("""
        import sys
        from tensorflow.python.ipu.cross_replica_ops import cross_replica_sum
        from tensorflow.python.ipu.ops.cross_replica_ops import cross_replica_sum as other_name
        assert cross_replica_sum is other_name
        import tensorflow.python.ipu.ops.all_to_all_op
        import tensorflow.python.ipu.ops.pipelining_ops
        from tensorflow.python import ipu
        assert ipu.all_to_all_op is ipu.ops.all_to_all_op
        assert ipu.replication_ops.replication_index is ipu.ops.replication_ops.replication_index
        assert ipu.reduce_scatter_op.__name__ == "ipu_keras.ops.reduce_scatter_op"
        assert sys.modules["tensorflow.python.ipu.ops.pipelining_ops"] is ipu.pipelining_ops
        """)


def test_optimizers_have_three_homes(run_forked):
    run_forked("""
        import ipu_keras
        from tensorflow.python import ipu
        homes = {
            "cross_replica_optimizer": ["CrossReplicaOptimizer"],
            "gradient_accumulation_optimizer": [
                "CrossReplicaGradientAccumulationOptimizer",
                "CrossReplicaGradientAccumulationOptimizerV2",
                "GradientAccumulationOptimizer",
                "GradientAccumulationOptimizerV2",
            ],
            "map_gradient_optimizer": ["MapGradientOptimizer"],
            "sharded_optimizer": ["ShardedOptimizer"],
        }
        for module, names in homes.items():
            for name in names:
                for parent in ("tensorflow.python.ipu", "tensorflow.python.ipu.optimizers"):
                    found = getattr(__import__(f"{parent}.{module}", fromlist=[name]), name)
                    assert found is getattr(ipu.optimizers, name)
                assert getattr(getattr(ipu, module), name) is found

        from ipu_tensorflow_addons.keras.optimizers import LAMBIpuOptimizer
        import ipu_addons.keras.optimizers
        assert LAMBIpuOptimizer is ipu_addons.keras.optimizers.LAMBIpuOptimizer
        """)


def test_modules_that_have_moved(run_forked):
    run_forked("""
        from tensorflow.python.keras.datasets import mnist
        from tensorflow.python.keras import applications, datasets
        from tensorflow.python.training.tracking import base
        from tensorflow.python.training.tracking.util import Checkpoint
        import tensorflow as tf, tensorflow_core
        assert mnist is datasets.mnist is tf.keras.datasets.mnist
        assert applications.ResNet50 is tf.keras.applications.ResNet50
        assert base.__name__ == "tensorflow.python.trackable.base"
        assert Checkpoint is tf.train.Checkpoint
        assert tensorflow_core is tf

        from tensorflow.compiler.plugin.poplar.ops import gen_ipu_ops
        from tensorflow_core.python import ipu
        from tensorflow.python import ipu as same
        assert ipu is same
        assert gen_ipu_ops is ipu.ops.gen_ipu_ops
        """)


def test_modules_of_the_plugin_without_ours_imported_before():
    run("""
        from tensorflow.compiler.plugin.poplar.ops.gen_ipu_ops import ipu_event_trace
        assert ipu_event_trace.__module__ == "ipu_keras.ops.gen_ipu_ops"
        """)


def test_tensorflow_first_and_reloads(tmp_path):
    (tmp_path / "broken.py").write_text("import something_else")
    printed = run(f"""
        from tensorflow.keras import layers
        import tensorflow.python.ipu.config as config
        import importlib, ipu_keras, ipu_keras._aliases, keras
        import tensorflow as tf

        # The same object, which kept its own name, and ran once.
        assert config is ipu_keras.config is sys.modules["tensorflow.python.ipu.config"]
        assert config.__name__ == config.__spec__.name == "ipu_keras.config"
        from tensorflow.python import ipu
        assert ipu is ipu_keras and ipu.__spec__.name == "ipu_keras"
        assert tf.keras.ipu is keras.ipu is ipu.keras

        importlib.reload(ipu_keras._aliases)
        assert importlib.reload(config) is config
        assert importlib.reload(ipu) is ipu_keras
        finders = [finder for finder in sys.meta_path if "AliasFinder" in repr(finder)]
        assert len(finders) == 1, finders
        import tensorflow.python.ipu.utils as utils
        assert utils is ipu.utils

        # What fails inside a module is not a missing alias.
        ipu_keras.__path__.append({str(tmp_path)!r})
        try:
            import tensorflow.python.ipu.broken
        except ModuleNotFoundError as error:
            print(error)
        """)
    assert printed == "No module named 'something_else'\n"


def test_addons_first_and_missing_modules():
    printed = run("""
        import ipu_tensorflow_addons
        import ipu_addons
        assert ipu_tensorflow_addons is ipu_addons
        assert ipu_addons.__spec__.name == "ipu_addons"

        for name in ("tensorflow.python.ipu.missing", "keras.ipu.missing.deep",
                     "ipu_tensorflow_addons.missing"):
            try:
                __import__(name)
            except ModuleNotFoundError as error:
                print(error)
        """)
    assert printed.splitlines() == [
        f"No module named '{asked}': it stands for '{real}', "
        "which this version of ipu-keras does not have"
        for asked, real in [
            ("tensorflow.python.ipu.missing", "ipu_keras.missing"),
            ("keras.ipu.missing", "ipu_keras.keras.missing"),
            ("ipu_tensorflow_addons.missing", "ipu_addons.missing"),
        ]
    ]


def test_everything_works_without_the_hook():
    run(
        """
        import tensorflow as tf
        import ipu_keras
        assert tf.keras.ipu is ipu_keras.keras
        from keras import ipu
        assert ipu is ipu_keras.keras
        from tensorflow.python.ipu import config
        assert config is ipu_keras.config
        import ipu_tensorflow_addons
        """,
        hook=False,
    )


def test_the_hook_leaves_what_is_installed(tmp_path):
    (tmp_path / "popart.py").write_text("is_foreign = True\n")
    printed = run(f"""
        sys.path.insert(0, {str(tmp_path)!r})
        import popart
        print(popart.is_foreign, "ipu_keras" in sys.modules)
        """)
    assert printed == "True False\n"


def test_a_popart_that_is_installed_wins(run_forked, tmp_path):
    (tmp_path / "popart.py").write_text("is_foreign = True\n")
    printed = run_forked(f"""
        import sys, warnings
        sys.path.insert(0, {str(tmp_path)!r})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import ipu_keras
            import popart
        print(popart.is_foreign)
        print([str(each.message) for each in caught if "`import popart`" in str(each.message)])
        """).stdout
    message = (
        f"`import popart` gives the module that is installed at {tmp_path / 'popart.py'}. "
        "ipu_keras has one of the same name: `import ipu_keras.popart` gives that."
    )
    assert printed.splitlines() == ["True", str([message])]


def test_popart_without_onnx_says_what_to_install():
    printed = run("""
        sys.modules["onnx"] = None
        for name in ("popart", "popart_core", "popart.session", "ipu_keras.popart.builder"):
            try:
                __import__(name)
            except ImportError as error:
                print(error.name, error)
        """)
    message = (
        "onnx `popart` of ipu_keras needs onnx, which is not installed. Install it with "
        '`pip install "ipu-keras[popart]"`.'
    )
    assert printed.splitlines() == [message] * 4


@pytest.mark.parametrize("first", ["", "import ipu_keras"])
def test_a_folder_called_popart_hides_nothing(tmp_path, first):
    (tmp_path / "popart").mkdir()
    printed = run(f"""
        sys.path.insert(0, {str(tmp_path)!r})
        {first}
        import popart, popart_core
        print(popart.__name__, popart_core.__name__)
        """)
    assert printed == "ipu_keras.popart ipu_keras.popart.core\n"


def test_the_hook_imports_nothing_at_a_start():
    printed = run(f"""
        line = open({str(HOOK)!r}).read()
        before = set(sys.modules)
        exec(line)
        print(set(sys.modules) - before)
        import json, logging
        print([name for name in sys.modules if name.startswith(("tensorflow", "ipu", "keras"))])
        """)
    assert printed == "set()\n[]\n"


def test_the_hook_outlives_the_package():
    printed = run("""
        import pathlib
        sys.path[:] = [path for path in sys.path if not pathlib.Path(path, "ipu_keras").exists()]
        for name in ("something_else", "ipu_tensorflow_addons"):
            try:
                __import__(name)
            except ModuleNotFoundError as error:
                print(error.name)
        """)
    assert printed.splitlines() == ["something_else", "ipu_keras"]


def test_the_hook_is_installed_where_python_reads_it():
    # In that folder only: building from a source tree leaves metadata there too.
    site_packages = sysconfig.get_path("platlib")
    found = list(importlib.metadata.distributions(name="ipu-keras", path=[site_packages]))
    if not found:
        pytest.skip("runs from a source tree; `make test` installs ipu-keras")
    assert "ipu_keras_import_hook.pth" in {str(file) for file in found[0].files}
    installed = Path(site_packages, "ipu_keras_import_hook.pth")
    assert installed.read_bytes() == HOOK.read_bytes()
