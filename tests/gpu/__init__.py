"""`make gpu`: the checks of a GPU; in the ordinary tests the same at toy size on a CPU."""
