"""Benchmarks: us and a peer side by side, as ratios, because machines are shared and noisy."""
