"""Runs all replicas of a program on the host, from the trace of one."""
