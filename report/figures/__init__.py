"""Figures: what `figures.yaml` declares, filled from curves, and drawn."""
