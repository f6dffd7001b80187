"""The command line: parse, build, call. Each command is a dataclass with a `run` method."""
