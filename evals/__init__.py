"""Measuring: the benchmark registry, generation, grading, statistics."""
