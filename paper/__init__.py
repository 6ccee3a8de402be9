"""The paper as data, and what follows from it: printed tables, audit, claims."""
