# Everything needed is set up on the first call; a second call installs nothing.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
	2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
# What is installed by now, one step upon the other: the demo needs the least.
DEMO := .venv/.demo
READY := .venv/.ready
LINT := .venv/.lint
PEERS := .venv/.peers
BENCH := .venv/.bench
ARRAYS := .venv/.arrays
PACKAGE := .venv/.package
DOCS := .venv/.docs
# Nothing is compiled to bytecode ahead, as most modules of the libraries are never imported; but what
# is imported is compiled once, even in a shell that forbids it: the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# uv where it is there; `make UV= ...` does without.
UV ?= $(shell command -v uv 2>/dev/null)
INSTALL := $(if $(UV),$(UV) pip install --quiet --python $(BIN)/python,$(PIP))
# Neighbouring tests go to one worker, as they share what was fitted and compiled for them. Each has
# one thread for OpenMP and BLAS: threads of several workers that wait for each other take ten times.
TEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: demo test test-all test-rest soak coverage lint bench bench-peers bench-quality bench-growth bench-targets bench-gpu docs test-peers package \
	wheel-test lowest clean

demo: $(DEMO)  ## calibrate the shipped network with every method
	@$(BIN)/hokical demo

test: $(READY)  ## the tests, and their CPU time; those of libraries that are not installed are skipped
	$(TEST) -m "not cluster and not slow" --hypothesis-profile few
	@for name in torch jax transformers pyspark ray; do $(BIN)/python -c "import $$name" 2>/dev/null \
		|| echo "Tests that need $$name were skipped; make test-all installs it and runs them."; done

test-all: $(ARRAYS)  ## all tests: with PyTorch, JAX, transformers, Spark, Ray; slow ones, a cluster's
	$(TEST) -m "not cluster"
	$(BIN)/python -m pytest -m cluster tests

test-rest: $(ARRAYS)  ## after `make test`: what it left out; `make test-all` tries more examples
	$(TEST) -m "not cluster" --hypothesis-profile few --left-out
	$(BIN)/python -m pytest -m cluster --left-out tests

soak: $(READY)  ## attack the library for ten minutes; SECONDS=60 for less
	$(BIN)/python -m tests.soak --seconds $(or $(SECONDS),600)

# Two tests are left out: files of the measurement disturb a full disk and a forked child.
coverage: $(READY)  ## which lines the tests reach, and which not
	$(TEST) -m "not cluster" --cov --cov-report=term-missing:skip-covered \
		--deselect "tests/soak/test_soak.py::test_a_few_rounds[full disk]" \
		--deselect tests/core/test_parallel.py::test_a_forked_child_has_threads_of_its_own

lint: $(LINT)  ## style, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/ratchet.py
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: bench-peers  ## speed and memory: benchmarks/peers.md, then all others, as ratios within one run
	for file in $(filter-out %/bench_peers.py %/bench_gpu.py,$(wildcard benchmarks/bench_*.py)); do \
		$(BIN)/python $$file || exit 1; done

bench-peers: $(BENCH)  ## beside other libraries: writes benchmarks/peers.md and benchmarks/peers.json
	$(BIN)/python benchmarks/bench_peers.py --write benchmarks/peers.md

bench-growth: $(READY)  ## how cost grows with rows, classes, members and groups: the table of benchmarks/README.md
	$(BIN)/python benchmarks/bench_growth.py --write

bench-targets: $(BENCH)  ## the targets of speed and what is reached: the table of benchmarks/README.md
	$(BIN)/python benchmarks/bench_targets.py --write

bench-quality: $(PEERS)  ## log loss and calibration beside other libraries: tables and chart of the docs
	$(BIN)/python benchmarks/bench_peers.py --quality
	$(BIN)/python tools/make_pictures.py peers

bench-gpu: $(READY)  ## kernels, fits and predictions on a CUDA GPU; needs PyTorch
	$(BIN)/python benchmarks/bench_gpu.py

docs: $(DOCS)  ## build the site into site/VERSION/, with the notebooks
	$(BIN)/python tools/make_site.py

test-peers: $(PEERS)  ## compare with other libraries
	$(TEST) -m peer

package: $(PACKAGE)  ## both distributions, into dist/ and dist-paper/, checked as an index does
	rm -rf dist dist-paper
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist-paper paper
	$(BIN)/python -m twine check --strict dist/* dist-paper/*

wheel-test: $(PACKAGE)  ## use the wheel in clean environments, one for each supported Python found
	$(BIN)/python tools/smoke_wheel.py --all

lowest: $(PACKAGE)  ## the same with the oldest dependencies that are allowed, and a part of the tests
	$(BIN)/python tools/smoke_wheel.py --lowest --tests

$(BIN)/python:
	@test -n "$(PYTHON)$(UV)" || { echo "hokical needs Python 3.11 or newer with the venv module" \
		"(on Debian: apt-get install python3-venv), or set PYTHON=..."; exit 1; }
	$(if $(UV),$(UV) venv --quiet --seed --python $(or $(PYTHON),3.13) .venv,$(PYTHON) -m venv .venv)

$(DEMO): pyproject.toml | $(BIN)/python
	$(INSTALL) -e .
	@touch $@

$(READY): pyproject.toml paper/pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[test]' -e './paper[plot]'
	@touch $(DEMO) $@

$(LINT): $(READY)
	$(INSTALL) -e '.[lint]'
	@touch $@

$(DOCS): $(READY)
	$(INSTALL) -e '.[docs]'
	@touch $@

# With pip and a version that is pinned, which keeps a CPU build that is there already.
$(ARRAYS): $(DOCS)
	$(PIP) torch==2.13.0 jax onnxscript transformers accelerate -e '.[engines]'
	@touch $@

$(PEERS): $(READY)
	$(PIP) -e '.[peers]'
	@touch $@

# The pinned version keeps a CPU build of PyTorch that is there already.
$(BENCH): $(PEERS)
	$(PIP) torch==2.13.0 -e '.[bench]'
	@touch $@

$(PACKAGE): $(READY)
	$(INSTALL) -e '.[package]'
	@touch $@

clean:
	rm -rf .venv dist dist-paper site .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
