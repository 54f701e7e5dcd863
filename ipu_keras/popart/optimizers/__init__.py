"""Optimizers as users choose them, and the rules by which they update weights."""
