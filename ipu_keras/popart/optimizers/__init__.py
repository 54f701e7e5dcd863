"""Optimizers: what users choose of them, and how they update weights."""
