"""Builds the Cython units. Everything declarative is in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.install_data import install_data

# One name per unit: _cext/<name>.pyx becomes ipu_keras.<name>. No unit needs
# TensorFlow's or NumPy's headers: TensorFlow's C API is looked up at run time.
EXTENSIONS = ["_device", "_engine"]

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "freethreading_compatible": False,
}


class install_into_site_packages(install_data):
    """Puts data files beside the packages, where `site` reads `.pth` files.

    setuptools has no declarative way to ship a `.pth`; `install_lib` is that
    folder for a wheel and for an editable install alike.
    """

    def finalize_options(self):
        self.set_undefined_options(
            "install", ("install_lib", "install_dir"), ("root", "root"), ("force", "force")
        )


setup(
    ext_modules=cythonize(
        [
            Extension(
                f"ipu_keras.{name}",
                [f"_cext/{name}.pyx"],
                extra_compile_args=["-O3"],
                libraries=["dl"],
            )
            for name in EXTENSIONS
        ],
        include_path=["_cext"],
        build_dir="build/cython",
        compiler_directives=DIRECTIVES,
    ),
    data_files=[("", ["ipu_keras/import_hook.pth"])],
    cmdclass={"install_data": install_into_site_packages},
)
