"""Datasets and queues on their way into and out of programs."""
