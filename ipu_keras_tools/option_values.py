"""Readers of values on a command line, for argparse: what they refuse costs no import."""

import argparse
import math
import re
from collections.abc import Callable

# Programs count steps and samples in 32 bits.
_MOST = 2**31 - 1

# IPUs of the largest system.
_MOST_IPUS = 1024

# The shape and type of an argument, such as 32x784:float16.
SPEC = re.compile(r"(?P<shape>(\d+(x\d+)*)?)(:(?P<dtype>\w+))?")


def positive(text: str) -> int:
    """Reads an integer above 0, of 32 bits."""
    number = _integer(text, "a positive integer", lambda number: number > 0)
    return _at_most(text, number, _MOST)


def replicas(text: str) -> int:
    """Reads a number of copies of a program, which have an IPU each at least."""
    return _at_most(text, positive(text), _MOST_IPUS)


def at_least_two(text: str) -> int:
    """Reads the number of stages of a pipeline."""
    return _integer(text, "an integer, 2 or more", lambda number: number > 1)


def power_of_two(text: str) -> int:
    """Reads a number of IPUs that systems hand out."""
    expected = "a power of two: 1, 2, 4 and so on"
    number = _integer(text, expected, lambda number: number > 0 and not number & (number - 1))
    return _at_most(text, number, _MOST_IPUS)


def _integer(text: str, expected: str, is_valid: Callable[[int], bool]) -> int:
    try:
        number = int(text)
    except ValueError:
        raise _refused(expected, text) from None
    if not is_valid(number):
        raise _refused(expected, text)
    return number


def percentage(text: str) -> float:
    """Reads a finite number."""
    return _number(text, "a finite number", math.isfinite)


def _at_most(text: str, number: int, most: int) -> int:
    if number > most:
        raise _refused(f"at most {most}", text)
    return number


def proportion(text: str) -> float:
    """Reads a share above 0, at most 1."""
    return _number(text, "a number above 0 and at most 1", lambda number: 0 < number <= 1)


def _number(text: str, expected: str, is_valid: Callable[[float], bool]) -> float:
    try:
        number = float(text)
    except ValueError:
        raise _refused(expected, text) from None
    if not is_valid(number):
        raise _refused(expected, text)
    return number


def switch(text: str) -> bool:
    """Reads yes or no."""
    return one_of("yes", "no")(text) == "yes"


def spec(text: str) -> str:
    """Returns a spec if it is written as one, or as several with + between them."""
    parts = text.split("+")
    if not all(part and SPEC.fullmatch(part) for part in parts):
        raise _refused("a shape and type such as 32x784, 32x784:float16 or 32:int32", text)
    if any(size and not int(size) for part in parts for size in part.partition(":")[0].split("x")):
        raise _refused("a shape with at least one element along each axis", text)
    return text


def one_of(*names: str) -> Callable[[str], str]:
    """Makes a reader that takes some names only."""

    def name(text: str) -> str:
        if text not in names:
            raise _refused(f"one of {', '.join(names)}", text)
        return text

    return name


def list_of(read: Callable[[str], object]) -> Callable[[str], list[object]]:
    """Makes a reader of values with commas between them."""
    return lambda text: [read(one) for one in text.split(",")]


def _refused(expected: str, text: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"must be {expected}. Received: {text!r}")
