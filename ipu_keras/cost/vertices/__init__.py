"""Costs compute sets, by family of operations: cycles of vertices and of exchanges."""
