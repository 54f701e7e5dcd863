"""How the host computes a program. What the program would cost on an IPU is no concern of it."""
