"""Poplar's options of convolutions and matrix products, as far as they have a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.products.convolutions import Convolution
from ipu_keras.program import Pipeline
from ipu_keras.settings.pipeline_choices import PipelineStageOptions

# What `poplar_options` of convolutions and products may hold.
PoplarOptions = Mapping[str, Any] | None

_PROPORTION = "availableMemoryProportion"
_PARTIALS = "partialsType"
_PARTIALS_DTYPES: Mapping[str, str] = {"float": "float32", "half": "float16"}


@dataclass(frozen=True)
class ProductOptions:
    """How a convolution or matrix product is planned.

    Args:
        memory_proportion: Share of a tile's memory that its temporaries may take.
        partials_dtype: Type of its partial sums, `"float32"` or `"float16"`.
    """

    memory_proportion: float
    partials_dtype: str = "float32"

    def applied_to(self, convolution: Convolution) -> Convolution:
        """Returns the convolution with partial sums of the type that was chosen."""
        # Sums must be at least as wide as what is multiplied: float32 leaves no choice.
        if convolution.dtype != "float16":
            return convolution
        return replace(convolution, partials_dtype=self.partials_dtype)


def product_options(
    memory_proportion: float,
    *,
    convolution_options: PoplarOptions = None,
    matmul_options: PoplarOptions = None,
    pipeline: Pipeline | None = None,
) -> Callable[[ComputeSet], ProductOptions]:
    """Returns how a compute set is planned: by the options of its stage, or those of all."""
    everywhere = _by_family(PipelineStageOptions(convolution_options, matmul_options))
    if pipeline is not None:
        # What is wrong is an error, of whatever the program has products.
        stages = (*pipeline.forward_options, *pipeline.backward_options)
        for each in (*stages, pipeline.weight_update_options):
            _by_family(each)

    def options_of(one: ComputeSet) -> ProductOptions:
        own = {} if pipeline is None else _chosen(pipeline.options_of(one.family, one))
        rest = everywhere.get(one.family, {})
        return ProductOptions(**{"memory_proportion": memory_proportion, **rest, **own})

    return options_of


def _by_family(options: PipelineStageOptions | None) -> dict[str, dict[str, Any]]:
    if options is None:
        return {}
    given = {"convolution": options.convolution_options, "dot": options.matmul_options}
    return {family: _chosen(found) for family, found in given.items() if found}


def _chosen(options: Mapping[str, Any]) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    if _PROPORTION in options:
        chosen["memory_proportion"] = _proportion(options[_PROPORTION])
    if _PARTIALS in options:
        chosen["partials_dtype"] = _partials(options[_PARTIALS])
    return chosen


def _proportion(text: object) -> float:
    try:
        value = float(str(text))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"`{_PROPORTION}` must be from 0 to 1, such as '0.2'. Received: {text!r}")
    return value


def _partials(text: object) -> str:
    if not isinstance(text, str) or text not in _PARTIALS_DTYPES:
        raise ValueError(
            f"`{_PARTIALS}` must be one of {', '.join(map(repr, _PARTIALS_DTYPES))}. "
            f"Received: {text!r}"
        )
    return _PARTIALS_DTYPES[text]
