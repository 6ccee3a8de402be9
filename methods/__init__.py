"""Losses as compositions of small pure functions, and training with them.

A `Method` fills slots with parts (advantage, shape, ratio, surrogate, mask, penalties, correction, reduce).
`methods.catalog` contains all methods by name, `methods.parts` the formulas, `methods.parts.entropy` log-probs and
entropies of a large vocabulary. Formulas use tensor methods: only `methods.parts.entropy` imports torch before a
tensor arrives, so that planning a matrix of runs works without torch.
"""
