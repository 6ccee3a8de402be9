"""The claims of the paper (`paper/claims.yaml`), each with a verdict: docs/claims.md says how it comes about."""
