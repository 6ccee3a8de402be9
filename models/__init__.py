"""Models: the tiny bases trained in this repository, the hub models of the paper, and training prompts."""
