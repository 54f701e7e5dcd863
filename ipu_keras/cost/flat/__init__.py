"""A step as the compute sets that an IPU executes one after the other, and its memory."""
