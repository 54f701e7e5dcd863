"""The steps of pipelines within functions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.functions.loop_bodies import as_list, call_with_element
from ipu_keras.host.step_in_a_graph import accumulated
from ipu_keras.program import WEIGHT_UPDATE_SCOPE, stage_scope
from ipu_keras.settings.argument_errors import noted


@dataclass(frozen=True, kw_only=True)
class PipelineStep:
    """What a batch passes: the stages, and in training the gradients and the weight update.

    Args:
        stages: Functions of users, each of which takes what the one before returns.
        inputs: What the first one takes besides an element of the infeed.
        train: Takes what the last one returns, and the trainable variables that they have read;
            `None` if weights are not trained.
        enqueue: Sends results to the host; `None` if nothing is.
        outfeed: Chooses what is sent, of what the last stage returns and of the loss.
    """

    stages: Sequence[Callable[..., Any]]
    inputs: Sequence[tf.Tensor]
    train: Callable[[Sequence[Any], Sequence[Any]], "Trained"] | None
    enqueue: Callable[[Any], Any] | None
    outfeed: Callable[[Sequence[Any], Any], Any]

    def __call__(self, element: Any) -> None:
        """Does it for a batch.

        Args:
            element: Of the infeed.

        Raises:
            TypeError: A stage cannot be called with what the one before returns.
            ValueError: The last stage returns tensors, and there is no outfeed.
        """
        # The graph of a function tells what it has read when it is complete.
        with tf.GradientTape() as tape:
            results = self._results(element)
        loss = None
        if self.train is not None:
            trained = self.train(results, tape.watched_variables())
            loss = trained.loss
            trained.update()
        elif results and self.enqueue is None:
            raise noted(
                ValueError(
                    "The last computational stage has tensor outputs: "
                    f"{', '.join(tensor.name for tensor in results)}, but no outfeed_queue has "
                    "been provided."
                ),
                "Pass an IPUOutfeedQueue as `outfeed_queue`.",
            )
        sent = self.outfeed(results, loss)
        if self.enqueue is not None and (tf.is_tensor(sent) or sent):
            self.enqueue(sent)

    def _results(self, element: Any) -> list[tf.Tensor]:
        """What the last stage returns."""
        results = list(self.inputs)
        for number, stage in enumerate(self.stages):
            with tf.name_scope(f"{stage_scope(number)}/"):
                given = element if number == 0 else ()
                returned = call_with_element("pipeline stage", stage, results, given)
                operations = [one for one in as_list(returned) if isinstance(one, tf.Operation)]
                tensors = [one for one in as_list(returned) if not isinstance(one, tf.Operation)]
                with tf.control_dependencies(operations):
                    results = list(map(tf.convert_to_tensor, tensors))
        return results


@dataclass(frozen=True)
class Trained:
    """What an optimizer makes of a batch.

    Args:
        loss: Of the batch.
        pairs: Of a gradient, in the type in which it is accumulated, and its variable.
        apply: Takes pairs, and updates the variables.
    """

    loss: tf.Tensor
    pairs: Sequence[tuple[tf.Tensor, Any]]
    apply: Callable[[Sequence[tuple[tf.Tensor, Any]]], Any]

    def update(self) -> None:
        """Updates the weights with accumulated gradients."""
        pairs = [(accumulated(gradient), variable) for gradient, variable in self.pairs]
        with tf.name_scope(f"{WEIGHT_UPDATE_SCOPE}/"):
            self.apply(pairs)


def check_captures(graph: Any, inputs: Sequence[tf.Tensor]) -> None:
    """Checks that stages take no tensors but those that they are given.

    Args:
        graph: Of the traced step.
        inputs: Those of the pipeline.

    Raises:
        ValueError: They do.
    """
    given = {tensor.ref() for tensor in inputs}
    for outer, _ in graph.captures:
        is_known = hasattr(outer, "numpy") or outer.ref() in given
        if outer.dtype not in (tf.resource, tf.variant) and not is_known:
            raise ValueError(
                f"Trying to capture the tensor {outer.name} which is not a resource. This tensor "
                "needs to be passed as either part of the `inputs` or the `infeed_queue` of the "
                "pipeline."
            )
