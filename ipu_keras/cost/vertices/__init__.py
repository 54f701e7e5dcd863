"""Costs compute sets, by family of operations, from what their tiles do (`tile`)."""
