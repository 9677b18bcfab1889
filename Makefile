# `make demo` and `make test` do all of their own set-up, in .venv; PYTHON chooses the interpreter (3.11 or newer).
SHELL := /bin/bash
.SHELLFLAGS := -eo pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: browser vendor demo test gpu lint types imports docs pictures notebooks proto reference golden clean

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev,samples]'
	touch $@

# Compile a sample to plan.bin, run it, show the results; then the paper's Figure 2.
demo: $(VENV)/.ready
	$(BIN)/pwc compile samples/train_lm.py -o plan.bin
	$(BIN)/pwc run plan.bin --reference | tail -n 3
	$(BIN)/python samples/figure2.py
	$(BIN)/python samples/train_lm.py --steps 5

# All tests; then those that run plans once more, each run told to a host by messages that are written and read.
test: lint types imports browser
	$(BIN)/python -m pytest $(PARALLEL) || $(call AGAIN)
	$(BIN)/python -m pytest $(PARALLEL) --encoded $(RUNNING) || $(call AGAIN,--encoded $(RUNNING))

# Two processes share the tests, a file at a time: fixtures of a file are made once.
PARALLEL := -n 2 --dist loadfile

# What fails beside other tests runs once more alone, and both are shown: processes that share two cores are late now and
# then. What passes alone is still a race, of the test or of the product: look for it.
AGAIN = { echo "once more, alone:"; $(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(1); }

RUNNING := tests/api tests/runtime/client tests/runtime/control tests/runtime/host tests/test_random_programs.py \
           tests/test_random_branches.py tests/test_regressions.py tests/test_samples.py --ignore-glob '*cluster*' \
           --ignore-glob '*shared*' --ignore-glob '*elastic*' --ignore-glob '*fault_matrix*'

# What needs a GPU, as a table; without one it says so. JAX with its GPU plugin must be in .venv (docs/gpu.md).
gpu: $(VENV)/.ready
	$(BIN)/python bench/gpu.py

# Tests of pages need a Chromium. In CI it is installed where that can be done; elsewhere those tests say what is missing.
browser:
	@command -v chromium chromium-browser google-chrome || \
	  { test -n "$$CI" && test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null || \
	  echo "no Chromium here: tests of pages are skipped (apt-get install chromium)"

# The libraries of the page (viz/page/vendor/README.md), from npm, by their versions.
vendor:
	@for one in d3@7.9.2:d3 cytoscape@3.34.4:cytoscape cytoscape-dagre@4.0.1:cytoscape-dagre; do \
	  folder=$$(mktemp -d) && (cd $$folder && npm pack --silent $${one%%:*} >/dev/null && tar xzf *.tgz) && \
	  cp $$folder/package/dist/$${one##*:}.min.js viz/page/vendor/ && rm -r $$folder; done

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready
	$(BIN)/pyright --pythonpath $(BIN)/python

imports: $(VENV)/.ready
	$(BIN)/lint-imports

# The site, from docs/ and the code, in site/: open site/index.html. A warning fails it.
docs: $(VENV)/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The pictures in docs/pictures and the tables that pages hold, after a change of what they are made from.
pictures: $(VENV)/.ready
	cd docs && ../$(BIN)/python -m generate.pictures

# What the notebooks in samples/notebooks print, after a wanted change of it.
notebooks: $(VENV)/.ready
	cd tests && ../$(BIN)/python -m support.notebooks --write ../samples/notebooks/*.ipynb

# The compiled schema of plan.bin, after a change of dialect/plan/plan.proto.
proto: $(VENV)/.ready
	cd dialect/plan && ../../$(BIN)/python -m grpc_tools.protoc -I. --descriptor_set_out=plan.binpb plan.proto

# The dialect's reference page, after a change of dialect/ir/pw.py.
reference: $(VENV)/.ready
	$(BIN)/python -m pathways.dialect.ir.reference > docs/dialect.md

# Golden files, after a wanted change of what passes or errors print.
golden: $(VENV)/.ready
	$(BIN)/python -m pytest tests/compiler/test_golden.py --update-golden

clean:
	rm -rf $(VENV) build dist site *.egg-info
