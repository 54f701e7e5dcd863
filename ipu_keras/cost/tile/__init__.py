"""Costs what one tile does: vertices, exchange, and the copies of tiles for input and output."""
