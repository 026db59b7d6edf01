# The same verbs at a desk and in CI. `make demo` and `make test` set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
STAMP := $(VENV)/.candor-$(RUNTIME)
PORT ?= 8000
TEST_PROCESSES ?= 2
SHELL_SCRIPTS := .ci/run requirements/compile docker/finish-venv docker/smoke-test docker/smoke-*.sh tests/docker/stand-ins/postgres-entrypoint

.PHONY: help setup demo fraud serve train test check reference docs format lock sbom audit smoke clean

help:  ## Show what there is.
	@awk -F ':.*## ' '/^[a-z]+:.*## / {gsub(/\$$\(PORT\)/, "$(PORT)"); printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Build .venv from the lock file; takes onnxruntime-gpu where an NVIDIA driver answers.

$(STAMP): pyproject.toml requirements/lock.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Candor needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 setup"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint requirements/lock.txt --editable '.[serve,postgres,otel,parquet,$(RUNTIME),train,dev,docs]'
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

test: setup  ## Run the tests, in as many processes as TEST_PROCESSES says.
	@# One thread each: libraries take as many as there are processors, and would wait for each other's.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist worksteal

check: setup  ## Lint, format, types, layers; the Dockerfiles, compose.yaml, shell scripts.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint docker/Dockerfile tests/docker/stand-ins/Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec compose.yaml
	$(BIN)/shellcheck --external-sources $(SHELL_SCRIPTS)

docs: setup  ## Build the site of docs/ into build/site; a broken link or anchor ends it.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

reference: setup  ## Write docs/api-reference.md from a running service.
	$(BIN)/python -m examples.api_reference

format: setup  ## Format the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: setup  ## Write the digests of what goes into the images, at the versions of the lock file.
	requirements/compile

build/sbom.cdx.json: requirements/serve-cpu.txt | $(STAMP)
	@rm -rf build/serving; $(PYTHON) -m venv build/serving
	build/serving/bin/python -m pip install --quiet --require-hashes --requirement requirements/serve-cpu.txt
	build/serving/bin/python -m pip uninstall --quiet --yes pip setuptools
	SOURCE_DATE_EPOCH=1700000000 $(BIN)/cyclonedx-py environment --output-reproducible --spec-version 1.6 \
		--output-file $@ build/serving/bin/python

sbom: setup build/sbom.cdx.json  ## Write build/sbom.cdx.json: what the service on a CPU is made of (CycloneDX).

audit: setup build/sbom.cdx.json  ## Known vulnerabilities of the lock file, licences of what serves.
	$(BIN)/python requirements/audit.py vulnerabilities
	$(BIN)/python requirements/audit.py licences build/sbom.cdx.json

smoke: setup  ## Build the image, run it with compose, predict, recalibrate, restart (needs a Docker engine).
	docker/smoke-test

clean:  ## Remove what was built; keeps var/, where bundles and state are.
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
