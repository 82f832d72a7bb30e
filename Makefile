# On a fresh machine with Python 3.11+ and make, each target does its own set-up; it is skipped when nothing changed.

# Bytecode is kept, also where the environment forbids it: without it both workers rewrite the assertions of all tests at
# every start, and every program that a test starts compiles the package again.
export PYTHONDONTWRITEBYTECODE :=

BIN := .venv/bin
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-header --no-annotate $(UPGRADE)

.PHONY: setup browser demo test test-slow test-oldest test-integrations coverage lint format docs tutorials gallery wheel requirements \
	architectures bench bench-gpu bench-smoke clean

setup:
	@sh scripts/setup.sh

browser:
	@sh scripts/browser.sh

demo: setup
	$(BIN)/skipscope units torchvision:resnet18 --input-shape 3,64,64
	$(BIN)/skipscope units timm:vit_tiny_patch16_224
	$(BIN)/skipscope demo

test: lint browser
	$(BIN)/pytest -n 2

test-slow: setup
	$(BIN)/pytest -n 2 -m slow

# The fast tests with the lowest versions that pyproject.toml allows, in an environment of their own.
OLDEST_PYTHON ?= 3.11
test-oldest: .venv-oldest/.stamp browser
	.venv-oldest/bin/pytest -n 2

.venv-oldest/.stamp: pyproject.toml | setup
	$(BIN)/uv venv --quiet --clear --python $(OLDEST_PYTHON) .venv-oldest
	$(BIN)/uv pip install --quiet --python .venv-oldest/bin/python --resolution lowest-direct --editable ".[dev]"
	touch $@

# With the tools that skipscope works inside of (Lightning, Weights & Biases, Ray, ...), in an environment of their own.
test-integrations: .venv-integrations/.stamp
	.venv-integrations/bin/pytest -n 2 -m integration

.venv-integrations/.stamp: pyproject.toml requirements/dev.txt requirements/integrations.txt | setup
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-integrations
	$(BIN)/uv pip install --quiet --python .venv-integrations/bin/python --require-hashes -r requirements/integrations.txt
	$(BIN)/uv pip install --quiet --python .venv-integrations/bin/python --no-build-isolation --no-deps --editable .
	touch $@

# The lines and branches that the fast tests run; those that they do not are marked in build/coverage/index.html.
coverage: setup browser
	$(BIN)/pytest -n 2 --cov --cov-report=term:skip-covered --cov-report=html

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: setup
	$(BIN)/mkdocs build --strict --site-dir build/site

# Runs the notebooks of the documentation again, and makes the pictures of its gallery; minutes each.
tutorials: setup browser
	$(BIN)/python scripts/tutorials.py

gallery: setup browser
	$(BIN)/python scripts/gallery.py

# The wheel, and whether it works in an environment that has only what it asks for.
wheel: setup
	@sh scripts/wheel.sh

# `make requirements UPGRADE=--upgrade` moves every pin to the newest version.
requirements: setup
	$(COMPILE) pyproject.toml --extra dev -o requirements/dev.txt
	$(COMPILE) pyproject.toml --extra dev --extra integrations -c requirements/dev.txt -o requirements/integrations.txt
	echo uv | $(COMPILE) - -o requirements/uv.txt

architectures: setup
	$(BIN)/python scripts/architectures.py

# skipscope beside its alternatives: under 15 minutes on 2 cores; then the page of the documentation is made anew.
bench: setup browser
	$(BIN)/python -m benchmarks cpu
	$(BIN)/python -m benchmarks growth
	$(BIN)/python -m benchmarks.busy_machine --out benchmarks/results/busy-machine.json
	$(BIN)/python -m benchmarks page

# `make bench-gpu IMAGES=file`: a file of torch.save with normalised test images of CIFAR-10.
WEIGHTS ?= docs/results/networks/resnet56-cifar-projection-seed1000.safetensors
bench-gpu: setup
	$(BIN)/python -m benchmarks gpu --weights $(WEIGHTS) --images $(IMAGES)

# Small cases against the committed ratios, in two minutes.
bench-smoke: setup
	$(BIN)/python -m benchmarks guard

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find skipscope tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
