"""Runs a batch through the steps of pipelines within functions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from ipu_keras.functions.graph_programs import current_step_results
from ipu_keras.functions.loop_bodies import as_list, call_with_element
from ipu_keras.host.step_in_a_graph import accumulated
from ipu_keras.program import WEIGHT_UPDATE_SCOPE, stage_scope
from ipu_keras.settings.arguments import noted


@dataclass(frozen=True, kw_only=True)
class PipelineStep:
    """What a batch passes: the stages, and in training the gradients and the weight update.

    Args:
        stages: Functions of users, each of which takes what the one before returns.
        inputs: What the first stage takes besides an element of the infeed.
        train: Takes what the last stage returns, and the trainable variables that the stages
            have read; `None` if weights are not trained.
        enqueue: Sends results to the host; `None` if nothing is sent.
        outfeed: Chooses what is sent, from what the last stage returns and the loss.
        variables: The trainable variables that each stage has read; filled while a step is traced.
    """

    stages: Sequence[Callable[..., Any]]
    inputs: Sequence[tf.Tensor]
    train: Callable[[Any, Sequence[Any]], "Trained"] | None
    enqueue: Callable[[Any], Any] | None
    outfeed: Callable[[Any, Any], Any]
    variables: list[Sequence[Any]] = field(default_factory=list)

    def __call__(self, element: Any) -> None:
        """Runs the step for a batch, an element of the infeed.

        Errors say that a stage cannot take what the one before returns, or that an outfeed is
        missing.
        """
        results = self._results(element)
        if results and self.enqueue is None:
            raise noted(
                ValueError(
                    "The last computational stage has tensor outputs: "
                    f"{', '.join(t.name for t in tf.nest.flatten(results))}, but no outfeed_queue "
                    "has been provided."
                ),
                "Pass an IPUOutfeedQueue as `outfeed_queue`.",
            )
        loss = None
        if self.train is not None:
            read = {id(variable): variable for stage in self.variables for variable in stage}
            trained = self.train(results, list(read.values()))
            loss = trained.loss
            trained.update()
        sent = self.outfeed(results, loss)
        if self.enqueue is not None and (tf.is_tensor(sent) or sent):
            self.enqueue(sent)

    def _results(self, element: Any) -> list[Any] | dict[str, Any]:
        """Returns what the last stage returns; each other one gets what the one before returned."""
        inputs, results = self.inputs, element
        self.variables.clear()
        for number, stage in enumerate(self.stages):
            # A graph lists the variables that it has read only when it is complete; a tape knows
            # them at once.
            with tf.name_scope(f"{stage_scope(number)}/"), tf.GradientTape() as tape:
                returned = call_with_element("pipeline stage", stage, inputs, results)
                if isinstance(returned, Mapping):
                    results = {name: _as_tensors(one) for name, one in returned.items()}
                else:
                    results = _tensors(as_list(returned))
                inputs = ()
            self.variables.append(tape.watched_variables())
        return results

    def check_shared_variables(self, device_mapping: Sequence[int]) -> None:
        """Refuses a variable that stages on different IPUs have read.

        Each IPU has a memory of its own, and a variable lies in one of them.
        """
        users: dict[int, int] = {}
        for stage, variables in enumerate(self.variables):
            for variable in variables:
                first = users.setdefault(id(variable), stage)
                if device_mapping[first] != device_mapping[stage]:
                    raise tf.errors.UnimplementedError(
                        None,
                        None,
                        f"The variable {variable.name} is used in pipeline stages {first} and "
                        f"{stage}, which are on the IPUs {device_mapping[first]} and "
                        f"{device_mapping[stage]}, but an input can only be used by pipeline "
                        "stages on the same IPU. Map these stages to one IPU using the "
                        "`device_mapping` argument of `pipeline`.",
                    )


def _tensors(returned: Sequence[Any]) -> list[Any]:
    """Returns a stage's tensors, which wait for the operations that it returned as well."""
    operations = [one for one in returned if isinstance(one, tf.Operation)]
    with tf.control_dependencies(operations):
        return [_as_tensors(one) for one in returned if not isinstance(one, tf.Operation)]


def _as_tensors(returned: Any) -> Any:
    """Returns a tensor; a structure with tensors in it stays one, and is not stacked."""
    leaves = tf.nest.flatten(returned)
    if tf.nest.is_nested(returned) and any(map(tf.is_tensor, leaves)):
        return tf.nest.map_structure(tf.convert_to_tensor, returned)
    return tf.convert_to_tensor(returned)


@dataclass(frozen=True)
class Trained:
    """What an optimizer makes of a batch: the loss, and what updates variables by gradients.

    The gradients are in the type in which they are accumulated.
    """

    loss: tf.Tensor
    pairs: Sequence[tuple[tf.Tensor, Any]]
    apply: Callable[[Sequence[tuple[tf.Tensor, Any]]], Any]

    def update(self) -> None:
        pairs = [(accumulated(gradient), variable) for gradient, variable in self.pairs]
        step = current_step_results()
        assert step is not None, "weights are updated while a step is traced"
        step.gradients = [gradient for gradient, _ in pairs]
        with tf.name_scope(f"{WEIGHT_UPDATE_SCOPE}/"):
            self.apply(pairs)
        step.gradients = ()


def check_captures(graph: Any, inputs: Sequence[tf.Tensor]) -> None:
    """Raises a `ValueError` if stages of a traced step take other tensors than the `inputs`."""
    given = {tensor.ref() for tensor in inputs}
    for outer, _ in graph.captures:
        is_known = hasattr(outer, "numpy") or outer.ref() in given
        if outer.dtype not in (tf.resource, tf.variant) and not is_known:
            raise ValueError(
                f"Trying to capture the tensor {outer.name} which is not a resource. This tensor "
                "needs to be passed as either part of the `inputs` or the `infeed_queue` of the "
                "pipeline."
            )
