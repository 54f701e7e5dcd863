"""Changes the graph before it is written out, to what Poplar's libraries would compute."""
