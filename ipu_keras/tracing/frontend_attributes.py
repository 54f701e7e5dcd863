"""Texts that scopes attach to operations, and that XLA hands on to its instructions unread.

XLA's own attribute for the devices of operations cannot serve: compiling for one CPU, XLA
refuses a function in which only some operations have it.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import attribute_of_new, set_attribute_of_new
from ipu_keras.internals.tensorflow.operations import set_attribute
from ipu_keras.internals.tensorflow.protos import frontend_attributes
from ipu_keras.machine.numerics import Numerics, families_in_halves
from ipu_keras.settings.enumerations import StochasticRoundingBehaviour
from ipu_keras.tracing.layers import LayerPlace, is_call

# The names are those that XLA and Graphcore's TensorFlow use.
_ATTRIBUTE = "_XlaFrontendAttributes"
PARTIALS_TYPE = "PARTIALS_TYPE"
MEMORY_PROPORTION = "AVAILABLE_MEMORY_PROPORTION"
STOCHASTIC_ROUNDING = "STOCHASTIC_ROUNDING"
_OF_NUMERICS = (STOCHASTIC_ROUNDING, PARTIALS_TYPE)

# The numbers of the IPUs that an operation is on, separated by commas.
SHARD = "IPU_SHARD"

# The number of the replica that a call is of, and a name that the calls of all replicas share.
_REPLICA_PART = "IPU_REPLICA_PART"

# What scopes say of operations that are in no graph.
_eager_texts: ContextVar[Mapping[str, str]] = ContextVar(
    "eager_texts", default=MappingProxyType({})
)

_PARTIALS_DTYPES: Mapping[str, str] = {"float": "float32", "half": "float16"}


@dataclass(frozen=True)
class ReplicaPart:
    """What one replica calls, of the calls that are those of all replicas by their name."""

    replica: int
    name: str


@contextlib.contextmanager
def attributed(graph: Any, name: str, value: str) -> Iterator[None]:
    """While this is open, new operations of a graph get one more text."""
    before = _of_new(graph).get(name)
    _give_new(graph, name, value)
    try:
        yield
    finally:
        # Only this name is restored: a scope within may have left another text for what
        # follows.
        _give_new(graph, name, before)


@contextlib.contextmanager
def attributed_eagerly(name: str, value: str) -> Iterator[None]:
    """While this is open, operations that run eagerly have one more text."""
    token = _eager_texts.set({**_eager_texts.get(), name: value})
    try:
        yield
    finally:
        _eager_texts.reset(token)


def eager_attributes() -> Mapping[str, str]:
    """Returns the texts of an operation that runs eagerly now."""
    return _eager_texts.get()


def numerics_scopes() -> tuple[tuple[str, str], ...]:
    """Returns what scopes around eager code say of numerics: within others, it is other programs.

    Names of attributes come before their values.
    """
    texts = _eager_texts.get()
    return tuple((name, texts[name]) for name in _OF_NUMERICS if name in texts)


def numerics_in_scopes(configured: Numerics) -> Numerics:
    """Returns what programs compute with that eager code calls within the scopes around it."""
    texts, found = dict(numerics_scopes()), configured
    if (at_random := is_at_random(texts)) is not None:
        behaviours = StochasticRoundingBehaviour
        found = replace(found, rounding=behaviours.ON if at_random else behaviours.OFF)
    if PARTIALS_TYPE in texts:
        options = {"partialsType": texts[PARTIALS_TYPE]}
        found = replace(found, half_partials=families_in_halves(convolution=options, dot=options))
    return found


def says_numerics(texts: Mapping[str, str]) -> bool:
    """Whether texts say of an operation what may be other than configured."""
    return PARTIALS_TYPE in texts or is_at_random(texts) is not None


def is_at_random(texts: Mapping[str, str]) -> bool | None:
    """Returns whether texts say that an operation rounds at random; `None` if they do not say."""
    return {"true": True, "false": False}.get(texts.get(STOCHASTIC_ROUNDING, ""))


def attribute_from_now_on(graph: Any, name: str, value: str) -> None:
    """Gives all further operations of a graph a text, unless they get another one of its name."""
    if name not in _of_new(graph):
        _give_new(graph, name, value)


def attributes_of(op: tf.Operation) -> dict[str, str]:
    return attributes_in(op.node_def)


def attributes_in(node: Any) -> dict[str, str]:
    """Returns the texts of a node of a definition, a `NodeDef`."""
    return _texts(node.attr[_ATTRIBUTE]) if _ATTRIBUTE in node.attr else {}


def give_attributes(node: Any, texts: Mapping[str, str]) -> None:
    """Gives a node of a definition texts, and no others."""
    if texts:
        node.attr[_ATTRIBUTE].CopyFrom(_attribute(texts))


def give_around(node: Any, around: Mapping[str, str]) -> None:
    """Gives a node of a definition the texts of what calls it, where its own do not say more."""
    give_attributes(node, {**around, **_said_by(node)})


def _said_by(node: Any) -> dict[str, str]:
    """Returns the texts of a node of a definition but one that leaves rounding as it is."""
    own = attributes_in(node)
    if is_at_random(own) is None:
        own.pop(STOCHASTIC_ROUNDING, None)
    return own


def set_attribute_of(op: tf.Operation, name: str, value: str) -> None:
    """Gives an existing operation a text besides those that it has."""
    set_attribute(op, _ATTRIBUTE, _attribute({**attributes_of(op), name: value}))


@contextlib.contextmanager
def attributed_as(op: tf.Operation) -> Iterator[None]:
    """While this is open, new operations have the texts of one that they take the place of."""
    graph = tf.compat.v1.get_default_graph()
    with contextlib.ExitStack() as texts:
        for name, value in _said_by(op.node_def).items():
            texts.enter_context(attributed(graph, name, value))
        yield


def note_replica_part(call: tf.Operation, part: ReplicaPart) -> None:
    """Notes which replica a call is of."""
    set_attribute_of(call, _REPLICA_PART, f"{part.replica} {part.name}")


def replica_part_in(texts: Mapping[str, str]) -> ReplicaPart | None:
    """Returns which replica texts say a call is of; `None` for a call of no replica."""
    if _REPLICA_PART not in texts:
        return None
    replica, _, name = texts[_REPLICA_PART].partition(" ")
    return ReplicaPart(int(replica), name)


def shard_in(texts: Mapping[str, str]) -> int | None:
    """Returns the IPU that texts say an operation is on, the first of several, or `None`.

    Example:

    >>> shard_in({"IPU_SHARD": "2,3"}), shard_in({})
    (2, None)
    """
    shards = texts.get(SHARD)
    return None if shards is None else int(shards.partition(",")[0])


def shards_in(graphs: Iterable[Any]) -> dict[str, int]:
    """Returns the IPUs that operations of some graphs are on, by the operations' names."""
    every = ((op.name, shard_in(attributes_of(op))) for g in graphs for op in g.get_operations())
    return {name: shard for name, shard in every if shard is not None}


def place_with(place: LayerPlace, texts: Mapping[str, str]) -> LayerPlace:
    """Adds to a place, read from an operation's name, what the operation's texts say.

    Example:

    >>> place = place_with(LayerPlace("dense"), {"IPU_SHARD": "1", "PARTIALS_TYPE": "half"})
    >>> place.layer, place.shard, place.partials_dtype
    ('dense', 1, 'float16')
    """
    shard, partials = shard_in(texts), _PARTIALS_DTYPES.get(texts.get(PARTIALS_TYPE, ""), "")
    share = float(texts[MEMORY_PROPORTION]) if MEMORY_PROPORTION in texts else None
    if shard is None and not partials and share is None:
        return place
    return replace(place, shard=shard, partials_dtype=partials, memory_proportion=share)


class AttributesOfCalls:
    """Remembers what scopes say of function calls, which XLA inlines and so loses."""

    def __init__(self, graphs: Iterable[Any]):
        self._by_name: dict[str, dict[str, str]] = {}
        for graph in graphs:
            for op in graph.get_operations():
                if is_call(op.name.rpartition("/")[2]) and (texts := attributes_of(op)):
                    self._by_name[op.name] = texts

    def of(self, op_name: str) -> Mapping[str, str]:
        """Returns the texts of the innermost call that has any, in XLA's name of an operation."""
        if not self._by_name:
            return {}
        parts = op_name.partition(";")[0].split("/")
        start = 0
        found: Mapping[str, str] = {}
        for index, part in enumerate(parts):
            if is_call(part):
                # A function's names do not include the scope of its caller, so each call begins
                # a new path.
                found = self._by_name.get("/".join(parts[start : index + 1]), found)
                start = index + 1
        return found


def _of_new(graph: Any) -> dict[str, str]:
    given = attribute_of_new(graph, _ATTRIBUTE)
    return {} if given is None else _texts(given)


def _give_new(graph: Any, name: str, value: str | None) -> None:
    texts = {key: text for key, text in _of_new(graph).items() if key != name}
    if value is not None:
        texts[name] = value
    set_attribute_of_new(graph, _ATTRIBUTE, _attribute(texts) if texts else None)


def _texts(value: Any) -> dict[str, str]:
    return dict(frontend_attributes(value.s).map)


def _attribute(texts: Mapping[str, str]) -> Any:
    message = frontend_attributes()
    message.map.update(texts)
    # Sorted, so that equal texts are equal bytes and a fingerprint does not differ by their
    # order.
    return tf.compat.v1.AttrValue(s=message.SerializeToString(deterministic=True))
