"""Convolutions and matrix products: how they are planned, and what they take."""
