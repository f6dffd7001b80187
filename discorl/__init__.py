"""Train agents with discovered reinforcement-learning rules, and discover new ones."""

__version__ = "0.1.0"
