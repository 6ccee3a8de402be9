"""How results are laid out, written and traced. Standard library only: every other room stands on this one."""
