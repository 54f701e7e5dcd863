"""Several processes that train together, by MPI.

mpi4py joins them; what programs add up over them, they add by a function of `_cext/_mpi_calls.pyx`
that calls MPI itself.
"""
