"""What every trainer shares: specification, run folder, rollouts, the lock, hashes of code."""
