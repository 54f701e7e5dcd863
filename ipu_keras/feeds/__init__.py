"""Datasets on their way into the infeeds of programs."""
