"""Experiments: benchmarks x models x rounds, compared and never gated."""
