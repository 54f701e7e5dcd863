"""Calls public names with a wrong argument: `python benchmarks/fuzz/wrong_calls.py --help`.

Each case takes a call that works, changes one of its arguments, calls it, and then makes
the correct call again. A process that dies or hangs, an error that does not name the argument
or is of a kind that nobody throws on purpose, and a correct call that fails afterwards, count.
"""

import argparse
import collections
import random
import re
import sys
import time
import traceback
import warnings
from typing import Any

from isolated import Crash, isolated

# What no check throws on purpose.
INTERNAL_ERRORS = (
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    NameError,
    RecursionError,
    ZeroDivisionError,
)


def wrong_values(given: Any) -> dict[str, Any]:
    """Values by what they are called, most of which are wrong in place of the given one."""
    import numpy as np
    import tensorflow as tf

    values: dict[str, Any] = {
        repr(value): value
        for value in [
            *(None, True, False, 0, -1, 1.5, -0.5, 2, 10**12, -(10**12), 2**63, 0.0, 1e308, 1e-45),
            *(float("nan"), float("inf"), -float("inf"), 1j, "", "2", "x", "\0", "é" * 5000),
            *(b"ab", [], [1], ["a"], [None], (), (0,), {}, {"a": 1}, {1: 2}, set(), range(3)),
            *(slice(2), Ellipsis, NotImplemented),
        ]
    }
    values |= {
        "object()": object(),
        "a class": int,
        "a function": len,
        "a lambda": lambda *arguments: None,
        "a generator": (number for number in range(3)),
        "float32 of no axis": np.float32(0.5),
        "int64 of no axis": np.int64(3),
        "a negative int32": np.int32(-7),
        "an empty array": np.zeros((0,), np.float32),
        "an array with an empty axis": np.zeros((2, 0, 3), np.float32),
        "an array of rank 6": np.ones((1, 2, 1, 2, 1, 2), np.float32),
        "an array of texts": np.array(["a", "b"]),
        "an array of objects": np.array([None, {}], object),
        "an array of NaN": np.full((2, 3), np.nan, np.float32),
        "float64": np.ones((2, 3), np.float64),
        "complex128": np.ones((2, 3), np.complex128),
        "bool": np.ones((2, 3), bool),
        "uint64": np.ones((2, 3), np.uint64),
        "a text tensor": tf.constant(["a"]),
        "a ragged tensor": tf.ragged.constant([[1], [1, 2]]),
        "a sparse tensor": tf.sparse.from_dense([[1.0, 0.0]]),
        "a variable": tf.Variable([1.0, 2.0]),
        "a dtype": tf.float16,
        "tf.string": tf.string,
        "tf.variant": tf.variant,
        "a dataset": tf.data.Dataset.range(3),
    }
    if isinstance(given, np.ndarray):
        with np.errstate(invalid="ignore"):  # of integers that overflow
            large = (given.astype(np.float64) * 1e9).astype(given.dtype)
        values |= {
            "it with another axis": given[np.newaxis],
            "it without its first element": given[1:],
            "its first element": given[0],
            "it as int64": given.astype(np.int64),
            "it as float16": given.astype(np.float16),
            "it as bfloat16": tf.cast(given, tf.bfloat16),
            "it negated": -given,
            "it times 1e9": large,
            "it twice": np.concatenate([given, given]),
            "it transposed": given.T,
            "it as lists": given.tolist(),
        }
    return values


def work(seed: int) -> tuple[str, str]:
    """Verdict of one wrong call, and what was called."""
    from correct_calls import correct_calls

    draw = random.Random(seed)
    call = draw.choice([call for call in correct_calls() if call.cheap or draw.random() < 0.1])
    argument = draw.choice(sorted(call.arguments))
    values = wrong_values(call.arguments[argument])
    described = draw.choice(sorted(values))
    text = f"{call.name}({argument}={described[:60]})"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdict = _judge(call, argument, values[described])
        if call.cheap or draw.random() < 0.3:
            try:
                call.function(**call.arguments)
            except Exception as error:
                return f"THE CORRECT CALL FAILS AFTERWARDS: {_short(error)}", text
    return verdict, text


def _judge(call: Any, argument: str, value: Any) -> str:
    try:
        call.function(**(call.arguments | {argument: value}))
    except INTERNAL_ERRORS as error:
        return f"INTERNAL ERROR: {_short(error)}"
    except Exception as error:
        # Options of a configuration are named by their path.
        name = call.called.get(argument, argument.split("__")[-1])
        notes = getattr(error, "__notes__", [])
        named = re.search(rf"\b{re.escape(name)}\b", "\n".join([str(error), *notes]))
        if not named and _is_in(value, error):
            return "of the function"
        return "refused" if named else f"UNNAMED: {_short(error)}"
    return "accepted"


def _is_in(value: Any, error: Exception) -> bool:
    """Whether an error comes from a function that was given, which knows of no argument."""
    if not callable(value) or isinstance(value, type):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    said = str(error).partition("()")[0].partition(" ")[0]
    return frames[-1].name == "<lambda>" or said == value.__name__


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first call")
    parser.add_argument("--count", type=int, default=10_000, help="how many wrong calls")
    parser.add_argument("--minutes", type=float, default=60, help="after which none is made")
    parser.add_argument("--accepted", action="store_true", help="print what was accepted too")
    arguments = parser.parse_args()

    seeds = list(range(arguments.seed, arguments.seed + arguments.count))
    verdicts: collections.Counter = collections.Counter()
    seen: set[str] = set()
    start = time.monotonic()
    for seed, result in isolated(work, seeds, 60 * arguments.minutes, cases_a_process=1000):
        verdict, text = (result.text, "") if isinstance(result, Crash) else result
        kind = "CRASH" if isinstance(result, Crash) else verdict.split(":")[0]
        verdicts[kind] += 1
        if (
            kind not in ("refused", "of the function")
            and (kind != "accepted" or arguments.accepted)
        ) and text not in seen:
            seen.add(text)
            print(f"call {seed}: {text}: {verdict}", flush=True)
    done = sum(verdicts.values())
    print(f"{done} of {len(seeds)} calls in {time.monotonic() - start:.0f} s: {dict(verdicts)}")
    good = sum(verdicts[kind] for kind in ("refused", "accepted", "of the function"))
    return 0 if good == len(seeds) else 1


if __name__ == "__main__":
    sys.exit(main())
