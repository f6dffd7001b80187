"""Searching for settings: trials of a study, with several seeds each, pruned by learning curve."""
