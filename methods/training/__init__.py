"""Code shared by all trainers: specification, run folder, rollouts, curve, movement, code hashes."""
