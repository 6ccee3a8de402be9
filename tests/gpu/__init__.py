"""Acceptance of a GPU, `python -m tests.gpu.accept`; without one, the same checks at toy size on a CPU."""
