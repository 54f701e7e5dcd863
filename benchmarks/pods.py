"""Throughput of ResNet-50's training on pods, modelled and as MLPerf published it.

What the model says of Pod128 and Pod256, whose throughput it was not fitted to, stands alone.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from fidelity_programs import resnet50

# Target, micro-batch, accumulation, replicas, and samples/s by the logs of MLPerf Training: in 1.1
# (GC200) of the median epoch, without evaluation, and in 2.0 (Bow) all images over the time of
# training, median of five logs.
_POINTS = (
    ("gc200", 20, 10, 16, 29_541),
    ("gc200", 20, 3, 64, 108_011),
    ("gc200", 20, 3, 128, None),
    ("gc200", 20, 3, 256, None),
    ("bow", 22, 10, 16, 42_174),
    ("bow", 20, 10, 16, None),
    ("bow", 20, 4, 64, 143_716),
)


def main() -> None:
    print("| target | micro-batch | accumulation | replicas | samples/s | published | quotient |")
    print("|---|---|---|---|---|---|---|")
    for target, micro_batch, accumulation, num_replicas, published in _POINTS:
        report = resnet50(
            target, micro_batch=micro_batch, accumulation=accumulation, num_replicas=num_replicas
        )
        found = micro_batch * num_replicas / report.seconds_per_step
        beside = ("", "") if published is None else (f"{published:,}", f"{found / published:.2f}")
        row = target, micro_batch, accumulation, num_replicas, f"{found:,.0f}", *beside
        print(f"| {' | '.join(map(str, row))} |")


if __name__ == "__main__":
    main()
