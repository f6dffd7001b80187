"""Runs as web pages: one file to keep, or served live from a folder of runs."""
