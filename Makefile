# make setup       an environment in .venv with everything that tests and quickstart need
# make quickstart  build a small corpus, train informer_mt_tiny, translate, score
# make test        the whole test suite
# make test-matrix the suite on every supported fairseq and Python that can be had (tests/matrix.sh --help)
# make fuzz        10,000 random sets of flags: each must run, or be refused in one line
# make check       lint, types, docstrings
# make benchmark   speed and memory against stock fairseq and other implementations, into work/benchmark
#
# PYTHON=python3.12 make setup   chooses the interpreter; VENV=folder another place for the environment.

SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.informer-fairseq-installed

.PHONY: setup quickstart test test-matrix fuzz check format benchmark clean

setup: $(STAMP)

$(STAMP): setup.py install.sh
	PYTHON="$(PYTHON)" VENV="$(VENV)" bash install.sh
	touch $@

quickstart: $(STAMP)
	PYTHON="$(abspath $(BIN))/python" bash examples/quickstart/run.sh

# Two processes of one thread each, a file at a time to one of them: tests share what a file's fixtures train.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

# ENVIRONMENTS="folder ..." runs these instead of making them under work/matrix.
test-matrix:
	bash tests/matrix.sh $(ENVIRONMENTS)

fuzz: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.run

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: $(STAMP)
	mkdir -p work/benchmark
	$(BIN)/python benchmarks/run.py --json work/benchmark/figures.json --markdown work/benchmark/tables.md \
		--plot work/benchmark/encoders.svg

clean:
	rm -rf $(VENV) work build *.egg-info
