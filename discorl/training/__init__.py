"""Training: act, store, learn, evaluate, log, checkpoint."""
