# Every command of the project. On a machine with Python 3.11 or newer and make, `make test` and `make demo` do all
# their own set-up: a virtual environment in .venv, uv in it, and exactly what requirements/dev.txt pins and hashes.
#
# The set-up has three stages, each with a stamp, so that it runs again only when what it was made from has changed:
#   .venv/.uv         the environment itself and requirements/bootstrap.txt (enough to re-make a lock)
#   .venv/.installed  requirements/dev.txt and this project, editable
#   .venv/.ready      that, and caches of what tests would wait for
# .venv/.uv holds the path it was made at: scripts in an environment that was moved or copied point elsewhere, so
# such an environment is made anew. uv comes from the lock, not from PATH: the same version writes the same lock.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

# Tests start hundreds of short processes; without bytecode on disk each would compile for seconds.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
PY := $(VENV)/bin/python
UV := $(PY) -m uv
# uv trusts its own list of certificate authorities; behind a proxy with one of its own, only the system knows it.
FETCH = fetch() { $(UV) "$$@" || { echo "Trying again with the system's certificates" >&2; UV_SYSTEM_CERTS=1 $(UV) "$$@"; }; }; fetch
LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header $(if $(UPGRADE),--upgrade)
# Three more than there are cores: many tests wait for other processes. tests/conftest.py puts the longest files first.
WORKERS ?= $(shell echo $$(($$(nproc) + 3)))
PYTEST = $(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# What the first run alone would wait for belongs to the set-up: mypy's cache of these libraries, which it takes long to
# read, and bytecode, which each worker of pytest would compile by itself.
TYPED := aiohttp, alembic, fastapi, hypothesis, jinja2, networkx, numpy, playwright.sync_api, psycopg, pydantic, pytest, \
  rich, schemathesis, sqlalchemy, starlette, typer, uvicorn, websockets
INTEGRATIONS := submitit torchx snakemake psij
PYTHON ?= python3 python3.13 python3.12 python3.11 python

ifneq ($(shell cat $(VENV)/.uv 2>/dev/null),$(CURDIR))
.PHONY: $(VENV)/.uv
endif

.PHONY: help
help:  ## Print this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS=$$'\t' read -r target text; do \
	  printf '  make %-15s %s\n' "$$target" "$$text"; done

.PHONY: test
test: lint imports  ## All that must pass before a change goes in: lint, imports, and beside each other types and unit
	@said=$$(mktemp); $(MAKE) --no-print-directory types >"$$said" 2>&1 & types=$$!; \
	trap 'kill $$types 2>/dev/null || true; rm -f "$$said"' EXIT; \
	failed=0; $(MAKE) --no-print-directory unit || failed=1; wait $$types || failed=1; cat "$$said"; exit $$failed

.PHONY: lint
lint: $(VENV)/.ready  ## Format and lint rules (ruff)
	$(PY) -m ruff format --check
	$(PY) -m ruff check

.PHONY: types
types: $(VENV)/.ready  ## Types (mypy, strict)
	$(PY) -m mypy

.PHONY: imports
imports: $(VENV)/.ready  ## Floors: who may import whom (import-linter)
	$(VENV)/bin/lint-imports

.PHONY: unit
unit: $(VENV)/.ready  ## Tests (pytest on all cores; ends with how many passed and were skipped)
	$(PYTEST)

.PHONY: soak
soak: $(VENV)/.ready  ## Nightly: soak-faults, and new seeds, TIMES=50 times the examples; or TESTS=FILE; SEED=N repeats one
	@seed=$(or $(SEED),$$(date +%s)); echo "SEED=$$seed"; failed=0; \
	if [ -z "$(TESTS)" ]; then $(MAKE) --no-print-directory soak-faults FIRST=$$seed || failed=1; fi; \
	GANTREE_SOAK=$(or $(TIMES),50) GANTREE_SOAK_SEED=$$seed $(PYTEST) -m "not figures" -o faulthandler_timeout=0 $(TESTS) || failed=1; \
	if [ -z "$(TESTS)" ]; then \
	  $(PY) examples/demo/crash.py --seed $$seed || failed=1; \
	  PYTHONPATH=tests $(PY) benchmarks/failover.py --failovers $(or $(TIMES),50) || failed=1; fi; exit $$failed

.PHONY: soak-faults
soak-faults: $(VENV)/.ready  ## SEEDS=2000 lives of the control plane under faults, from seed FIRST=0, on all cores (10 minutes on two)
	PYTHONPATH=tests $(PY) -m support.faults.soak --seeds $(or $(SEEDS),2000) --first $(or $(FIRST),0) --workers $$(nproc)

.PHONY: soak-accounting
soak-accounting: $(VENV)/.ready  ## LIVES=300 random lives whose book of GPU time equals a recount, from seed FIRST=0, on all cores (10 minutes on two)
	PYTHONPATH=tests $(PY) -m support.history_soak --lives $(or $(LIVES),300) --first $(or $(FIRST),0)

.PHONY: soak-seed
soak-seed: $(VENV)/.ready  ## One life under faults again, SEED=N; prints the shortest run that fails as it does
	PYTHONPATH=tests $(PY) -m support.faults.soak --seed $(or $(SEED),0)

.PHONY: mutants
mutants: $(VENV)/.ready  ## Planted bugs (tests/mutants), each in a copy of the sources: lives under faults must catch it; ONLY=NAME
	PYTHONPATH=tests $(PY) -m support.mutants $(if $(ONLY),--only $(ONLY))

.PHONY: unit-under-load
unit-under-load: $(VENV)/.ready  ## The tests TIMES=5 times beside LOAD=6 busy processes: none may fail for being slow
	@trap 'kill $$(jobs -p) 2>/dev/null || true' EXIT; \
	for _ in $$(seq $(or $(LOAD),6)); do (while :; do :; done) & done; failed=0; \
	for _ in $$(seq $(or $(TIMES),5)); do $(PYTEST) || failed=1; done; exit $$failed

.PHONY: faithful
faithful: $(VENV)/.ready  ## 300 short jobs with real processes beside their simulation (5 minutes); JOBS=N, SEED=N
	PYTHONPATH=tests $(PY) benchmarks/faithful.py --jobs $(or $(JOBS),300) --seed $(or $(SEED),1)
	PYTHONPATH=tests $(PY) benchmarks/faithful.py --jobs 40 --spaced --seed $(or $(SEED),1)

.PHONY: experiment-real
experiment-real: $(VENV)/.ready  ## Real training in shaped network namespaces, by placement (root; 8 minutes); TORCH=PYTHON has torch
	PYTHONPATH=benchmarks $(PY) -m experiment_real --page docs/experiments/real.md $(if $(TORCH),--python $(TORCH))

.PHONY: hostile
hostile: $(VENV)/.ready  ## A hostile day on real daemons: counts violations (ONLY=full_disk for one item)
	PYTHONPATH=tests:benchmarks $(PY) -m hostile $(if $(ONLY),--only $(ONLY))

.PHONY: figures
figures: $(VENV)/.ready  ## Repeat the published figures (hours); DATA=DIRECTORY of public traces for those on a trace
	@failed=0; run() { echo "== $$*"; "$$@" || failed=1; }; \
	run $(PY) -m pytest -n $(WORKERS) -m figures -o faulthandler_timeout=0; \
	run env GANTREE_SOAK=50 $(PY) -m pytest -s -n 0 -o faulthandler_timeout=0 tests/api/test_openapi.py -k "no_request or listens"; \
	run $(VENV)/bin/gantree bench decisions --gpus 16384; \
	run $(VENV)/bin/gantree bench queue; \
	for name in submit_latency pricing calibration quality arnold kueue_shapes transactions; do run $(PY) benchmarks/$$name.py; done; \
	if [ -n "$(DATA)" ]; then \
	  run $(PY) benchmarks/philly.py $(DATA)/philly_pollux/philly_jobs.csv.gz; \
	  run $(PY) benchmarks/philly_lingjun.py $(DATA)/philly_pollux/philly_jobs.csv.gz $(DATA)/lingjun2023_topo/topo.csv.gz --jobs 6000; \
	  run $(PY) benchmarks/lingjun.py $(DATA)/lingjun2023_topo; \
	  run $(PY) benchmarks/openb.py $(DATA)/openb2023; \
	  run $(PY) benchmarks/muri.py $(DATA)/philly_muri; \
	  run $(PY) benchmarks/muri_presets.py $(DATA)/philly_muri; fi; exit $$failed

.PHONY: experiments
experiments: $(VENV)/.ready  ## Write every table and plot of docs/experiments anew (12 minutes on two cores)
	$(VENV)/bin/gantree experiment all --out docs/experiments

.PHONY: sameness
sameness: $(VENV)/.ready  ## A digest of all decisions, compared with the newest in benchmarks/results; DATA=directory of traces
	PYTHONPATH=tests $(PY) benchmarks/sameness.py --against $$(ls benchmarks/results/sameness-*.txt | tail -1) \
	  $(if $(DATA),--philly $(DATA)/philly_pollux/philly_jobs.csv.gz --topo $(DATA)/lingjun2023_topo/topo.csv.gz)

.PHONY: demo
demo: $(VENV)/.installed  ## A gang trains, yields to an urgent job, resumes; checks itself
	$(PY) examples/demo/demo.py

.PHONY: demo-serve
demo-serve: $(VENV)/.installed  ## A service grows and shrinks with its load beside training; checks itself (needs the package haproxy)
	$(PY) examples/demo/serve.py

.PHONY: crash-demo
crash-demo: $(VENV)/.ready  ## The demo with the daemon killed at 20 random moments
	$(PY) examples/demo/crash.py

.PHONY: fuzz
fuzz: $(VENV)/.ready  ## Fuzz every reader of topologies, led by coverage; EACH=60 seconds a kind
	$(FETCH) pip install --quiet --python $(PY) --require-hashes -r requirements/fuzz.txt
	$(PY) tests/fuzz/readers.py all $(or $(EACH),60)

.PHONY: screenshots
screenshots: $(VENV)/.ready  ## Take the pictures of the documentation anew (needs Chromium)
	$(PY) tests/web/screenshots.py

.PHONY: man
man: $(VENV)/.ready  ## Write man pages of all commands and topics; DIR=build/man
	$(VENV)/bin/gantree help --man $(or $(DIR),build/man)

.PHONY: manifests
manifests: $(VENV)/.ready  ## Write deploy/kubernetes/gantree.yaml anew from the Helm chart
	PYTHONPATH=tests $(PY) -m support.manifests

.PHONY: test-kubernetes
test-kubernetes: $(VENV)/.ready  ## Tests of an API server, and of gantree on one, on a real one too; KUBEBUILDER_ASSETS=DIR has it
	@if [ -z "$${KUBEBUILDER_ASSETS:-}" ]; then \
	  echo "Skipped: KUBEBUILDER_ASSETS names no directory with kube-apiserver, kube-controller-manager and etcd."; exit 0; fi; \
	$(PY) -m pytest -n 0 tests/testing/kubernetes tests/executors/kubernetes

.PHONY: scheduler-perf
scheduler-perf: $(VENV)/.ready  ## Kubernetes' own operation lists, gantree and kube-scheduler in turn (hours); KUBEBUILDER_ASSETS=DIR LISTS=DIR
	PYTHONPATH=tests:benchmarks $(PY) -m scheduler_perf $(LISTS) $(if $(ONLY),--only $(ONLY)) --rounds $(or $(TIMES),3) \
	  $(if $(RESULTS),--results $(RESULTS))

.PHONY: integrations
integrations: $(VENV)/.ready  ## Plug-ins for other tools on a real daemon, with those tools' own suites; ONLY=submitit for one
	@for name in $(or $(ONLY),$(INTEGRATIONS)); do bash integrations/test.sh "$$name" $(PY); done

.PHONY: lock
lock: $(VENV)/.uv  ## Re-make requirements/*.txt; UPGRADE=1 moves to the newest versions
	$(LOCK) pyproject.toml -o requirements/run.txt
	$(LOCK) pyproject.toml requirements/build.in --group dev -c requirements/run.txt -o requirements/dev.txt
	$(LOCK) requirements/fuzz.in -c requirements/dev.txt -o requirements/fuzz.txt
	for name in $(INTEGRATIONS); do \
	  $(LOCK) requirements/integrations-$$name.in -o requirements/integrations-$$name.txt; done
	$(LOCK) requirements/bootstrap.in -c requirements/dev.txt -o requirements/bootstrap.txt

.PHONY: clean
clean:  ## Remove caches and builds
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean  ## Remove the virtual environment too
	rm -rf $(VENV)

# The first of $(PYTHON) that runs and is new enough makes the environment.
$(VENV)/.uv: requirements/bootstrap.txt
	@found=; for name in $(PYTHON); do \
	  if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$name; break; fi; done; \
	if [ -z "$$found" ]; then \
	  echo "gantree needs Python 3.11 or newer; none of these is: $(PYTHON)." >&2; \
	  echo "Install one, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; fi; \
	echo "Setting up $(VENV) with $$("$$found" -V)"; \
	if ! "$$found" -m venv --clear $(VENV); then rm -rf $(VENV); \
	  echo "That Python cannot make a virtual environment; on Debian and Ubuntu, install python3-venv." >&2; exit 1; fi
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@echo "$(CURDIR)" > $@

# Enough to use gantree; what .ready adds saves time of tests.
$(VENV)/.installed: $(VENV)/.uv pyproject.toml requirements/dev.txt
	$(FETCH) pip sync --quiet --compile-bytecode --python $(PY) --require-hashes --no-build-isolation requirements/dev.txt
	$(FETCH) pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.ready: $(VENV)/.installed
	@echo "import $(TYPED)" > $(VENV)/typed.py
	-$(PY) -m mypy $(VENV)/typed.py >/dev/null
	-$(PY) -m pytest --collect-only -qq >/dev/null
	@touch $@
