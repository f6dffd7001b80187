"""Run folders: configuration, metrics, checkpoints, plots. Nothing here knows about learning."""
