"""What compute sets take: cycles of vertices and exchanges, by family of operations."""
