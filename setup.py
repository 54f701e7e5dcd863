"""Builds the Cython units. Everything declarative is in pyproject.toml."""

import os

from Cython.Build import cythonize
from setuptools import Distribution, Extension, setup
from setuptools.command.build_py import build_py

# One name per unit: _cext/<name>.pyx becomes ipu_keras.<name>. No unit needs
# TensorFlow's or NumPy's headers: TensorFlow's C API is looked up at run time.
EXTENSIONS = [
    "_device",
    "_engine",
    "_mpi_calls",
    "_rounding",
    "_shuffle",
    "_user_operations",
    "_xla_calls",
]

# IPU_KERAS_DEBUG=1 builds units that check their indices instead of trusting them.
DEBUG = os.environ.get("IPU_KERAS_DEBUG") == "1"

# The import hook, and the stub packages for type checkers: they have no modules that could run.
HOOK = "ipu_keras_import_hook.pth"
BESIDE_PACKAGES = [
    ("", ["ipu_keras/import_hook.pth"]),
    *(
        (os.path.relpath(folder, "stubs"), [os.path.join(folder, name) for name in sorted(names)])
        for folder, _, names in os.walk("stubs")
        if names
    ),
]

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": DEBUG,
    "initializedcheck": DEBUG,
    "cdivision": True,
}

# Messages name these, so installed packages have them in a folder `docs` too.
DOCUMENTS = ["docs/ipu_config.md", "docs/popart.md", "docs/how-to/data.md"]


class BuildWithDocuments(build_py):
    """Puts the documents that messages name into the package; an editable one has them already."""

    def run(self):
        super().run()
        if not self.editable_mode:
            for source in DOCUMENTS:
                target = os.path.join(self.build_lib, "ipu_keras", source)
                self.mkpath(os.path.dirname(target))
                self.copy_file(source, target)


class ProjectDistribution(Distribution):
    # Only what `has_data` says makes an editable install run install_data.
    has_data = Distribution.has_data_files


# setuptools has this command only as part of its copy of distutils, which is
# not importable by that name in every Python that we support.
install_data = Distribution().get_command_class("install_data")


class InstallBesidePackages(install_data):
    """Puts the import hook where `site` reads `.pth` files, and stubs where type checkers look.

    setuptools cannot declare this; `install_lib` is that folder for a wheel
    and for an editable install alike.
    """

    def finalize_options(self):
        self.set_undefined_options("install", ("install_lib", "install_dir"), ("force", "force"))

    def run(self):
        for folder, sources in self.data_files:
            for source in sources:
                # All projects share this folder, so the name there says whose the hook is.
                name = HOOK if source.endswith(".pth") else os.path.basename(source)
                target = os.path.join(self.install_dir, folder, name)
                self.mkpath(os.path.dirname(target))
                self.copy_file(source, target)
                self.outfiles.append(target)


setup(
    ext_modules=cythonize(
        [
            Extension(
                f"ipu_keras.{name}",
                [f"_cext/{name}.pyx"],
                extra_compile_args=["-O3"],
                libraries=["dl", "m"],
            )
            for name in EXTENSIONS
        ],
        include_path=["_cext"],
        build_dir="build/cython-debug" if DEBUG else "build/cython",
        compiler_directives=DIRECTIVES,
    ),
    data_files=BESIDE_PACKAGES,
    # The C compiler takes half a minute for all units.
    options={"build_ext": {"parallel": True}},
    distclass=ProjectDistribution,
    cmdclass={"build_py": BuildWithDocuments, "install_data": InstallBesidePackages},
)
