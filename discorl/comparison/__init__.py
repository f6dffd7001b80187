"""Comparing rules: rules x environments x seeds in parallel, scores and their uncertainty."""
