"""What a user chooses: the tree of options, flags, engine options, choices of pipelines."""
