"""The report as people look at it: views of one HTML file, and the companion files that it loads on demand."""
