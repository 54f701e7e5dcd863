"""Reports of what programs cost: figures, tables, pages, timelines and comparisons.

Everything here is made from a finished `Model`; nothing here models or traces anything. No name is
imported here: whoever only draws a table would wait for the whole cost model.
"""
