"""Lists what the host replaces in a traced step, each with its reason.

A rewrite is a module of this folder and an entry here. Each can be switched off, to see what it
gains or whether it is behind a wrong number: `IPU_KERAS_HOST_REWRITES=-pooling,-random_bits`
for some, `IPU_KERAS_HOST_REWRITES=none` for all. The variable is read whenever a step is
traced.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ipu_keras.host.rewrites.edge_gradients import edge_gradients
from ipu_keras.host.rewrites.folded_batch_norms import folded_batch_norms
from ipu_keras.host.rewrites.late_tiles import late_tiles
from ipu_keras.host.rewrites.pooling import fast_pooling_gradients
from ipu_keras.host.rewrites.random_bits import compilable_random
from ipu_keras.host.rewrites.shared_roots import shared_roots
from ipu_keras.host.rewrites.shifted_products import shifted_convolutions
from ipu_keras.host.rewrites.summed_products import joint_summed_products
from ipu_keras.host.rewrites.unread_edges import unread_edges
from ipu_keras.host.rewrites.wide_products import wide_products
from ipu_keras.tracing.as_written import Replaced

ENVIRONMENT_VARIABLE = "IPU_KERAS_HOST_REWRITES"


@dataclass(frozen=True)
class Purpose:
    """What a step is traced for.

    Args:
        for_xla: Whether XLA or TensorFlow's executor is to run it.
        fast_math: Whether results may differ by more than the order of sums.
        accumulates: Whether the gradients of several batches become one.
    """

    for_xla: bool
    onednn: bool
    fast_math: bool
    accumulates: bool


@dataclass(frozen=True)
class Rewrite:
    """Something that the host computes in another way than users wrote it.

    Args:
        name: The name of its module, by which it is switched off.
        applies: Whether it gains anything in a trace for some purpose. A trace for XLA that
            TensorFlow's executor takes over loses what does not apply there.
        gain: What was measured, and on what; a step is one of training.
        undone: How reports get what users wrote.
        replaces: While it is open, gives operations other results, which it yields. `None` if
            the layer asks while it is traced how to write itself, or if `rewrites` does it
            later.
        rewrites: Makes another `tf.ConcreteFunction` of what TensorFlow's executor would get,
            in which all users of a result are known.
    """

    name: str
    applies: Callable[[Purpose], bool]
    gain: str
    undone: str
    replaces: Callable[[], AbstractContextManager[list[Replaced]]] | None
    rewrites: Callable[[Any], Any] | None = None


# Replaced operations stay in the graph without a use, until `tracing/as_written.py` uses them
# again.
_RENAMED = "in the trace, tensors are renamed to those that were replaced"

# Apart from the list because a trace without this rewrite notes whether it could have applied.
FUSED_BATCH_NORMS = Rewrite(
    name="fused_batch_norms",
    # XLA makes few loops of the many operations that Keras writes.
    applies=lambda purpose: purpose.fast_math and not purpose.for_xla,
    gain="38.8 to 22.8-27 ms/step (normalized CNN, oneDNN)",
    undone="the trace for XLA has what Keras writes; such a program is traced twice",
    replaces=None,
)

# In this order: what one rewrite puts in may be replaced by a later one.
REWRITES = (
    Rewrite(
        name="pooling",
        # oneDNN's gradient takes half the time of what replaces TensorFlow's other one.
        applies=lambda purpose: purpose.for_xla or not purpose.onednn,
        gain="4.7 to 0.6 ms (gradient of 2x2 windows in 32x26x26x32, no oneDNN)",
        undone=_RENAMED,
        replaces=fast_pooling_gradients,
    ),
    Rewrite(
        name="random_bits",
        # Without it, TensorFlow's executor runs the step, as XLA draws other numbers.
        applies=lambda purpose: purpose.for_xla,
        gain="32.1 to 28.5 ms/step (transformer with dropout), 3.3 to 1.8 (MLP with noise)",
        undone=_RENAMED,
        replaces=compilable_random,
    ),
    Rewrite(
        name="summed_products",
        applies=lambda purpose: True,
        gain="21.6 to 19.5 ms/step (transformer)",
        undone=_RENAMED,
        replaces=joint_summed_products,
    ),
    Rewrite(
        name="late_tiles",
        applies=lambda purpose: True,
        gain="1.035 times as many steps/s (normalized CNN, TensorFlow's executor)",
        undone=_RENAMED,
        replaces=late_tiles,
    ),
    Rewrite(
        name="wide_products",
        # Gradients of many batches may be computed together, by rules that know TensorFlow's
        # products only.
        applies=lambda purpose: purpose.for_xla and not purpose.accumulates,
        gain="1.06 times as many steps/s (transformer)",
        undone=_RENAMED,
        replaces=wide_products,
    ),
    Rewrite(
        name="shared_roots",
        applies=lambda purpose: purpose.for_xla,
        gain="0.66 to 0.64 s to trace and to compile (MLP with Adam: 7 of 12 roots are left)",
        undone=_RENAMED,
        replaces=shared_roots,
    ),
    Rewrite(
        name="edge_gradients",
        applies=lambda purpose: purpose.for_xla,
        gain="weights of 1 model in 1000 no longer NaN (cosine similarity of zeros)",
        undone=_RENAMED,
        replaces=edge_gradients,
    ),
    Rewrite(
        name="folded_batch_norms",
        # It rounds products of kernels and factors that stock Keras does not compute.
        applies=lambda purpose: purpose.fast_math,
        gain="1.14 times as many steps/s (normalized CNN in a PopART session, oneDNN)",
        undone=_RENAMED,
        replaces=folded_batch_norms,
    ),
    Rewrite(
        name="unread_edges",
        applies=lambda purpose: True,
        gain="1.18 times as many steps/s (CNN28, `predict` and `evaluate`, oneDNN)",
        undone=_RENAMED,
        replaces=unread_edges,
    ),
    FUSED_BATCH_NORMS,
    Rewrite(
        name="shifted_products",
        applies=lambda purpose: not purpose.for_xla,
        gain="1.27 times as many steps/s (CNN28, `predict`), 1.33 (PopART session), oneDNN",
        undone="only the function that TensorFlow's executor gets has them, the trace does not",
        replaces=None,
        rewrites=shifted_convolutions,
    ),
)


def rewrites_for(purpose: Purpose) -> tuple[Rewrite, ...]:
    """Returns the rewrites of a trace, without those that the environment switches off.

    Raises a `ValueError` if the environment names anything else.
    """
    off = _switched_off(os.environ.get(ENVIRONMENT_VARIABLE, ""))
    return tuple(one for one in REWRITES if one.name not in off and one.applies(purpose))


def _switched_off(text: str) -> frozenset[str]:
    known = frozenset(one.name for one in REWRITES)
    given = [item.strip() for item in text.split(",") if item.strip()]
    if given == ["none"]:
        return known
    wrong = [item for item in given if item[:1] != "-" or item[1:] not in known]
    if wrong:
        raise ValueError(
            f"{ENVIRONMENT_VARIABLE} must name rewrites to switch off, each after a minus and "
            "separated by commas, or be 'none', which switches off all. There are "
            f"{', '.join(sorted(known))}. Received: {', '.join(wrong)}"
        )
    return frozenset(item[1:] for item in given)
