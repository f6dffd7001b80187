# Every target makes its own virtual environment first; nothing is done twice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs

# Worlds whose packages ask for other versions than ours, or for many more packages.
WORLDS := procgen minihack bsuite
WORLD_STAMPS := $(WORLDS:%=$(VENV)-%/.installed)

.PHONY: train test slow worlds lint bench docs clean help

help:
	@echo "make train   train an agent on Catch and draw its learning curve (about two minutes)"
	@echo "make test    run the tests"
	@echo "make slow    run the learning runs among the tests (minutes), then the worlds"
	@echo "make worlds  test $(WORLDS), each in a virtual environment of its own"
	@echo "make lint    check style and types"
	@echo "make bench   time a learner step against disco-torch in one run"
	@echo "make docs    build the documentation site in site/"

train: $(STAMP)
	$(BIN)/discorl train catch --seed 0

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not slow"

slow: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m slow
	$(MAKE) worlds

worlds: $(WORLD_STAMPS)
	for world in $(WORLDS); do \
	  $(VENV)-$$world/bin/python -m pytest tests/envs/test_worlds.py -n 2 || exit 1; \
	done

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/discorl bench learner --rule random

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,atari,minatar,box2d,minigrid,crafter,video,onnx,report,hub,ray,slurm,tune,bench]'
	@touch $@

# Pins that a world's packages contradict; pip then takes what they ask for.
$(VENV)-procgen/.installed: FREED := numpy|filelock|imageio-ffmpeg
$(VENV)-minihack/.installed: FREED := gymnasium
$(VENV)-bsuite/.installed: FREED := none

$(VENV)-%/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-$*
	grep -vE '^($(FREED))==' constraints.txt > $(VENV)-$*/constraints.txt
	$(VENV)-$*/bin/pip install --quiet --disable-pip-version-check -c $(VENV)-$*/constraints.txt torch==2.13.0
	$(VENV)-$*/bin/pip install --quiet --disable-pip-version-check -c $(VENV)-$*/constraints.txt -e '.[dev,bench,$*]'
	@touch $@

docs: $(DOCS_STAMP)
	$(BIN)/mkdocs build --strict
	@echo "open site/index.html; its search needs a server: python3 -m http.server -d site"

$(DOCS_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) $(WORLDS:%=$(VENV)-%) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
