"""The step of an ONNX model: what a session's program computes for one micro-batch."""

import contextlib
import re
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.data_types import dtype_on_device
from ipu_keras.popart.model.graph import Node, OnnxModel
from ipu_keras.popart.operations.evaluation import Environment, Evaluation
from ipu_keras.popart.operations.values import LaidOutTensor
from ipu_keras.popart.sessions.number_checks import first_wrong
from ipu_keras.popart.sessions.weights import RandomSeeds, Weights
from ipu_keras.program import legal_in_scopes, stage_scope
from ipu_keras.tracing.frontend_attributes import (
    MEMORY_PROPORTION,
    PARTIALS_TYPE,
    SHARD,
    attributed,
)
from ipu_keras.tracing.replication import replica_index

# Names of attributes in which PopART's builder annotates a node; they are in saved models.
IPU = "__ipu_number"
STAGE = "__pipeline_stage"
PARTIALS = "__partials_type"
MEMORY = "__available_memory_proportion"


@dataclass(frozen=True)
class Placement:
    """Which annotations of nodes count: `has_ipus` for IPUs, `has_stages` for pipeline stages."""

    has_ipus: bool = False
    has_stages: bool = False


@dataclass(frozen=True)
class TracedModel:
    """Computes the anchors of a model for one micro-batch.

    Args:
        model: The model, with initialisers in the types of the device.
        checks_numbers: Whether the position of the first node whose result was not finite is
            returned behind the anchors.
        infos: Filled with shape and type of all tensors of the main graph, at each trace. A
            dictionary, and not a method of the session: the device that has run a step keeps it,
            and must not keep the session, which keeps the device.
    """

    model: OnnxModel
    inputs: tuple[str, ...]
    anchors: tuple[str, ...]
    weights: Weights
    seeds: RandomSeeds
    placement: Placement = Placement()
    strides_groups: bool = False
    stable_softmax: bool = True
    checks_numbers: bool = False
    infos: MutableMapping[str, tuple[tuple[int, ...], np.dtype]] = field(default_factory=dict)

    # Normalisations then take the batch's statistics, and dropout drops.
    _is_training: ClassVar[bool] = False

    def __call__(self, element: Sequence[tf.Tensor]) -> Any:
        """Returns the anchors, given the inputs in the order of `inputs`.

        Raises a `popart_exception` if a node cannot be computed, or an anchor is no tensor that
        a device can return.
        """
        environment = self._environment(element)
        results = [returned_tensor(name, environment[name]) for name in self.anchors]
        if self.checks_numbers:
            results.append(first_wrong(self.model.graph, environment, self._placed))
        return results

    def _environment(self, element: Sequence[tf.Tensor]) -> Environment:
        """Computes all tensors of the main graph, by name."""
        environment: Environment = dict(zip(self.inputs, map(LaidOutTensor, element), strict=True))
        for name in self.model.graph.initialisers:
            if name in self.weights:
                environment[name] = self.weights.value(name)
        self._evaluation().run(self.model.graph, environment)
        self.infos.clear()
        self.infos.update(
            (name, (tuple(value.shape), np.dtype(value.dtype.as_numpy_dtype)))
            for name, value in environment.items()
            if not isinstance(value, list)
        )
        return environment

    def _evaluation(self) -> Evaluation:
        return Evaluation(
            self.model.opsets,
            narrows=True,
            is_training=self._is_training,
            seed=_Seeds(self.seeds),
            around=self._placed,
            strides_groups=self.strides_groups,
            stable_softmax=self.stable_softmax,
        )

    @contextlib.contextmanager
    def _placed(self, node: Node) -> Iterator[None]:
        """Opens what a node's annotations say of where it runs, and its name scope for reports."""
        annotations, graph = node.annotations, tf.compat.v1.get_default_graph()
        with ExitStack() as opened:
            if self.placement.has_stages and STAGE in annotations:
                opened.enter_context(tf.name_scope(stage_scope(annotations[STAGE])))
            # Frontend attributes are kept on operations of a graph.
            if not tf.executing_eagerly():
                texts = {}
                if self.placement.has_ipus and IPU in annotations:
                    texts[SHARD] = str(annotations[IPU])
                # A MultiConv has a list, one of each convolution, which the operation reads
                # itself.
                if isinstance(annotations.get(PARTIALS), str):
                    texts[PARTIALS_TYPE] = annotations[PARTIALS].lower()
                if isinstance(annotations.get(MEMORY), float | int):
                    texts[MEMORY_PROPORTION] = repr(float(annotations[MEMORY]))
                for name, text in texts.items():
                    opened.enter_context(attributed(graph, name, text))
            opened.enter_context(tf.name_scope(scope_of(node)))
            yield


class _Seeds:
    """Gives each random operation of a step, on each replica, a seed of its own."""

    def __init__(self, seeds: RandomSeeds):
        self._seeds = seeds
        self._of_step: tf.Tensor | None = None
        self._count = 0

    def __call__(self) -> tf.Tensor:
        if self._of_step is None:
            self._of_step = self._seeds.of_step()
        # Operations are numbered in the order of the graph, so a step draws the same wherever it
        # runs.
        self._count += 1
        of_replica = tf.random.experimental.stateless_fold_in(self._of_step, replica_index())
        return tf.random.experimental.stateless_fold_in(of_replica, self._count)


def scope_of(node: Node) -> str:
    """Returns the name scope of a node, which is what reports call it.

    Example:

    >>> scope_of(Node("Add", "ai.onnx", ("a", "b"), ("layer/Add:0/1",)))
    'layer/Add.0.1'
    """
    called = node.name or next((name for name in node.outputs if name), node.kind)
    # The builder makes names unique by `:0/1`, which is no scope within a scope.
    called = re.sub(r"[:/](\d+)(?=$|/)", r".\1", called)
    called = legal_in_scopes(called).strip("/")
    return called if called[:1].isalnum() else f"node.{called}"


def returned_tensor(name: str, value: Any) -> tf.Tensor:
    """Returns an anchor as a program returns it.

    Raises a `popart_exception` if it is a sequence, of a type that a device has not, or of a
    shape that is known only once it was computed.
    """
    if not isinstance(value, LaidOutTensor):
        raise popart_exception(f"The anchor {name!r} is a sequence. Only tensors are returned.")
    dtype = np.dtype(value.dtype.as_numpy_dtype)
    try:
        dtype_on_device(dtype)
    except popart_exception as error:
        raise popart_exception(f"The anchor {name!r} cannot be returned. {error}") from error
    tensor = value.tensor
    if not tensor.shape.is_fully_defined():
        raise popart_exception(
            f"The anchor {name!r} has the shape {tensor.shape}, which is known only when it was "
            "computed. Programs of IPUs are static, and so are what they return: anchor something "
            "whose shape does not depend on values."
        )
    return tensor
