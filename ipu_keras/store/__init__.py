"""What outlives a process: canonical JSON, files written in one piece, the cache of executables."""
