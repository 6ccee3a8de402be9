"""Benchmarks: adding a file here registers it. How to add one: docs/extend.md."""
