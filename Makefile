# The same verbs at a desk and in CI. `make demo` and `make test` set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
STAMP := $(VENV)/.candor-$(RUNTIME)
PORT ?= 8000

.PHONY: help setup demo fraud serve train test check format smoke clean

help:  ## Show what there is.
	@awk -F ':.*## ' '/^[a-z]+:.*## / {gsub(/\$$\(PORT\)/, "$(PORT)"); printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Build .venv from the lock file; takes onnxruntime-gpu where an NVIDIA driver answers.

$(STAMP): pyproject.toml requirements/lock.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Candor needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 setup"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint requirements/lock.txt --editable '.[serve,postgres,$(RUNTIME),train,dev]'
	@# The two runtimes share a folder of modules: only one may be there.
	@$(BIN)/python -m pip uninstall --quiet --yes $(if $(filter gpu,$(RUNTIME)),onnxruntime,onnxruntime-gpu) 2>/dev/null
	@rm -f $(VENV)/.candor-*; touch $@

demo: setup  ## Train, calibrate, serve, drift, recalibrate, roll back: the main job in five beats.
	$(BIN)/python -m examples.demo

fraud: setup  ## Fraud with a known truth: late and selective labels, a biased refit, drift, recalibration.
	$(BIN)/python -m examples.fraud

var/bundles/digits: | $(STAMP)
	$(BIN)/candor-train train --dataset digits --out var/bundles --seed 9

train: setup var/bundles/digits  ## Train the digits bundle that `make serve` serves.

serve: train  ## Serve the digits bundle on port $(PORT).
	@echo
	@echo "  Try, in another terminal:"
	@echo "    curl -H 'Content-Type: image/png' --data-binary @examples/seven.png 'http://127.0.0.1:$(PORT)/predict?policy=auto-read&top=3'"
	@echo "    $(BIN)/candor predict examples/seven.png --policy auto-read --url http://127.0.0.1:$(PORT)"
	@echo "    http://127.0.0.1:$(PORT)/docs"
	@echo
	$(BIN)/candor serve --port $(PORT) --policies examples/policies

test: setup  ## Run the tests.
	$(BIN)/python -m pytest

check: setup  ## Lint, format, types, layers.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup  ## Format the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

smoke: setup  ## Build the image, run it with compose, predict, recalibrate, restart (needs a Docker engine).
	docker/smoke-test

clean:  ## Remove what was built; keeps var/, where bundles and state are.
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
