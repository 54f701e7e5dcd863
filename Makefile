# `make test` and `make demo` need Python 3.11-3.13 with its venv module and headers, and
# compilers for C and C++. Everything else is installed into .venv, from the package index
# that pip uses.

VENV := .venv
PYTHON ?= python3.13 python3.12 python3.11 python3

# TensorFlow without the parts for GPUs has wheels for this system and processor only.
MACHINE ?= $(shell uname -sm)
TENSORFLOW ?= $(if $(filter Linux_x86_64,$(subst $() $(),_,$(MACHINE))),tensorflow-cpu,tensorflow)

# Tests start Python hundreds of times, which would compile the project's modules anew each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: lint test test-rest test-all slow-tests test-browser test-package wheels demo examples docs bench fuzz clean

XDIST := --numprocesses=auto --maxprocesses=4 --dist=loadfile
PYTEST := $(VENV)/bin/pytest -m "not browser" $(XDIST)

# What to run before a commit: each test function, of those with many cases a few. Slow tests and
# documents are for `make test-rest`, which runs exactly what this leaves out.
test: lint
	$(PYTEST) --cases=chosen $(ARGS)

test-rest: $(VENV)/test.stamp
	$(PYTEST) --cases=rest $(ARGS)

test-all: lint
	$(PYTEST) $(ARGS)

# Formatting, lint, types, and whether stubs are those that the sources give.
lint: $(VENV)/test.stamp
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/python tests/stub_files.py --check

# Which tests are slow, from their processor time in a run of all of them.
slow-tests: $(VENV)/test.stamp
	$(PYTEST) --processor-times=build/processor_times.json
	$(VENV)/bin/python tests/slow_tests.py build/processor_times.json

# Reports and the site in Chromium, which has to be installed (Debian: apt-get install chromium).
test-browser: $(VENV)/browser.stamp
	$(VENV)/bin/pytest -m browser $(XDIST) tests/report tests/docs

# Builds what would be published, installs it into an empty environment, trains, uninstalls.
test-package: | $(VENV)/bin/python
	$(VENV)/bin/python tests/distribution.py

# Wheels for all supported Pythons and processors. Needs Docker, and QEMU for the other processor.
wheels: | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install cibuildwheel
	$(VENV)/bin/python -m cibuildwheel --platform linux --output-dir dist

demo: $(VENV)/demo.stamp
	$(VENV)/bin/python examples/digits.py

# Every script in examples/, with the seconds it took. SCRIPTS="digits.py popart_mlp.py" runs only these.
examples: $(VENV)/test.stamp
	$(VENV)/bin/python examples/run_all.py $(SCRIPTS)

# Models, calls and files made at random; not of `make test`, as it takes hours. `make fuzz MINUTES=5`
# stops earlier, and SEED=... goes on where another run stopped.
MINUTES ?= 120
SEED ?= 0
fuzz: $(VENV)/test.stamp
	$(VENV)/bin/python benchmarks/fuzz/wrong_calls.py --seed $(SEED) --minutes $(MINUTES)
	$(VENV)/bin/python benchmarks/fuzz/onnx_files.py --seed $(SEED) --minutes $(MINUTES)
	$(VENV)/bin/python benchmarks/fuzz/onnx_values.py --seed $(SEED) --minutes $(MINUTES)
	$(VENV)/bin/python benchmarks/fuzz/trainings.py --seed $(SEED) --minutes $(MINUTES)

# The documentation as a site in build/site, which needs no server and no network to be read. The
# first variable silences what the theme says of the next version of MkDocs.
docs: $(VENV)/test.stamp
	NO_MKDOCS_2_WARNING=1 TF_CPP_MIN_LOG_LEVEL=3 \
	    $(VENV)/bin/mkdocs build --strict --config-file docs/site/mkdocs.yml

bench: $(VENV)/demo.stamp
	$(VENV)/bin/python benchmarks/fit.py

clean:
	rm -rf $(VENV) build dist *.egg-info ipu_keras/*.so

# One of the project's extras. What is installed already satisfies its name, so nothing is built.
$(VENV)/%.stamp: $(VENV)/project.stamp
	$(VENV)/bin/python -m pip install "ipu-keras[$(TENSORFLOW),$*]"
	touch $@

# The project; Python sources need no new installation, as it is editable.
$(VENV)/project.stamp: pyproject.toml setup.py ipu_keras/import_hook.pth $(wildcard _cext/*) | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --editable .
	touch $@

# Exits with 0 if this Python can build and hold the project, says what is missing if its
# version is right, and says nothing if it is not.
define CHECK_PYTHON
import importlib.util, os, shutil, sys, sysconfig
if not (3, 11) <= sys.version_info < (3, 14):
    sys.exit(2)
compilers = {
    name: os.environ.get(name) or sysconfig.get_config_var(name) or default
    for name, default in {"CC": "cc", "CXX": "c++"}.items()
}
header = os.path.join(sysconfig.get_path("include"), "Python.h")
missing = {
    "its venv module (package python3-venv)": importlib.util.find_spec("ensurepip") is None,
    "its headers (package python3-dev)": not os.path.exists(header),
    "a C compiler (package gcc)": shutil.which(compilers["CC"].split()[0]) is None,
    "a C++ compiler (package g++)": shutil.which(compilers["CXX"].split()[0]) is None,
}
if any(missing.values()):
    print(sys.executable, "lacks", ", ".join(what for what in missing if missing[what]))
    sys.exit(1)
endef
export CHECK_PYTHON

$(VENV)/bin/python:
	@for python in $(PYTHON); do \
	    if "$$python" -c "$$CHECK_PYTHON" 2>/dev/null; then \
	        echo "Creating $(VENV) with $$python"; \
	        exec "$$python" -m venv --clear $(VENV); \
	    fi; \
	done; \
	echo "Found no Python 3.11-3.13 that can build the project; looked for: $(PYTHON)."; \
	echo "Install what is named above (Debian: apt-get install python3-dev python3-venv gcc g++)," \
	    "or say which Python to use: make PYTHON=..."; \
	exit 1
