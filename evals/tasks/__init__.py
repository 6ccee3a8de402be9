"""Benchmarks: a file is registered by being here. How to add one: docs/extend.md."""
