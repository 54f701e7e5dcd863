"""Knows the emulated system and its hardware: which IPUs there are, and their numbers."""
