# Every target sets up what it needs, from nothing.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
# On the two cores of the smallest machine: three keep them busy with what computes, four with what also waits for a process,
# a clock or a browser.
FAST_WORKERS ?= 3
WORKERS ?= 4

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.stamp
UV := .venv-lock/bin/uv
# Node modules are needed as soon as there are node tests.
NODE_STAMP := tests/node/node_modules/.stamp
NODE7_STAMP := tests/node7/node_modules/.stamp
WEB_STAMP := web/node_modules/.stamp
BROWSER_STAMP := tests/browser/node_modules/.stamp
BROWSER_READY := $(if $(wildcard tests/browser/package.json),$(BROWSER_STAMP) chromium)
NODE_READY := $(if $(wildcard tests/node/package.json),$(NODE_STAMP))
# Tests start hundreds of Python processes: each reads compiled modules, whatever the environment says, and the tree stays
# clean of them.
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache
unexport PYTHONDONTWRITEBYTECODE
TYPED := src tools tests $(wildcard bench) examples
QUICKLY = export TMPDIR=$$(tools/quick_folder.sh); trap 'rm -rf "$$TMPDIR"' EXIT;
PYTEST := CLEW_HYPOTHESIS_PROFILE=ci $(BIN)/python -m pytest

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

# The list is whole, so nothing is resolved: an older pip takes `coverage[toml]`, which is another name than the pinned `coverage`,
# for unpinned as soon as there is a newer version of it.
$(READY): requirements/dev.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --no-deps --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

$(NODE_STAMP): tests/node/package.json tests/node/package-lock.json
	cd tests/node && npm ci --no-audit --no-fund --loglevel=error
	touch $@

$(NODE7_STAMP): tests/node7/package.json tests/node7/package-lock.json
	cd tests/node7 && npm ci --no-audit --no-fund --loglevel=error
	touch $@

$(BROWSER_STAMP): tests/browser/package.json tests/browser/package-lock.json
	cd tests/browser && npm ci --no-audit --no-fund --loglevel=error
	touch $@

# Chromium's headless shell, the same engine without a window around it, which takes a third less of the machine; else the
# system's Chromium. Installed where that can be done; where not, the browser tests say loudly that they were skipped.
.PHONY: chromium
chromium:
	@there() { command -v "$$@" > /dev/null; }; \
	get() { DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::http::Timeout=20 install -qq -y "$$1" > /dev/null 2>&1; }; \
	may_get() { [ "$$(id -u)" = 0 ] && there apt-get; }; \
	if there chromium-headless-shell; then :; \
	elif there chromium || there chromium-browser || there google-chrome; then \
		! may_get || get chromium-headless-shell || :; \
	elif may_get; then \
		echo "Installing Chromium for the browser tests."; \
		get chromium-headless-shell || { apt-get update -qq > /dev/null && { get chromium-headless-shell || get chromium; }; } \
			|| echo "Chromium could not be installed; the browser tests will be skipped."; \
	else echo "There is no Chromium; the browser tests will be skipped."; fi

.PHONY: setup
setup: $(READY) $(NODE_READY) ## make .venv and the node modules of the tests

.PHONY: serve
serve: ## run the server, on port PORT (7717)
	@test -e $(READY) || echo "Setting up .venv; this takes a minute or so the first time."
	@$(MAKE) -s --no-print-directory $(READY)
	$(BIN)/clew serve$(if $(PORT), --port $(PORT))

.PHONY: serve-cluster
serve-cluster: $(READY) ## run three replicas on a PostgreSQL and a Valkey of their own, from port PORT (7717)
	@$(BIN)/python -m tests.services$(if $(PORT), --port $(PORT))

.PHONY: check
check: $(READY) ## lint, format, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(TYPED)
	$(BIN)/lint-imports --no-logo

.PHONY: pyright
pyright: $(READY) $(NODE_READY) ## the examples and how clew is embedded, by the other type checker
	node tests/node/node_modules/pyright/index.js -p examples/pyrightconfig.json --pythonpath $(BIN)/python

# Read once, compiled for all: workers that begin on a clean tree would each compile every test and all of the source.
.PHONY: compiled
compiled: $(READY)
	@said=$$($(PYTEST) --collect-only -qq) || { echo "$$said"; exit 1; }

# What is to be had before the tests is made side by side.
.PHONY: checked
checked: check pyright compiled web-check $(NODE_READY) $(BROWSER_READY)

.PHONY: test
test: ## check, then every test
	@$(MAKE) -j$(WORKERS) --output-sync=target --no-print-directory checked
	$(QUICKLY) CLEW_ROUNDS=$${CLEW_ROUNDS:-85} $(PYTEST) -n $(WORKERS) --dist worksteal

.PHONY: test-fast
test-fast: $(READY) ## the tests that need nothing but Python and little time
	$(QUICKLY) CLEW_ROUNDS=$${CLEW_ROUNDS:-50} $(PYTEST) -n $(FAST_WORKERS) --dist worksteal -m "not slow and not service and not browser and not kill and not node"

.PHONY: test-postgres
test-postgres: $(READY) ## the suite of stores, the scenarios and random histories on PostgreSQL, which comes out of a wheel
	$(QUICKLY) CLEW_TEST_STORE=postgresql $(PYTEST) -n $(WORKERS) --dist worksteal -m service
	$(QUICKLY) CLEW_TEST_STORE=postgresql $(PYTEST) -n $(WORKERS) --dist worksteal tests/acceptance -m "not service and not kill and not node and not browser"

# What clew offers without POSIX. Tests of what is off there skip themselves; those of POSIX itself are not asked for.
PLATFORM_TESTS := tests/unit tests/contract $(addprefix tests/integration/,$(addsuffix .py,test_deletion test_engine test_engine_lists \
	test_http_auth test_http_cursor test_http_sse test_lanes test_output_form test_run test_transactions))

.PHONY: test-platforms
test-platforms: $(READY) ## the core on a Python without POSIX, and the types for macOS and Windows
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin src
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 src
	$(QUICKLY) $(PYTEST) -p tests.rig.no_posix_plugin -n $(WORKERS) --dist worksteal -m "not slow and not service and not node" $(PLATFORM_TESTS)

.PHONY: test-schemathesis
test-schemathesis: $(READY) ## schemathesis over the whole API; it is installed beside
	test -x .venv-schemathesis/bin/schemathesis || { $(PYTHON) -m venv .venv-schemathesis && \
		.venv-schemathesis/bin/python -m pip install -qq schemathesis==4.32.5; }
	$(BIN)/python tools/schemathesis.py

# Something that uses each thing clew needs, and what uses it most.
LOWEST := $(addprefix tests/,$(addsuffix .py,unit/test_agents_* unit/test_chunk* unit/test_fold* unit/test_front_matter unit/test_value_check \
	unit/test_interop_* unit/test_package unit/test_part unit/test_permission_tables unit/test_permission_corpora unit/test_permissions_* \
	unit/test_providers_* unit/test_tools_arguments unit/test_tools_decorator unit/test_triggers_schedule acceptance/test_transfer \
	contract/test_* integration/test_cli_chat* integration/test_cli_commands integration/test_completion integration/test_embedding \
	integration/test_engine integration/test_files_store integration/test_http_auth integration/test_http_body integration/test_http_chat \
	integration/test_http_models integration/test_http_openapi integration/test_http_page integration/test_http_sse integration/test_mcp_* \
	integration/test_model_table integration/test_output_* integration/test_postgres integration/test_serve integration/test_services \
	integration/test_telemetry integration/test_tool_types integration/test_wire_kinds))

.PHONY: test-lowest
test-lowest: $(READY) $(UV) ## the tests of what clew needs, with the lowest version of each that pyproject.toml allows
	rm -rf build/lowest
	$(UV) venv -q --python $(BIN)/python build/lowest
	$(UV) pip install -q --python build/lowest/bin/python --resolution lowest-direct -e '.[all]' -r requirements/dev.in
	$(QUICKLY) CLEW_HYPOTHESIS_PROFILE=ci build/lowest/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not node and not browser and not kill" $(wildcard $(LOWEST))

.PHONY: test-wheel
test-wheel: $(READY) $(UV) ## the wheel in fresh environments: each extra, the lowest and the newest versions, every Python that is there
	$(BIN)/python tools/wheel.py $(UV)

# How long (ROUNDS, MINUTES), from where (SEED), and the file that counts over several runs (TALLY).
RIG = $(BIN)/python -m tests.rig
BUDGET = $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(TALLY),--tally $(TALLY))

.PHONY: kill
kill: $(READY) ## the campaign of kills over three stores, ROUNDS of them (2000)
	$(RIG) kill $(BUDGET)

.PHONY: power
power: $(READY) ## the campaign of power cuts, ROUNDS of them (2000)
	$(RIG) power $(BUDGET)

.PHONY: flip
flip: $(READY) ## the campaign of flipped bits, ROUNDS of them (1000)
	$(RIG) flip $(BUDGET)

.PHONY: fuzz
fuzz: $(READY) ## the campaign of inputs nobody should send, ROUNDS of them (50000)
	$(RIG) fuzz $(BUDGET)

.PHONY: phases
phases: $(READY) ## the campaign of breaking wires and of hits in every phase of a turn, ROUNDS of them (1000)
	$(RIG) phases $(BUDGET)

.PHONY: share
share: $(READY) ## the campaign of two programs in one file, ROUNDS steps of them (4000)
	$(RIG) share $(BUDGET)

.PHONY: shell
shell: $(READY) ## the campaign of shell lines that mean harm, run by bash, ROUNDS of them (2000)
	$(RIG) shell $(BUDGET)

.PHONY: snapshots
snapshots: $(READY) ## the campaign of snapshots of a workspace that changes at random, ROUNDS of them (1000)
	$(RIG) snapshots $(BUDGET)

.PHONY: races
races: $(READY) ## replicas that take one session at once, ROUNDS times (10000); with STORE=postgresql on one out of a wheel, with URL= there
	$(BIN)/python -m tests.rig.races $(or $(ROUNDS),10000) $(or $(URL),$(STORE))

.PHONY: chaos
chaos: $(READY) ## the campaign of faults in a cluster of three replicas, ROUNDS of them (24)
	$(RIG) chaos $(BUDGET)

.PHONY: campaign
campaign: MINUTES ?= 10
campaign: $(READY) ## every campaign, soak included, MINUTES in all (10)
	$(RIG) all $(BUDGET)

# The scripts are the same; where they lie decides which version of the client they load.
.PHONY: test-v7
test-v7: $(READY) $(NODE7_STAMP) ## the tests with the real client against its next version, ai 7
	cp tests/node/chat.mjs tests/node/reduce.mjs tests/node7/
	CLEW_TEST_NODE=node7 $(PYTEST) -n $(WORKERS) tests/integration/test_ai_client.py tests/node7/reducer.py

PROGRAMS_STAMP := tests/programs/node_modules/.stamp
$(PROGRAMS_STAMP): tests/programs/package.json
	cd tests/programs && npm install --no-save --no-package-lock --no-audit --no-fund --omit=optional --loglevel=error
	touch $@

.PHONY: test-programs
test-programs: $(READY) $(PROGRAMS_STAMP) ## the session stores of real programs: pi from npm; CLEW_AGENT, CLEW_MOLF and CLEW_GRIDA name checkouts
	$(PYTEST) -rs tests/programs/test_shapes.py tests/programs/real_programs.py

# Linters, schemas and Litestream, in an environment of their own.
DEPLOY_READY := .venv-deploy/.stamp
$(DEPLOY_READY): requirements/deploy.txt
	test -x .venv-deploy/bin/python || $(PYTHON) -m venv .venv-deploy
	.venv-deploy/bin/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r requirements/deploy.txt
	touch $@

.PHONY: test-deploy
test-deploy: $(READY) $(DEPLOY_READY) ## the files of deploy/: linters, schemas, the container file's steps without a container; Litestream
	$(PYTEST) -rs tests/integration/test_deploy.py tests/deploy/deployed.py

.PHONY: soak
soak: $(READY) ## many sessions streaming at once, CLEW_SOAK_SESSIONS of them (1000)
	$(BIN)/python -m tests.rig.server_load

.PHONY: rules
rules: $(READY) ## each rule with the tests that prove it
	$(BIN)/python tools/rules.py

.PHONY: bench
bench: $(READY) ## measure, in at most 8 minutes; QUICK=1 takes smaller sizes, OUT=FILE gets the table
	$(BIN)/python -m bench $(if $(QUICK),--quick) $(if $(OUT),--out $(OUT))

.PHONY: bench-peers
bench-peers: $(READY) ## whole turns beside two other engines, in environments of their own
	$(BIN)/python -m bench.peers $(if $(QUICK),--quick)

.PHONY: kill-matrix
kill-matrix: $(READY) ## kill clew and six other libraries, in environments of their own; PEER=NAME takes one, OUT=FILE gets the tables
	$(BIN)/python -m bench.kill_matrix $(if $(PEER),--peer $(PEER)) $(if $(OUT),--out $(OUT))

.PHONY: walk
walk: $(READY) ## count what seven operations take, and write the table into docs/design.md
	$(BIN)/python -m tools.walk --write

.PHONY: client
client: $(READY) ## write the operations of the blocking client from the table
	$(BIN)/python -m tools.blocking_client

.PHONY: reference
reference: $(READY) ## write docs/reference and the tables of the storage format from the code
	$(BIN)/python -m tools.reference

.PHONY: web-types
web-types: client $(READY) ## write the types of client and page from the API's document
	$(BIN)/python -m tools.web_types

# Not `npm ci`: it wants the binaries of every system in the lock, and a registry need not have them all.
$(WEB_STAMP): web/package.json web/package-lock.json
	cd web && npm install --no-save --no-audit --no-fund --loglevel=error
	touch $@

.PHONY: web-check
web-check: $(WEB_STAMP) ## the page's types and unit tests
	cd web && npm run --silent types
	cd web && npm test --silent -- --no-isolate

# The build goes to src/clew/fronts/web/dist, with the hash of what it was made from.
.PHONY: web
web: web-types web-check ## check and build the page
	cd web && npm run --silent build
	$(BIN)/python -m tools.web_hash --write

# Both drive the real page in the system's Chromium. The pictures are looked at before they are committed.
IN_CHROMIUM = CLEW_CHROMIUM=$$(command -v chromium || command -v chromium-browser || command -v google-chrome || command -v chromium-headless-shell) CLEW_BIN=$(CURDIR)/$(BIN)/clew

.PHONY: screenshots
screenshots: $(READY) $(BROWSER_READY) ## pictures of the page's main states, into docs/images
	cd tests/browser && $(IN_CHROMIUM) node screenshots.mjs

.PHONY: film
film: $(READY) $(BROWSER_READY) ## the films of the README and of rewinds, into docs/images
	cd tests/browser && $(IN_CHROMIUM) node film.mjs
	cd tests/browser && $(IN_CHROMIUM) node film_rewind.mjs

.PHONY: measure-web
measure-web: $(READY) $(BROWSER_READY) ## how quickly the page opens and scrolls a long session
	cd tests/browser && $(IN_CHROMIUM) node measure.mjs
	cd tests/browser && $(IN_CHROMIUM) node measure_typing.mjs
	cd tests/browser && $(IN_CHROMIUM) node measure_long.mjs

# The documentation as a site, in an environment of its own. Nothing is fetched while it is built, nor by its pages.
DOCS_READY := .venv-docs/.stamp
$(DOCS_READY): requirements/docs.txt
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r requirements/docs.txt
	touch $@

.PHONY: docs
docs: $(DOCS_READY) $(WEB_STAMP) ## build the documentation as a site, in build/site; a broken link fails
	$(PYTHON) tools/docs_site.py
	@said=$$(.venv-docs/bin/zensical build --strict 2>&1) || { echo "$$said"; exit 1; }
	@grep -q continue_turn build/site/search.json || { echo "the search index of the site lacks the reference"; exit 1; }
	@echo "To read it: $(PYTHON) -m http.server --bind 127.0.0.1 --directory build/site"

# uv sits in an environment of its own. The outcome names no registry and no path.
$(UV):
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install -qq uv

LOCKING := --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	--no-annotate --custom-compile-command "make lock" --quiet

.PHONY: lock
lock: $(UV) ## write requirements/dev.txt, docs.txt and deploy.txt from the newest versions
	$(UV) pip compile pyproject.toml requirements/dev.in --extra server --extra models --extra google --extra bedrock --extra mistral --extra groq --extra xai --extra postgres --extra redis --extra otel --extra mcp --output-file requirements/dev.txt \
		$(LOCKING)
	$(UV) pip compile requirements/docs.in --output-file requirements/docs.txt $(LOCKING)
	$(UV) pip compile requirements/deploy.in --output-file requirements/deploy.txt $(LOCKING)
	! grep -nE '://|--(extra-)?index-url|--find-links' requirements/dev.txt requirements/docs.txt requirements/deploy.txt

.PHONY: clean
clean: ## remove what can be made again
	rm -rf $(VENV) .venv-lock .venv-docs .venv-deploy .venv-schemathesis tests/node/node_modules tests/node7/node_modules tests/node7/*.mjs tests/programs/node_modules web/node_modules tests/browser/node_modules examples/product/front/dist examples/product/front/node_modules dist build .mypy_cache .ruff_cache .pytest_cache \
		.import_linter_cache .hypothesis .coverage .coverage.* htmlcov
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
