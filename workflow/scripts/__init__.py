"""Programs that know the cluster: a trainer never does."""
