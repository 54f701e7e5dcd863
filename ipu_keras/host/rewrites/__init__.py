"""What the host replaces in a trace for its own speed."""
