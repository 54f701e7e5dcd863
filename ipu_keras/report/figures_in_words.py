"""Words for figures of a report that the text and the pages share."""

from ipu_keras.report.figures import Figures


def bound_in_words(report: Figures) -> str:
    """Names what takes the larger part of a step."""
    return "IPU" if report.bound == "ipu" else report.bound


def samples_in_words(report: Figures) -> str:
    """Says how many samples a step has on each replica; the report must have a batch size."""
    replicas = report.model.options.num_replicas
    each = f" on each of {replicas:,} replicas" if replicas > 1 else ""
    return f"{report.batch_size:,} in a step{each}"
