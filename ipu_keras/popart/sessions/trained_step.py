"""The step of a model that is trained: its anchors, and the gradients of its weights."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.graph import Node
from ipu_keras.popart.operations.evaluation import Environment, Evaluation
from ipu_keras.popart.operations.values import LaidOutTensor
from ipu_keras.popart.options.prefixes import reservedGradientPrefix
from ipu_keras.popart.sessions.host_reduction import HostReduction, apart
from ipu_keras.popart.sessions.loss_scaler import Counted, LossScaler
from ipu_keras.popart.sessions.number_checks import first_wrong
from ipu_keras.popart.sessions.reached import direct_softmaxes, kept_statistics
from ipu_keras.popart.sessions.step import TracedModel, returned_tensor
from ipu_keras.popart.sessions.weight_update import WeightUpdate
from ipu_keras.tracing.frontend_attributes import PARTIALS_TYPE, attributes_of, set_attribute_of
from ipu_keras.tracing.layers import forward_path


@dataclass(frozen=True, kw_only=True)
class TrainedStep(TracedModel):
    """Computes the anchors of a model and the gradients of its weights, for one micro-batch.

    Args:
        updated: Filled with the names of the weights that have gradients, at each trace.
        of_updates: Names of the tensors that `update` returns, once for each batch.
        passes_softmax: Whether gradients of losses bypass the softmax that makes probabilities.
        loss_scaler: Counts large gradients, to change the loss scaling; `None` if it is fixed.
        host_reduction: Lets callbacks on the host reduce gradients; `None` if the device does.
    """

    loss: str
    trained: tuple[str, ...]
    weight_update: WeightUpdate
    updated: list[str] = field(default_factory=list)
    of_updates: tuple[str, ...] = ()
    passes_softmax: bool = True
    loss_scaler: LossScaler | None = None
    host_reduction: HostReduction | None = None

    _is_training: ClassVar[bool] = True

    def __call__(self, element: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Returns the anchors, and the gradients of weights; behind them a loss scaler's counts.

        Raises a `popart_exception` if a node cannot be computed, the loss is no scalar that
        depends on weights, or an anchor is no tensor that a device can return.
        """
        environment = self._environment(element)
        self._keep_statistics(environment)
        found = self._gradients(environment)
        trained = {name: found[name] for name in self.trained if name in found}
        self.updated[:] = trained
        results = [self._result(name, environment, found) for name in self.anchors]
        # In float16, sums over micro-batches would lose what single gradients have.
        sums = [_widened(value.in_order(value.order)) for value in trained.values()]
        self.infos.update(self.weight_update.infos)
        if self.checks_numbers:
            results.append(first_wrong(self.model.graph, environment, self._placed, sums))
        unreduced = [
            apart(_widened(trained[name].in_order(trained[name].order)), replicas)
            for name, replicas in self._unreduced.items()
        ]
        if self.host_reduction is not None:
            sums = [self.host_reduction.apart(each) for each in sums]
        if self.loss_scaler is not None:
            tracked = [found[name] for name in self.loss_scaler.tracked if name in found]
            sums.append(self.loss_scaler.counts([each.in_order(each.order) for each in tracked]))
        return results, [*unreduced, *sums]

    def update(self, sums: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Updates the weights by the sums of what the step returned, and returns `of_updates`."""
        counted = None
        if self.loss_scaler is not None:
            *sums, elements = sums
            counted = Counted(elements, self.infos[self.loss][1])
        names = self._unreduced
        unreduced = dict(zip(names, sums, strict=False))
        by_name = dict(zip(self.updated, sums[len(names) :], strict=True))
        return self.weight_update(by_name, self.weights, self.of_updates, counted, unreduced)

    @property
    def _unreduced(self) -> dict[str, int]:
        """By weights, the replicas whose sums are to be known before they are reduced."""
        counts = self.weight_update.unreduced(self.of_updates)
        return {name: counts[name] for name in self.updated if name in counts}

    def _evaluation(self) -> Evaluation:
        if not self.passes_softmax:
            return super()._evaluation()
        softmaxes = direct_softmaxes(self.model.graph, self.loss, self.anchors)
        return replace(super()._evaluation(), softmaxes=softmaxes)

    def _result(
        self, name: str, environment: Environment, gradients: dict[str, LaidOutTensor]
    ) -> tf.Tensor:
        if name in environment:
            return returned_tensor(name, environment[name])
        if name in self.weight_update.scalars:
            tensor = self.weight_update.scalar(name, self.weights)
        else:
            tensor = self._gradient(name, environment, gradients)
        self.infos[name] = (tuple(tensor.shape), np.dtype(tensor.dtype.as_numpy_dtype))
        return tensor

    def _gradient(
        self, name: str, environment: Environment, gradients: dict[str, LaidOutTensor]
    ) -> tf.Tensor:
        """Returns the anchor of a gradient: zeros where the loss does not depend on the tensor."""
        of = name.removeprefix(reservedGradientPrefix())
        if of in gradients:
            return returned_tensor(name, gradients[of])
        tensor = returned_tensor(name, environment[of])
        if tensor.dtype.is_floating:
            return tf.zeros_like(tensor)
        casts = self._casts_of(of)
        if not casts:
            raise popart_exception(
                f"The anchor {name!r} cannot be returned. {of!r} has no gradient, as it is of type "
                f"{tensor.dtype.name}: only floating tensors have, and what is cast to them."
            )
        parts = [gradients[each].tensor for each in casts if each in gradients]
        return tf.add_n([tf.cast(each, tensor.dtype) for each in [*parts, tf.zeros_like(tensor)]])

    def _casts_of(self, name: str) -> list[str]:
        """Returns what a tensor is cast to, whose gradients, cast back, are the tensor's own."""
        nodes = self.model.graph.nodes
        return [node.outputs[0] for node in nodes if node.kind == "Cast" and name in node.inputs]

    def _gradients(self, environment: Environment) -> dict[str, LaidOutTensor]:
        """Returns the gradients of weights, of anchors and of what a loss scaler counts.

        Tensors that the loss does not depend on are left out.
        """
        prefix = reservedGradientPrefix()
        names = [name for name in self.trained if self.weights.is_read(name)]
        for name in self.anchors:
            # A model may itself have a tensor of that name, which is the anchor then.
            if name.startswith(prefix) and name not in environment:
                of = name.removeprefix(prefix)
                names += [of, *self._casts_of(of)]
        names += () if self.loss_scaler is None else self.loss_scaler.tracked
        values = {name: environment[name] for name in names if _has_gradient(environment[name])}
        # A gradient of a weight is made in the order of axes of the weight's variable, so that
        # an update transposes nothing.
        orders = {
            name: self.weights.order(name) if name in self.trained else value.order
            for name, value in values.items()
        }
        loss = self._loss(environment)
        num_before = len(loss.graph.get_operations())
        gradients = tf.gradients(
            loss,
            [value.in_order(orders[name]) for name, value in values.items()],
            grad_ys=tf.fill(
                loss.shape, tf.cast(self.weight_update.scale(self.weights), loss.dtype)
            ),
        )
        _hand_partials_on(loss.graph.get_operations()[num_before:])
        return {
            name: LaidOutTensor(tf.convert_to_tensor(gradient), order=orders[name])
            for name, gradient in zip(values, gradients, strict=True)
            if gradient is not None
        }

    def _loss(self, environment: Environment) -> tf.Tensor:
        value = environment[self.loss]
        if not isinstance(value, LaidOutTensor) or value.shape.count(1) != value.rank:
            shape = list(value.shape) if isinstance(value, LaidOutTensor) else "a sequence"
            raise popart_exception(
                f"Loss tensor, '{self.loss}', must be a scalar tensor. Received: the shape "
                f"{shape}. Reduce it, such as with `reduction` of a loss, or with reducemean."
            )
        if not _has_gradient(value):
            raise popart_exception(
                f"Loss tensor, '{self.loss}', must be computed, in floating point, from the "
                f"model's weights. Received: {value.dtype.name}"
                f"{' that is constant' if value.known is not None else ''}"
            )
        return value.tensor

    def _keep_statistics(self, environment: Environment) -> None:
        """Writes running statistics of normalisations back, for the next batch to go on from."""
        for node, before, after in kept_statistics(self.model.graph):
            if _returns_statistics(node) and before in self.weights:
                with self._placed(node):
                    self.weights.variable(before).assign(environment[after].tensor)


def _returns_statistics(node: Node) -> bool:
    return not node.arguments.get("is_test", 0)


def _has_gradient(value: Any) -> bool:
    return isinstance(value, LaidOutTensor) and value.known is None and value.dtype.is_floating


def _hand_partials_on(gradients: Sequence[tf.Operation]) -> None:
    """Gives operations of gradients the partials type of those whose gradients they compute."""
    for op in gradients:
        forward = forward_path(op.name).rpartition("/")[0]
        try:
            texts = attributes_of(op.graph.get_operation_by_name(forward))
        except (KeyError, ValueError):
            continue
        if PARTIALS_TYPE in texts:
            set_attribute_of(op, PARTIALS_TYPE, texts[PARTIALS_TYPE])


def _widened(gradient: tf.Tensor) -> tf.Tensor:
    return tf.cast(gradient, tf.float32) if gradient.dtype == tf.float16 else gradient
