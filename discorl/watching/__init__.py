"""Watching agents: what they see and how they decide, as a video or in a terminal."""
