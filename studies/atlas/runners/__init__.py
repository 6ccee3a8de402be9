"""One program a framework, run by `studies.atlas` in a process of its own with that framework's version in front.

A runner imports nothing of this project. `python RUNNER IN.npz OUT.npz` reads the batches and writes for each name that
the framework has, and each batch, `<name>|<batch>|value` and `<name>|<batch>|gradient`: the loss at the framework's own
defaults and its gradient by the log-probs (B, T), float64. OUT.json beside it has, for each name, the defaults in force
and the function that was called.
"""
