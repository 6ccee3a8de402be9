"""Losses as compositions of small pure functions: the catalog, its readings, one set of diagnostics.

A `Method` fills seven slots (advantage, shape, ratio, surrogate, selection, penalties, reduce); `methods.catalog`
names the fillings. Formulas are written with tensor methods: nothing here imports torch before a tensor arrives.
"""
