"""Benchmarks: ratios against a baseline in the same run, never absolute bars."""
