# `make demo` shows what mlxfill does, `make check` checks the heart of it in a minute or two, `make test` everything.
# All set up `.venv/` first.
#   make PYTHON=python3.12 demo     another interpreter (3.11 or newer)
#   make EXTRA=cuda13 demo          another backend of mlx on Linux (cpu, cuda12, cuda13)
#   make PYTEST_ARGS='-x -k rewind' test

PYTHON ?= python3
PYTEST_ARGS ?= -n 2 --dist worksteal
EXTRA ?= $(if $(filter Linux,$(shell uname -s)),cpu)

BIN := .venv/bin
INSTALLED := .venv/installed
DEVELOPED := .venv/developed
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
PROJECTS := core/pyproject.toml $(PLUGINS:%=%/pyproject.toml)

# The heart: rewinding, windows against mlx-lm's own loop, sources, the policy, checkpoints, settings.
HEART := core/tests/rewind core/tests/test_maps.py core/tests/test_rules.py core/tests/test_config.py \
	$(patsubst %,core/tests/engine/test_%.py,oracle session assert gate gate_values sampling_values checkpoint_content)

.PHONY: demo check test site release

demo: $(INSTALLED)
	@$(BIN)/mlxfill demo

check: $(DEVELOPED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	MLXFILL_EXAMPLES=8 $(BIN)/pytest $(PYTEST_ARGS) --quiet $(HEART)

# The types are checked beside the tests, as they need one core; what mypy says comes at the end.
test: $(DEVELOPED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo
	@mkdir -p build
	$(BIN)/mypy > build/mypy.txt 2>&1 & mypy=$$!; \
	$(BIN)/pytest $(PYTEST_ARGS); tests=$$?; \
	wait $$mypy; types=$$?; cat build/mypy.txt; \
	[ $$tests = 0 ] && [ $$types = 0 ]

# The documentation, in build/site.
site: $(DEVELOPED)
	@$(BIN)/python tools/reference.py
	@$(BIN)/mkdocs build --strict

# make release TAG=mlxfill-fill-echo-v0.1.0: sdist and wheel, checked, in build/dist.
release: $(DEVELOPED)
	@$(BIN)/python tools/release.py $(TAG)

# One pip command, so that the resolver sees every distribution as the folder it is.
$(INSTALLED): $(PROJECTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mlxfill needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=python3.12 $(MAKECMDGOALS)")'
	@echo "Setting up .venv (the first time takes a minute or two)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-e 'core$(EXTRA:%=[%])' $(PLUGINS:%=-e %)
	@touch $@

# What tests, pages and releases need, and a demo does not.
$(DEVELOPED): $(INSTALLED) pyproject.toml
	@echo "Adding the tools of developers"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@
