"""The sessions in which loops of estimators run: hooks, checkpoints, and what comes out of them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ipu_keras.estimators.specs import ModeKeys, hooks_of
from ipu_keras.estimators.training_workers import TrainingWorkers
from ipu_keras.ipu_run_config import RunConfig

_V1 = tf.compat.v1


class CompiledLoop(NamedTuple):
    """A loop of a model in a session's graph.

    Args:
        spec: What the model function returned.
        results: What the loop sent, stacked: tensors of `(iterations, [replicas,] ...)`.
        first_step: The global step before the loop.
        initializer: The operation that begins the dataset.
    """

    spec: Any
    results: Any
    first_step: tf.Tensor
    initializer: tf.Operation


class BegunDataset(tf.compat.v1.train.SessionRunHook):
    """Begins a dataset in each session, before it runs the loop."""

    def __init__(self, initializer: tf.Operation):
        self._initializer = initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._initializer)


def opened(
    loop: CompiledLoop,
    mode: str,
    config: RunConfig,
    hooks: Sequence[Any] | None,
    checkpoint: str | None,
) -> Any:
    """Opens a session that trains nothing."""
    creator = _V1.train.ChiefSessionCreator(
        scaffold=getattr(loop.spec, "scaffold", None),
        config=config.session_config,
        checkpoint_filename_with_path=checkpoint,
    )
    own = [BegunDataset(loop.initializer), *(hooks or ()), *hooks_of(loop.spec, mode)]
    return _V1.train.MonitoredSession(creator, own)


def closed(session: Any, graph: tf.Graph) -> None:
    """Closes a session, which needs its graph for that."""
    with graph.as_default():
        session.close()


def train(
    loop: CompiledLoop,
    loss: tf.Tensor,
    step: tf.Tensor,
    steps: int | None,
    config: RunConfig,
    workers: TrainingWorkers,
    hooks: Sequence[Any] | None,
    listeners: Sequence[Any] | None,
) -> None:
    """Runs a loop in a session of its own, until the steps are done or a hook asks to stop.

    Args:
        loss: The mean of a loop.
        step: The global step after a loop.
        steps: How many more steps; without end if `None`.
        hooks: A list of `tf.estimator.SessionRunHook`.
        listeners: A list of `CheckpointSaverListener`.
    """
    scaffold = _scaffold(loop.spec, config)
    own = [
        BegunDataset(loop.initializer),
        _V1.train.NanTensorHook(loss),
        *(hooks or ()),
        *hooks_of(loop.spec, ModeKeys.TRAIN),
    ]
    if config.log_step_count_steps:
        # It counts calls of the session.
        often = max(1, config.log_step_count_steps // config.ipu_run_config.iterations_per_loop)
        own.append(_V1.train.LoggingTensorHook({"loss": loss, "step": step}, often))
    is_saved = config.save_checkpoints_steps or config.save_checkpoints_secs
    if listeners and not is_saved:
        raise ValueError(
            "`saving_listeners` need checkpoints, which the RunConfig has switched off. "
            f"Received: saving_listeners={listeners!r}"
        )
    master, session_config = workers.session(config.master, config.session_config)
    with workers.folder_of_checkpoints(config) as folder:
        if folder is not None:
            saver = _V1.train.CheckpointSaverHook(
                folder,
                save_secs=config.save_checkpoints_secs,
                save_steps=config.save_checkpoints_steps,
                scaffold=scaffold,
                listeners=list(listeners or ()) if workers.is_first else [],
                save_graph_def=config.checkpoint_save_graph_def,
            )
            own.append(saver)
        session = _V1.train.MonitoredTrainingSession(
            master=master,
            checkpoint_dir=config.model_dir,
            scaffold=scaffold,
            hooks=own,
            save_checkpoint_secs=None,
            save_checkpoint_steps=None,
            save_summaries_steps=_every(config.save_summary_steps, config, workers),
            save_summaries_secs=None,
            config=session_config,
            log_step_count_steps=_every(config.log_step_count_steps, config, workers),
            max_wait_secs=config.session_creation_timeout_secs,
            save_graph_def=config.checkpoint_save_graph_def,
        )
        with session:
            reached = unseen_by_hooks(session, fetched, _V1.train.get_global_step())
            end = None if steps is None else reached + steps
            while not session.should_stop() and (end is None or reached < end):
                _, reached = session.run([loss, step])


def _every(steps: int | None, config: RunConfig, workers: TrainingWorkers) -> int | None:
    """Returns what TensorFlow's hooks are told, which ask whether the next step is due.

    The next step that they see is `iterations_per_loop` later. Only the first worker writes.
    """
    if steps is None or not workers.is_first:
        return None
    return max(1, steps - config.ipu_run_config.iterations_per_loop + 1)


def _scaffold(spec: Any, config: RunConfig) -> Any:
    scaffold = getattr(spec, "scaffold", None) or _V1.train.Scaffold()
    if scaffold.saver is None and not _V1.get_collection(_V1.GraphKeys.SAVERS):
        saver = _V1.train.Saver(
            sharded=True,
            max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            defer_build=True,
            save_relative_paths=True,
        )
        _V1.add_to_collection(_V1.GraphKeys.SAVERS, saver)
    return scaffold


def batches_of(session: Any, results: Any, num_axes: int) -> Iterator[Any]:
    """Yields the structures of batches, in the order of the dataset's elements, run by run.

    Args:
        results: What a loop sent, whose first `num_axes` axes are not those of a batch.
    """
    while not session.should_stop():
        found = session.run(results)
        flat = [array.reshape(-1, *array.shape[num_axes:]) for array in tf.nest.flatten(found)]
        for row in zip(*flat, strict=True):
            yield tf.nest.pack_sequence_as(found, row)


def examples_of(batch: Any) -> Iterator[Any]:
    """Yields the examples of a batch."""
    arrays = tf.nest.flatten(batch)
    if any(np.ndim(array) == 0 for array in arrays) or len({len(each) for each in arrays}) > 1:
        raise ValueError(
            "All predictions must have the batch as their first axis, or "
            "`yield_single_examples` must be False. "
            f"Received: predictions of shapes {[np.shape(each) for each in arrays]}"
        )
    for row in zip(*arrays, strict=True):
        yield tf.nest.pack_sequence_as(batch, row)


def unseen_by_hooks(session: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function with the session below a monitored one, so that hooks do not count it."""
    # TensorFlow asks for this name of the argument.
    return session.run_step_fn(lambda step_context: function(step_context.session, *args))


def fetched(session: Any, fetches: Any) -> Any:
    """Returns what a session has for fetches."""
    return session.run(fetches)
