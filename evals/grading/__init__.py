"""Grading: from a response and a gold answer to a verdict whose errors are known. See docs/grading.md."""
