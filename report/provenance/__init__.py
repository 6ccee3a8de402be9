"""Where a number comes from: the manifest, and what moved between two results trees."""
