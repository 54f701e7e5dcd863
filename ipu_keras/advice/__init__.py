"""Searches with the model what would make a program fit, or run faster."""
