# `make gate`: set everything up and run the release gate of the embedded specialist.
# `make test`: set everything up and run the tests.

VENV := .venv
BIN := $(VENV)/bin
# The first Python on the path that will do; `make PYTHON=/path/to/python gate` takes another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && { echo $$p; break; }; \
	done)

# What MLX needs on this platform: nothing more on macOS, a CUDA or a CPU backend on Linux.
ifeq ($(shell uname -s),Linux)
EXTRA := $(if $(shell nvidia-smi -L 2>/dev/null),cuda,cpu)
else
EXTRA :=
endif
comma := ,

.PHONY: gate test lint plugin-matrix clean

gate: $(VENV)/.gate-installed
	$(BIN)/python -m pytest --niche=patents

test: $(VENV)/.test-installed
	$(BIN)/python -m pytest -n auto --dist=worksteal

lint: $(VENV)/.test-installed
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

# The gate beside each of the common plugins of pytest.
plugin-matrix: $(VENV)/.test-installed
	$(BIN)/python tools/plugin_matrix.py

# Byte code is made of what is used, when it is used: a quarter of the size and of the time of an install.
# An install that was interrupted leaves no mark, and is done again on top of what is there.
$(VENV)/.gate-installed: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --no-compile --editable '.$(if $(EXTRA),[$(EXTRA)])'
	@touch $@

$(VENV)/.test-installed: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev$(if $(EXTRA),$(comma)$(EXTRA))]'
	@touch $@ $(VENV)/.gate-installed

# Some Linux distributions ship `venv` without pip in it; the second line then brings pip from outside.
$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed; none is on the path" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV) || { $(PYTHON) -m venv --clear --without-pip $(VENV) \
		&& $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info
