"""Exporting: a trained agent as a file that runs without this package."""
