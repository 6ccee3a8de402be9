"""The proof that `methods/` computes what the papers print: written from the equations, not from the code."""
