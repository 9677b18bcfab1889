# `make demo` and `make test` do all of their own set-up, in .venv; PYTHON chooses the interpreter (3.11 or newer).
SHELL := /bin/bash
.SHELLFLAGS := -eo pipefail -c
PYTHON ?= python3
# Processes that tests start would compile each module again.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin

.PHONY: tools vendor demo test test-all test-quick bench bench-speed gpu lint types imports docs pictures notebooks proto reference golden clean

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

# Before each commit: lint, types, and all tests but those that are long by nature. About 8 minutes on 2 cores.
test: lint types imports tools
	$(PYTEST) --record

# What CI runs as well: all tests, with more random examples; then some tests again, with each run sent to a host as
# encoded messages, and with XLA's optimizations. If `make test` has passed with the same files, its tests are not
# repeated: 17 minutes on 2 cores, otherwise 25.
test-all: tools
	@if $(BIN)/python tests/support/passed.py; then $(PYTEST) --all --rest; \
	  else $(MAKE) lint types imports && $(PYTEST) --all; fi
	PATHWAYS_TESTS_OPTIMIZED=1 $(PYTEST) --all --encoded $(ENCODED_TESTS)

# While you edit: lint, types, and the tests that start no process and compile little. Under a minute on 2 cores.
test-quick: lint types imports
	$(PYTEST) $(QUICK_TESTS)

# Three processes share the tests, a file at a time: fixtures of a file are made once. There is one more than cores,
# since tests also wait for processes that they start. support/tiers.py orders the files.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

QUICK_TESTS := tests/compiler/test_golden.py tests/compiler/search tests/runtime/control/scheduling tests/runtime/test_states.py \
        tests/dialect/ir/test_{declarations,flow,refused_modules}.py \
        tests/dialect/plan/test_{edges_of_rules,instructions,match,rules_of_plans,sealed_members}.py \
        tests/runtime/client/test_controller.py tests/runtime/client/remote/test_{recorded_clocks,remote_island,run_window,submitted}.py \
        tests/runtime/control/test_{cluster_controller,dispatcher,health,island_changes,partitions,relay,votes}.py \
        tests/runtime/wire/test_{addresses,certificates,fields,frame_reader,messages,peer}.py

# Tests where an encoded message could differ from the direct call that it replaces; the last one, where XLA's
# optimizations decide about the last bit.
ENCODED_TESTS := tests/api/test_{arguments,arrays,stages}.py tests/runtime/client tests/runtime/host/run \
                    tests/runtime/host/observe tests/runtime/host/devices/test_callbacks.py tests/test_regressions.py \
                    tests/test_random_branches.py tests/test_random_programs.py \
                    tests/compiler/frontends/mpmd/test_round_trip.py

# The paper's evaluation, measured and simulated: docs/evaluation.md. About 12 minutes on 2 cores.
bench: $(VENV)/.ready
	@names=$$(cd docs && ../$(BIN)/python -c 'from generate.evaluation import ORDER; print(*ORDER)') && \
	  for name in $$names; do echo "== $$name"; $(BIN)/python bench/paper/$$name.py || exit; done
	cd docs && ../$(BIN)/python -m generate.pictures

# Small calls, loops, chains, hops, models, imports against limits and peers: docs/performance.md. 5 minutes, 2 cores.
bench-speed: $(VENV)/.ready
	$(BIN)/python bench/speed.py

# What needs a GPU, as a table; without one it says so. JAX with its GPU plugin must be in .venv (docs/gpu.md).
gpu: $(VENV)/.ready
	$(BIN)/python bench/gpu.py

# Tests of pages need a Chromium, and gdb reads the core of a test process that crashes. CI installs both if it can;
# elsewhere the tests say what is missing.
tools:
	@command -v chromium chromium-browser google-chrome || $(call INSTALL,chromium) || \
	  echo "no Chromium here: tests of pages are skipped (apt-get install chromium)"
	@command -v gdb || $(call INSTALL,gdb) || echo "no gdb here: crashes have no backtrace (apt-get install gdb)"

INSTALL = { test -n "$$CI" && test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq $(1); } >/dev/null

# The libraries of the page (viz/page/vendor/README.md), from npm, by their versions.
vendor:
	@for one in d3@7.9.2:d3 cytoscape@3.34.4:cytoscape cytoscape-dagre@4.0.1:cytoscape-dagre; do \
	  folder=$$(mktemp -d) && (cd $$folder && npm pack --silent $${one%%:*} >/dev/null && tar xzf *.tgz) && \
	  cp $$folder/package/dist/$${one##*:}.min.js viz/page/vendor/ && rm -r $$folder; done

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready
	$(BIN)/pyright --threads 2 --pythonpath $(BIN)/python

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

# The compiled schemas, after a change of dialect/plan/plan.proto or pathways/ifrt_proxy/ifrt.proto.
proto: $(VENV)/.ready
	cd dialect/plan && ../../$(BIN)/python -m grpc_tools.protoc -I. --descriptor_set_out=plan.binpb plan.proto
	cd pathways/ifrt_proxy && ../../$(BIN)/python -m grpc_tools.protoc -I. --descriptor_set_out=ifrt.binpb ifrt.proto

# The dialect's reference page, after a change of dialect/ir/pw.py.
reference: $(VENV)/.ready
	$(BIN)/python -m pathways.dialect.ir.reference > docs/dialect.md

# Golden files, after a wanted change of what passes or errors print.
golden: $(VENV)/.ready
	$(BIN)/python -m pytest tests/compiler/test_golden.py --update-golden

clean:
	rm -rf $(VENV) build dist site *.egg-info
