"""Notebooks are run as tests, with a budget of seconds each."""

import os

# Kernels are processes that inherit it.
os.environ["DISCORL_SMOKE"] = "1"
