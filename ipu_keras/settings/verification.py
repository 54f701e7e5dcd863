"""Keys and ids of verified transfers."""

import collections
from dataclasses import dataclass, field


@dataclass
class KeyId:
    """The key and the first id of one verified data transfer.

    Args:
        key: The number that identifies the stream.
        start_id: The id of its first transfer; -1 lets the system choose.
    """

    key: int = 0
    start_id: int = -1


def _key_id_per_feed() -> collections.defaultdict[str, KeyId]:
    return collections.defaultdict(KeyId)


@dataclass
class VerificationOptions:
    """Keys and ids of verified transfers, for each kind of data in a program.

    The options only hold data: verified transfers are not emulated.

    Example:

    >>> options = VerificationOptions()
    >>> options.inputs.key = 1
    >>> options.infeeds["training_feed"].key = 3
    >>> options.infeeds["training_feed"]
    KeyId(key=3, start_id=-1)
    """

    inputs: KeyId = field(default_factory=KeyId)
    input_parameters: KeyId = field(default_factory=KeyId)
    outputs: KeyId = field(default_factory=KeyId)
    output_parameters: KeyId = field(default_factory=KeyId)
    infeeds: collections.defaultdict[str, KeyId] = field(default_factory=_key_id_per_feed)
    outfeeds: collections.defaultdict[str, KeyId] = field(default_factory=_key_id_per_feed)
    checkpoint_in: KeyId = field(default_factory=lambda: KeyId(0, 0))
    checkpoint_out: KeyId = field(default_factory=lambda: KeyId(0, 0))
