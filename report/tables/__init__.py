"""Tables: what `tables.yaml` declares, filled with numbers, in every form they are printed in."""
