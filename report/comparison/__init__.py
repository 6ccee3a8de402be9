"""Two results trees: what both have, and which numbers moved further than other seeds move them."""
