"""Words for figures of a report that the text and the pages share."""

from ipu_keras.report.error_bands import ErrorBands
from ipu_keras.report.figures import Figures
from ipu_keras.report.fullest_tile import fullest_tile

# Categories of memory that a verdict names.
_NUM_CAUSES = 3


def bound_in_words(report: Figures) -> str:
    """Names what takes the larger part of a step."""
    return "IPU" if report.bound == "ipu" else report.bound


def throughput_in_words(throughput: float, errors: ErrorBands) -> str:
    """Says how many samples pass in a second, and between which figures that may be."""
    figures = (throughput, *errors.throughput_range(throughput))
    modelled, least, most = (f"{each:,.0f}" for each in figures)
    return f"{modelled} ({least} to {most})"


def samples_in_words(report: Figures) -> str:
    """Says how many samples a step has on each replica; the report must have a batch size."""
    replicas = report.model.options.num_replicas
    each = f" on each of {replicas:,} replicas" if replicas > 1 else ""
    return f"{report.batch_size:,} in a step{each}"


def verdict_in_words(report: Figures) -> str:
    """Says whether a program fits, and what takes the memory, in a sentence without a full stop."""
    memory = report.model.memory
    modelled = "It fits" if memory.fits else "It does not fit"
    verdict = {
        "fits": "It fits",
        "does not fit": "It does not fit",
        "too close to say": f"{modelled}, but too closely to say",
    }[report.verdict]
    largest = sorted(memory.bytes_by_category.items(), key=lambda item: -item[1])[:_NUM_CAUSES]
    whole = max(memory.total_bytes, 1)
    causes = [f"{name.replace('_', ' ')} {size / whole:.0%}" for name, size in largest if size]
    why = f"; of all tiles' bytes, {', '.join(causes)}" if causes else ""
    return (
        f"{verdict}: {fullest_tile(memory)}, the fullest, needs {memory.max_tile_bytes:,} of "
        f"{memory.tile_bytes:,} bytes{why}"
    )


def error_line(errors: ErrorBands) -> str:
    """Says in one sentence, without a full stop, how far whole programs were from hardware.

    Example:

    >>> from ipu_keras.report.error_bands import error_bands
    >>> error_line(error_bands())[:42]
    'Of whole programs on hardware, the model s'
    """
    ratios = errors.throughput_ratios
    if not ratios:
        return "The model was compared with no whole program on hardware"
    return (
        f"Of whole programs on hardware, the model said {min(ratios):.2f} to {max(ratios):.2f} "
        "times the throughput that was measured"
    )
