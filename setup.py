"""Builds the Cython units. Everything declarative is in pyproject.toml."""

import os

from Cython.Build import cythonize
from setuptools import Distribution, Extension, setup

# One name per unit: _cext/<name>.pyx becomes ipu_keras.<name>. No unit needs
# TensorFlow's or NumPy's headers: TensorFlow's C API is looked up at run time.
EXTENSIONS = ["_device", "_engine", "_shuffle", "_user_operations", "_xla_calls"]

# IPU_KERAS_DEBUG=1 builds units that check their indices instead of trusting them.
DEBUG = os.environ.get("IPU_KERAS_DEBUG") == "1"

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": DEBUG,
    "initializedcheck": DEBUG,
    "cdivision": True,
}


class ProjectDistribution(Distribution):
    # Only what `has_data` says makes an editable install run install_data.
    has_data = Distribution.has_data_files


# setuptools has this command only as part of its copy of distutils, which is
# not importable by that name in every Python that we support.
install_data = Distribution().get_command_class("install_data")


class InstallImportHook(install_data):
    """Puts the import hook beside the packages, where `site` reads `.pth` files.

    setuptools cannot declare this; `install_lib` is that folder for a wheel
    and for an editable install alike.
    """

    def finalize_options(self):
        self.set_undefined_options("install", ("install_lib", "install_dir"), ("force", "force"))

    def run(self):
        (_, (source,)), *_ = self.data_files
        # All projects share this folder, so the name there says whose it is.
        target = os.path.join(self.install_dir, "ipu_keras_import_hook.pth")
        self.mkpath(self.install_dir)
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
    data_files=[("", ["ipu_keras/import_hook.pth"])],
    distclass=ProjectDistribution,
    cmdclass={"install_data": InstallImportHook},
)
