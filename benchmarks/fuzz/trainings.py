"""Trains random models here and in stock Keras: `python benchmarks/fuzz/trainings.py --help`."""

import argparse
import collections
import contextlib
import sys
import time
import traceback

from isolated import CASE_SECONDS, Crash, isolated

# How often stock Keras trains a model that crashed, until it crashes too.
STOCK_ATTEMPTS = 8


def work(seed: int) -> tuple[str, str, str]:
    """Name of the verdict, what is to be known of it, and the case, of a seed."""
    # TensorFlow is imported by the processes that need it.
    from random_training import compare, random_case

    case = random_case(seed)
    try:
        verdict, text = compare(case)
    except Exception:
        return "DIFFERENT", traceback.format_exc(), str(case)
    return verdict.name, text, str(case)


def work_in_stock(seed: int) -> None:
    """Trains the model of a seed in stock Keras alone."""
    from random_training import random_case, run_stock

    # What it refuses is judged elsewhere.
    with contextlib.suppress(Exception):
        run_stock(random_case(seed))


def judged(seed: int, crash: Crash) -> tuple[str, str, str]:
    """The verdict of a seed that crashed: who crashes is asked of stock Keras, in its own process.

    Some kernels write behind their memory, which does not always end a process.
    """
    for _ in range(STOCK_ATTEMPTS):
        [(_, result)] = isolated(work_in_stock, [seed], CASE_SECONDS)
        if isinstance(result, Crash):
            return "STOCK_CRASHES", f"{crash.text}; stock Keras alone: {result.text}", ""
    return "CRASH", f"{crash.text}; not in stock Keras, {STOCK_ATTEMPTS} times", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first model")
    parser.add_argument("--count", type=int, default=2000, help="how many models")
    parser.add_argument("--minutes", type=float, default=60, help="after which none is begun")
    arguments = parser.parse_args()

    seeds = list(range(arguments.seed, arguments.seed + arguments.count))
    verdicts: collections.Counter = collections.Counter()
    start = time.monotonic()
    for seed, result in isolated(work, seeds, 60 * arguments.minutes):
        if isinstance(result, Crash):
            result = judged(seed, result)
        name, text, case = result
        verdicts[name] += 1
        if name != "EQUAL":
            print(f"model {seed}: {name}: {text}\n    {case}", flush=True)
    done = sum(verdicts.values())
    print(f"{done} of {len(seeds)} models in {time.monotonic() - start:.0f} s: {dict(verdicts)}")
    bad = verdicts["DIFFERENT"] + verdicts["REFUSED"] + verdicts["CRASH"]
    return 1 if bad or done < len(seeds) else 0


if __name__ == "__main__":
    sys.exit(main())
