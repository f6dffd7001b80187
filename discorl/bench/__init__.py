"""Benchmarks: us and a peer in one run, as ratios, because machines are shared and noisy."""
