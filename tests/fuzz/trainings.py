"""Trains models made at random here and in stock Keras: `python tests/fuzz/trainings.py --help`."""

import argparse
import collections
import sys
import time
import traceback

from isolated import Crash, isolated


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
            result = ("CRASH", result.text, "")
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
