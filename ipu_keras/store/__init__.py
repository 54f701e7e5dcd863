"""What outlives a process: canonical JSON, files written in one piece, the executable cache."""
