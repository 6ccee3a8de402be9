"""How results are laid out, written and traced: the room that every other stands on. Standard library and PyYAML only."""
