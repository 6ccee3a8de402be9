"""Models: the tiny bases this repository trains itself, the hub models of the paper, and training prompts."""
