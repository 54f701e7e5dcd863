"""Sizes that say how full a tile becomes, of which some have no published numbers.

They are by themselves for those who only ask whether a program is small, as models' modules take
long to import.
"""

# Share of a tile's memory that the temporaries of convolutions and products may take, unless an
# option says another: poplibs' default.
AVAILABLE_MEMORY_PROPORTION = 0.6

# Bytes of code that have no published size: rough figures from the shares that
# Poplar's reports of large models give to each category.
VERTEX_CODE_BYTES = 512  # of a type of vertex
VERTEX_STATE_BYTES = 24  # of a vertex
CONTROL_CODE_BYTES = 24  # of a compute set
EXCHANGE_CODE_BYTES = 48  # of an exchange
