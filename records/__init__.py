"""How results are laid out, written and traced; every other room stands on this one. Standard library and PyYAML."""
