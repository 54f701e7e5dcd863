"""Steps in parts: stages, shards, weight updates, and when each runs where."""
