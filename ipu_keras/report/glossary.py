"""What words in the headings and tables of pages mean; docs/glossary.md has these and others."""

from collections.abc import Mapping

TERMS: Mapping[str, str] = {
    "Compute set": (
        "all vertices that run at the same time, with the exchange before them. A program is a "
        "list of compute sets, one after the other."
    ),
    "Vertex": (
        "the smallest piece of work, done by a worker of one tile on data in the memory of that "
        "tile."
    ),
    "Exchange": (
        "the phase in which tiles send each other the data that the next compute set needs."
    ),
    "Sync": "the moment at which all tiles wait for each other before an exchange.",
    "Host copies": (
        "copies between host and IPU. Cycles of a step in which data moves are its host_cycles."
    ),
    "Calibrated, derived, guessed": (
        "how sure a number of cycles is: checked against measurements, following from published "
        "numbers or formulas, or assumed because nothing is known."
    ),
    "Roofline": (
        "the most operations in a second that are possible with so many for each byte: few for "
        "each byte are bound by the tiles' memory, many by their arithmetic."
    ),
    "Fullest tile": ("the tile that needs the most memory. It decides whether a program fits."),
    "Always live": (
        "in memory during the whole step, such as variables, constants, code and stashes. No "
        "smaller batch makes most of it smaller."
    ),
    "Liveness": "the bytes that are in use while each compute set runs.",
    "Message buffers": (
        "memory for data that arrives in an exchange and is read by the next compute set."
    ),
    "Vertex state": (
        "the fields of all vertices, such as the addresses of their data, and how much there is "
        "of it."
    ),
    "Vertex code, control code, exchange code": (
        "instructions of the vertices, of the order in which they run, and of the exchanges."
    ),
    "Gaps": (
        "bytes that stay free between code and data. Instructions are read ahead, so data shares "
        "no part of memory with them."
    ),
    "Interleaved, non-interleaved": (
        "the two regions of a tile's memory. From the interleaved one, a load can be twice as "
        "wide; instructions have to be in the other one."
    ),
    "Overflowed": (
        "bytes that the fullest tile needs and that are in neither region, as both are full. A "
        "program that fits has none."
    ),
    "Stage": (
        "a part of a model's layers on an IPU of its own. While it works on one batch, the stage "
        "before it works on the next."
    ),
    "Stash": (
        "copies of activations that a stage keeps for its backward part while it works on later "
        "micro-batches."
    ),
    "Bubble": "time in which an IPU of a pipeline waits for the others.",
}
