"""Evaluation: the benchmark registry, generation, grading, statistics."""
