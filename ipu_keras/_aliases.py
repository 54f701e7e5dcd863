"""The documented import names, as aliases of our own modules.

`import_hook.pth` makes the first import of such a name import this package; from then on
`AliasFinder` answers for them. Importing `ipu_keras` by its own name installs the finder too, so
nothing depends on the hook.
"""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

# Each is documented in `tensorflow.python.ipu` and in `tensorflow.python.ipu.ops`.
_OP_MODULES = (
    "all_to_all_op",
    "cross_replica_ops",
    "custom_ops",
    "embedding_ops",
    "functional_ops",
    "image_ops",
    "internal_ops",
    "math_ops",
    "nn_ops",
    "normalization_ops",
    "rand_ops",
    "reduce_scatter_op",
    "replication_ops",
    "rnn_ops",
    "slicing_ops",
    "statistics_ops",
    "summary_ops",
)

# Each is documented in `tensorflow.python.ipu` and in `tensorflow.python.ipu.optimizers`.
_OPTIMIZER_MODULES = (
    "cross_replica_optimizer",
    "gradient_accumulation_optimizer",
    "ipu_optimizer",
    "map_gradient_optimizer",
    "sharded_optimizer",
)

# The first that fits counts. Everything below an alias is an alias as well, so
# `tensorflow.python.ipu.keras` needs no line. `tf.keras` is the first of the two modules
# that TensorFlow makes of one Keras file until `tensorflow.keras` is imported, and the
# second after that.
ALIASES = {
    **{f"tensorflow.python.ipu.{name}": f"ipu_keras.ops.{name}" for name in _OP_MODULES},
    **{
        f"tensorflow.python.ipu.{name}": f"ipu_keras.optimizers.{name}"
        for name in _OPTIMIZER_MODULES
    },
    "tensorflow.python.ipu.layers": "ipu_keras.keras.layers",
    "tensorflow.python.ipu.losses": "ipu_keras.keras.losses",
    "tensorflow.python.ipu.ops.pipelining_ops": "ipu_keras.pipelining_ops",
    "tensorflow.python.ipu.distributed": "ipu_keras.horovod",
    "tensorflow.python.ipu": "ipu_keras",
    "keras.ipu": "ipu_keras.keras",
    "keras._tf_keras.keras.ipu": "ipu_keras.keras",
    "tensorflow.keras.ipu": "ipu_keras.keras",
    "tensorflow._api.v2.compat.v1.estimator": "ipu_keras.estimators",
    "tensorflow.compat.v1.estimator": "ipu_keras.estimators",
    "tensorflow.estimator": "ipu_keras.estimators",
    "ipu_tensorflow_addons": "ipu_addons",
    "horovod.popart": "ipu_keras.horovod",
    "horovod.tensorflow": "ipu_keras.horovod",
    "horovod": "ipu_keras.horovod",
    "popart": "ipu_keras.popart",
    "popart_core": "ipu_keras.popart.core",
    "popdist.popart": "ipu_keras.popdist.popart",
    "popdist.tensorflow": "ipu_keras.popdist",
    "popdist": "ipu_keras.popdist",
}

# What TensorFlow has moved since, or what of IPU software's plugin scripts import: everything below
# each too. None of them hides a module that TensorFlow still has.
MOVED = {
    "tensorflow.compiler.plugin.poplar": "ipu_keras",
    "tensorflow.compiler.plugin": "ipu_keras",
    "tensorflow.python.keras.applications": "keras._tf_keras.keras.applications",
    "tensorflow.python.keras.datasets": "keras._tf_keras.keras.datasets",
    "tensorflow.python.keras.preprocessing": "keras._tf_keras.keras.preprocessing",
    "tensorflow.python.training.tracking.util": "tensorflow.python.checkpoint.checkpoint",
    "tensorflow.python.training.tracking": "tensorflow.python.trackable",
    "tensorflow_core": "tensorflow",
}

# Names of distributions of their own. Where one is installed, it is not hidden.
_FOREIGN = ("horovod", "popart", "popart_core", "popdist")


def real_name(name: str) -> str | None:
    """Returns the module that `name` stands for, or None if it is not an alias."""
    for alias, real in (*ALIASES.items(), *MOVED.items()):
        if name == alias or name.startswith(f"{alias}."):
            return real + name[len(alias) :]
    return None


def load(module: ModuleType) -> None:
    """Puts the real module into `sys.modules` in place of the new, empty `module`.

    Python takes an imported module from there after it was executed. To return
    the real module from `create_module` would change its `__spec__`.

    Raises:
        ModuleNotFoundError: If there is no such real module.
    """
    alias = module.__name__
    real = real_name(alias)
    assert real is not None
    try:
        sys.modules[alias] = importlib.import_module(real)
    except ModuleNotFoundError as error:
        if error.name != real:
            raise
        # With the alias as its name, `from package import alias` would drop this message.
        raise ModuleNotFoundError(
            f"No module named {alias!r}: it stands for {real!r}, "
            "which this version of ipu-keras does not have",
            name=real,
        ) from None


class AliasFinder(MetaPathFinder, Loader):
    """Finds and loads aliases.

    It must stand before Python's own finders: in the folder of `ipu_keras`, they would find the
    file for `tensorflow.python.ipu.config` and run it a second time.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # Whether the real module exists is `load`'s to find out: this runs with
        # the global import lock held, where importing could deadlock.
        if real_name(name) is None or (name in _FOREIGN and _is_installed(name)):
            return None
        return ModuleSpec(name, self)

    def exec_module(self, module: ModuleType) -> None:
        load(module)


def _is_installed(name: str) -> bool:
    """Whether another distribution has a module of this name; says so."""
    found = PathFinder.find_spec(name)
    # A folder that merely has the name is found too, as a part of a namespace: it has no file.
    if found is None or found.origin is None:
        return False
    warnings.warn(
        f"`import {name}` gives the module that is installed at {found.origin}. ipu_keras has one "
        f"of the same name: `import {ALIASES[name]}` gives that.",
        stacklevel=2,
    )
    return True


def install() -> None:
    """Makes the aliases work from now on, as imports and as attributes; may be repeated."""
    # By the module's name, as reloading it makes another class.
    if not any(type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, AliasFinder())
    if "tensorflow" in sys.modules:
        # TensorFlow makes another module of each when it is imported by this name: scripts that do
        # so later would get a `tf.keras` without `ipu`, a `tf.compat.v1` without `estimator`.
        importlib.import_module("tensorflow.keras")
        importlib.import_module("tensorflow.compat.v1")
    for alias, real in (*ALIASES.items(), *MOVED.items()):
        parent, _, child = alias.rpartition(".")
        if parent in sys.modules and real in sys.modules:
            setattr(sys.modules[parent], child, sys.modules[real])
