"""Figures of a report whose words text and pages share."""

from ipu_keras.report.figures import Figures


def bound_in_words(report: Figures) -> str:
    """What takes the larger part of a step.

    Args:
        report: A `Report`.
    """
    return "IPU" if report.bound == "ipu" else report.bound


def samples_in_words(report: Figures) -> str:
    """How many samples a step has, and where.

    Args:
        report: A `Report` with a batch size.
    """
    replicas = report.model.options.num_replicas
    each = f" on each of {replicas:,} replicas" if replicas > 1 else ""
    return f"{report.batch_size:,} in a step{each}"
