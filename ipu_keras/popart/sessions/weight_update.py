"""The update of weights: what an optimizer keeps, and what it computes after a batch."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import tensorflow as tf

from ipu_keras.popart.operations.values import LaidOutTensor
from ipu_keras.popart.optimizers.optimizer import Optimizer
from ipu_keras.popart.optimizers.rules import (
    Factors,
    Scalar,
    Slot,
    clipped,
    in_float32,
    loss_scaling,
    rule_of,
)
from ipu_keras.popart.options.prefixes import (
    reservedAcclFinalOutPrefix,
    reservedAcclPrefix,
    reservedAcclToReducePrefix,
    reservedAcclToUpdatePrefix,
    reservedAccumPrefix,
    reservedUpdatedVarPrefix,
)
from ipu_keras.popart.sessions.host_reduction import HostReduction, all_in_model
from ipu_keras.popart.sessions.loss_scaler import UPDATE_FACTOR, Counted, LossScaler
from ipu_keras.popart.sessions.scalars import Scalars
from ipu_keras.popart.sessions.weights import Weights


class WeightUpdate:
    """Updates weights after a batch. It knows no session, as devices keep it.

    Args:
        loss_scaler: Changes the loss scaling from batch to batch; `None` if nothing does.
        host_reduction: Lets callbacks on the host reduce gradients; `None` if the device does.

    Attributes:
        states: The optimizer's state before the first batch, by tensor name.
        infos: Shapes and types of the tensors that exist after an update and may be anchors.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factors: Factors,
        accumulates: bool,
        arrays: Mapping[str, np.ndarray],
        loss_scaler: LossScaler | None = None,
        host_reduction: HostReduction | None = None,
    ):
        self._optimizer = optimizer.copy()
        self._loss_scaler = loss_scaler
        self._host_reduction = host_reduction
        self._factors = factors
        self._accumulates = accumulates
        self._trained = tuple(arrays)
        self._rule = rule_of(self._optimizer, factors, accumulates)
        slots = {name: self._rule.slots(name, array) for name, array in arrays.items()}
        self._prefixes = {name: [each.prefix for each in kept] for name, kept in slots.items()}
        self.states = _states(slots)
        if loss_scaler is not None:
            self.states[UPDATE_FACTOR] = np.ones((), np.float32)
        self.infos = _infos(arrays, self.states)
        # Without accumulation, PopART reduces gradients before they are added to the momentum.
        self._reduces_momentum = accumulates and factors.replicas > 1 and host_reduction is None
        if self._reduces_momentum:
            before, after = reservedAcclToUpdatePrefix(), reservedAcclToReducePrefix()
            updated = [name for name in arrays if before + name in self.infos]
            self.infos.update((after + name, self.infos[before + name]) for name in updated)
        self._loss_scaling = loss_scaling(self._optimizer).tensor
        self.scalars = Scalars(self._all_scalars(self._optimizer))

    @property
    def owners(self) -> dict[str, str]:
        """By tensor of the optimizer's state, the weight it belongs to; and weights themselves."""
        owners = {prefix + name: name for name, kept in self._prefixes.items() for prefix in kept}
        factor = [] if self._loss_scaler is None else [UPDATE_FACTOR]
        return {**owners, **{name: name for name in (*self._trained, *factor)}}

    @property
    def content(self) -> str:
        """A text of everything that programs depend on, for digests."""
        optimizer = self._optimizer
        chosen = [dict(optimizer.settings), optimizer.clip_norms, loss_scaling(optimizer)]
        scalars = [self._rule.scalars(name) for name in self._trained]
        return repr([type(optimizer).__name__, chosen, self._factors, scalars])

    def scalar(self, name: str, weights: Weights) -> tf.Tensor:
        """Returns one of the optimizer's numbers, in the graph that is being traced.

        The loss scaling includes the factor by which this batch's loss is multiplied.
        """
        value = self.scalars.value(name)
        if name != self._loss_scaling or self._loss_scaler is None:
            return value
        return value * weights.variable(UPDATE_FACTOR).read_value()

    def scale(self, weights: Weights) -> tf.Tensor:
        """Returns the gradient that the backward pass starts with, in the graph being traced."""
        scale = self.scalar(self._loss_scaling, weights)
        factors = self._factors
        # A mean over replicas divides here already, which anchors of gradients show.
        return scale / factors.replicas if factors.is_mean and factors.replicas > 1 else scale

    def replace(self, optimizer: Optimizer) -> None:
        """Takes the numbers of another optimizer from the next run on.

        Raises a `popart_exception`, and changes nothing, if more than numbers differ.
        """
        self._optimizer.check_replacement(optimizer)
        scalars = self._all_scalars(optimizer)
        # The next replacement is compared with this one.
        self._optimizer = optimizer.copy()
        self.scalars.update(scalars)

    def unreduced(self, wanted: Sequence[str]) -> dict[str, int]:
        """Returns the number of replicas by weights whose `AcclToReduce___` is in `wanted`."""
        prefix = reservedAcclToReducePrefix()
        names = [name.removeprefix(prefix) for name in wanted if name.startswith(prefix)]
        return {name: self._factors.replicas for name in names if prefix + name in self.infos}

    def __call__(
        self,
        gradients: Mapping[str, tf.Tensor],
        weights: Weights,
        wanted: Sequence[str],
        counted: Counted | None = None,
        unreduced: Mapping[str, tf.Tensor] = MappingProxyType({}),
    ) -> list[tf.Tensor]:
        """Updates the weights of a device; returns the `wanted` tensors with axes as in the model.

        What replicas have each for themselves, `AcclToReduce___`, comes as `(num_replicas, ...)`.

        Args:
            gradients: By name of weight, sums over micro-batches and replicas of the scaled loss's
                gradients, in the device's order of axes; not summed over replicas if the host
                reduces.
            wanted: Names of tensors that `infos` has.
            counted: What the loss scaler found in the batch; `None` without one.
            unreduced: By name of weight, gradients as they are before replicas add them up,
                `(num_replicas, ...)`.
        """
        momenta = self._momenta(self._accumulated(unreduced, weights), weights)
        scaling = self.scalars.value(self._loss_scaling)
        accumulated = self._accumulated(gradients, weights)
        host = self._host_reduction
        if host is not None:
            gradients = {name: host.together(each) for name, each in gradients.items()}
            accumulated = host(accumulated, weights)
        found = {reservedAccumPrefix() + name: tensor for name, tensor in gradients.items()}
        if host is not None and host.updates_weights:
            for name, after in accumulated.items():
                weights.variable(name).assign(after)
            found.update(accumulated)
        else:
            reduced = clipped(self._optimizer, accumulated, scaling, self._factors)
            found.update(self._updated(reduced, weights))
        for name in accumulated:
            found[reservedUpdatedVarPrefix() + name] = found[name]
        if self._loss_scaler is not None and counted is not None:
            variable = weights.variable(UPDATE_FACTOR)
            factor = variable.read_value()
            # Last, as all else of this batch is by the factor that its loss was scaled with.
            found[UPDATE_FACTOR] = self._loss_scaler.next_factor(factor, scaling, counted)
            variable.assign(found[UPDATE_FACTOR])
        return [
            momenta[name] if name in momenta else self._in_model(name, found, weights)
            for name in wanted
        ]

    def _momenta(
        self, gradients: Mapping[str, tf.Tensor], weights: Weights
    ) -> dict[str, tf.Tensor]:
        """Returns each `AcclToReduce___`: momentum with the gradients of one replica added."""
        found = {}
        for name, each in gradients.items():
            kept = weights.variable(reservedAcclPrefix() + name).read_value()
            scale = self._scalars_of(name)["dampeningScaleFactor1"]
            sums = tf.cast(in_float32(kept) + scale * in_float32(each), kept.dtype)
            found[reservedAcclToReducePrefix() + name] = all_in_model(sums, weights.order(name))
        return found

    def _updated(
        self, gradients: Mapping[str, tf.Tensor], weights: Weights
    ) -> dict[str, tf.Tensor]:
        """Updates weights by the optimizer's rule; returns them and the optimizer's state."""
        found = {}
        for name, gradient in gradients.items():
            kept = {each: weights.variable(each + name) for each in self._prefixes[name]}
            variable = weights.variable(name)
            after, states = self._rule.updated(
                variable.read_value(),
                gradient,
                {prefix: each.read_value() for prefix, each in kept.items()},
                self._scalars_of(name),
            )
            variable.assign(after)
            found[name] = after
            for prefix, state in states.items():
                if prefix in kept:
                    kept[prefix].assign(state)
                found[prefix + name] = state
        return found

    def _accumulated(
        self, gradients: Mapping[str, tf.Tensor], weights: Weights
    ) -> dict[str, tf.Tensor]:
        """Returns gradients as they were accumulated, without the loss scaler's own factor."""
        found = {
            name: self._rule.accumulator.rounded(gradient, weights.host_value(name).dtype)
            for name, gradient in gradients.items()
        }
        if self._loss_scaler is None:
            return found
        factor = weights.variable(UPDATE_FACTOR).read_value()
        # The optimizer divides by its own loss scaling only.
        return {name: tf.cast(each, tf.float32) / factor for name, each in found.items()}

    def _scalars_of(self, name: str) -> dict[str, tf.Tensor]:
        scalars = self._rule.scalars(name)
        return {kind: self.scalars.value(each.tensor) for kind, each in scalars.items()}

    def _in_model(self, name: str, found: Mapping[str, tf.Tensor], weights: Weights) -> tf.Tensor:
        """Returns a tensor with axes as in the model.

        Tensors of a weight without gradients are what they were before.
        """
        owner = name if name in weights else name.partition("___")[2]
        if name in found:
            return LaidOutTensor(found[name], order=weights.order(owner)).tensor
        if name in weights:
            return weights.value(name).tensor
        if name.startswith(reservedAccumPrefix()):
            return tf.zeros(*self.infos[name])
        is_weight = name.startswith(reservedUpdatedVarPrefix())
        kept = weights.value(owner if is_weight else reservedAcclPrefix() + owner).tensor
        if name.startswith(reservedAcclToReducePrefix()):
            return tf.stack([kept] * self._factors.replicas)
        return kept

    def _all_scalars(self, optimizer: Optimizer) -> list[Scalar]:
        rule = rule_of(optimizer, self._factors, self._accumulates)
        scalars = [each for name in self._trained for each in rule.scalars(name).values()]
        return [*scalars, loss_scaling(optimizer)]


def _states(slots: Mapping[str, Sequence[Slot]]) -> dict[str, np.ndarray]:
    return {
        slot.prefix + name: np.array(slot.initial, slot.dtype).reshape(slot.shape)
        for name, kept in slots.items()
        for slot in kept
    }


def _infos(
    weights: Mapping[str, np.ndarray], states: Mapping[str, np.ndarray]
) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Returns shapes and types of weights, of the optimizer's state and of gradients."""
    infos = {name: (each.shape, each.dtype) for name, each in (*weights.items(), *states.items())}
    for name, array in weights.items():
        # Steps widen gradients of half precision before they are added up.
        dtype = np.result_type(array.dtype, np.float32)
        infos[reservedAccumPrefix() + name] = array.shape, dtype
        infos[reservedUpdatedVarPrefix() + name] = array.shape, array.dtype
        kept = infos.get(reservedAcclPrefix() + name)
        if kept is not None:
            infos[reservedAcclToUpdatePrefix() + name] = kept
            infos[reservedAcclFinalOutPrefix() + name] = kept
    return infos
