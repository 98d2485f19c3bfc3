# Everything runs in .venv, which the first target that needs it makes. A target that has nothing
# to do says so and ends: the files .venv/app, .venv/dev and .venv/browser mark what is set up.

PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
CHECKED := $(wildcard app.py pages ui figures vit tests benchmarks docs)

.PHONY: help app test lint format screenshots clean

help:
	@echo "make app     set up what the app needs and open it in your browser"
	@echo "make test    set up what the tests need, a browser included, and run them all"
	@echo "make lint    style and types only"
	@echo "make format  mend the style"
	@echo "make screenshots  take the README's pictures of every page"
	@echo "make clean   remove .venv and the tools' caches"

app: .venv/app
	$(PY) -m streamlit run app.py

test: lint .venv/browser
	$(PY) -m pytest

lint: .venv/dev
	$(PY) -m ruff check $(CHECKED)
	$(PY) -m ruff format --check $(CHECKED)
	$(PY) -m mypy

format: .venv/dev
	$(PY) -m ruff check --fix $(CHECKED)
	$(PY) -m ruff format $(CHECKED)

screenshots: .venv/browser
	$(PY) -m docs.screenshots

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache *.egg-info

# The first of these that starts and is new enough. PYTHON=/path/to/python3 overrules it.
PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3,$(shell \
    $(p) -c 'import sys; sys.version_info >= (3, 11) and print("$(p)")' 2>/dev/null)))

$(PY):
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; install it, or name it: make PYTHON=/path/to/python3 ..." >&2; exit 2; }
	$(PYTHON) -m venv .venv

.venv/app: requirements.txt | $(PY)
	$(PIP) install -r requirements.txt
	@touch $@

# One pip call for the app and the tools, so that one set of pins is resolved once.
.venv/dev: requirements.txt pyproject.toml | $(PY)
	$(PIP) install -e '.[dev]'
	@touch $@ .venv/app

.venv/browser: tests/install_browser.py .venv/dev
	$(PY) -m tests.install_browser
	@touch $@
