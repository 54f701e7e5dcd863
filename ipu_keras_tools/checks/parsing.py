"""Parses scripts, which needs nothing that takes long to import."""

import ast
import warnings

# The most that is read of a script: nobody writes so much, and it would take a minute.
MOST_BYTES = 2**23


def parsed(source: str | bytes, path: str) -> ast.Module:
    """Parses a script as Python reads it; bytes have the encoding that they say themselves."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on escapes that will be errors one day
            return ast.parse(source, filename=path)
    except ValueError as error:
        # Some versions of Python raise it for null characters.
        raise SyntaxError(str(error)) from error
