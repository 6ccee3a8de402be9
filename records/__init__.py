"""How results are laid out, written and traced. Every other room stands on this one: standard library and PyYAML only."""
