"""Losses as compositions of small pure functions, and training with them.

A `Method` fills seven slots with parts (advantage, shape, ratio, surrogate, mask, penalties, reduce). `methods.catalog`
holds every method by name, `methods.parts` the formulas, `methods.parts.entropy` log-probs and entropies of a large
vocabulary. Formulas are written with tensor methods: nothing but
`methods.parts.entropy` imports torch before a tensor arrives, so that planning a matrix of runs needs no torch.
"""
