"""How estimators run, and which worker of a cluster they are."""

import doctest
import json

import pytest

from ipu_keras import ipu_run_config
from ipu_keras.config import IPUConfig
from ipu_keras.estimators import run_config
from ipu_keras.estimators.run_config import EstimatorRunConfig
from ipu_keras.ipu_run_config import IPURunConfig, RunConfig

CLUSTER = {
    "chief": ["host0:2222"],
    "ps": ["host1:2222", "host2:2222"],
    "worker": ["host3:2222", "host4:2222", "host5:2222"],
}


def task(monkeypatch, job, index, cluster=CLUSTER):
    text = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
    monkeypatch.setenv("TF_CONFIG", text)


def test_examples():
    assert doctest.testmod(run_config).failed == doctest.testmod(ipu_run_config).failed == 0


def test_defaults(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    config = RunConfig()
    assert config.ipu_run_config == (1, None, False, 1, 1, 0, None)
    assert (config.save_checkpoints_secs, config.save_checkpoints_steps) == (600, None)
    assert (config.save_summary_steps, config.log_step_count_steps) == (100, 100)
    assert (config.keep_checkpoint_max, config.model_dir, config.train_distribute) == (
        5,
        None,
        None,
    )
    assert (config.master, config.task_type, config.task_id, config.is_chief) == (
        "",
        "worker",
        0,
        True,
    )
    assert (config.num_ps_replicas, config.num_worker_replicas) == (0, 1)


@pytest.mark.parametrize(
    ("job", "index", "master", "num_ps", "num_workers", "is_chief"),
    [
        ("worker", 1, "grpc://host4:2222", 2, 4, False),
        ("chief", 0, "grpc://host0:2222", 2, 4, True),
        ("evaluator", 0, "", 0, 0, False),
    ],
)
def test_the_document_s_clusters(monkeypatch, job, index, master, num_ps, num_workers, is_chief):
    task(monkeypatch, job, index)
    config = RunConfig()
    assert (config.task_type, config.task_id) == (job, index)
    assert (config.master, config.evaluator_master) == (master, "")
    assert (config.num_ps_replicas, config.num_worker_replicas) == (num_ps, num_workers)
    assert config.is_chief is is_chief
    assert config.cluster_spec.as_dict() == ({} if job == "evaluator" else CLUSTER)


def test_without_a_chief_the_first_worker_is_it(monkeypatch):
    task(monkeypatch, "worker", 0, {"worker": ["a:1", "b:1"]})
    assert RunConfig().is_chief
    task(monkeypatch, "worker", 1, {"worker": ["a:1", "b:1"]})
    assert not RunConfig().is_chief
    assert RunConfig(master="grpc://c:1").master == "grpc://c:1"


def test_replace_keeps_the_class_and_what_is_not_named():
    config = RunConfig(IPURunConfig(iterations_per_loop=3), tf_random_seed=5)
    changed = config.replace(save_checkpoints_steps=7, model_dir="somewhere")
    assert isinstance(changed, RunConfig)
    assert changed.ipu_run_config.iterations_per_loop == 3
    assert (changed.tf_random_seed, changed.model_dir) == (5, "somewhere")
    assert (changed.save_checkpoints_steps, changed.save_checkpoints_secs) == (7, None)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (None, 600)
    assert changed.replace(save_summary_steps=None).save_checkpoints_steps == 7


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (
            {"save_checkpoints_steps": 1, "save_checkpoints_secs": 1},
            ValueError,
            "Only one of `save_checkpoints_steps` and `save_checkpoints_secs`",
        ),
        ({"save_summary_steps": 0}, ValueError, "`save_summary_steps` must be a positive integer"),
        ({"protocol": "verbs"}, ValueError, "`protocol` must be None or 'grpc'"),
        ({"eval_distribute": 1}, NotImplementedError, "`eval_distribute` is not implemented"),
        (
            {"experimental_max_worker_delay_secs": 1},
            NotImplementedError,
            "`experimental_max_worker_delay_secs` is not implemented",
        ),
    ],
)
def test_wrong_values(given, kind, message):
    with pytest.raises(kind, match=message):
        EstimatorRunConfig(**given)


def test_wrong_replacements():
    with pytest.raises(ValueError, match=r"names of the constructor's arguments. Received: speed"):
        RunConfig().replace(speed=1)
    with pytest.raises(ValueError, match="`protocol` must be None or 'grpc'"):
        RunConfig().replace(protocol="verbs")
    with pytest.raises(ValueError, match="`save_summary_steps` must be a positive integer"):
        RunConfig().replace(save_summary_steps=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "must be a JSON object such as"),
        ("[]", "must be a JSON object such as"),
        ('{"cluster": {"chief": ["a:1", "b:1"]}}', "can have one chief. Received: 2"),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
            "must be one of its cluster. Received: the task 1 of 'worker'",
        ),
    ],
)
def test_wrong_clusters(monkeypatch, text, message):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match=message):
        RunConfig()


def test_wrong_ipu_run_configs():
    with pytest.raises(TypeError, match="`ipu_options` must be an IPUConfig"):
        IPURunConfig(ipu_options="4 IPUs")
    with pytest.raises(ValueError, match="`iterations_per_loop` must be a positive integer"):
        IPURunConfig(iterations_per_loop=0)
    with pytest.raises(ValueError, match="Device ordinal must be >= 0"):
        IPURunConfig(ordinal=-1)
    with pytest.raises(TypeError, match="`ipu_run_config` must be an IPURunConfig"):
        RunConfig(IPUConfig())
