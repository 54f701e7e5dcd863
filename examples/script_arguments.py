"""The command lines of the scripts here, which are read before imports that take seconds."""

import argparse


def script_arguments(
    name: str, description: str | None, **options: tuple[int | str, str]
) -> argparse.Namespace:
    """What a script was given; the defaults where it is imported, as tests do.

    Args:
        name: Its `__name__`.
        description: Its docstring, which `--help` shows.
        options: By the name of an option, its default and what it means. A default that is a
            number is a count: it has to be at least 1.

    Example:
        >>> script_arguments("as_a_module", None, epochs=(15, "passes over the images")).epochs
        15
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option, (default, meaning) in options.items():
        parser.add_argument(
            f"--{option.replace('_', '-')}",
            type=_count if isinstance(default, int) else str,
            default=default,
            metavar="N" if isinstance(default, int) else "FILE",
            help=f"{meaning} (default: %(default)s)",
        )
    return parser.parse_args(None if name == "__main__" else [])


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a number from 1 on. Received: {text!r}")
    return int(text)
