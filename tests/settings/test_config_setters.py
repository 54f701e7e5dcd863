"""The older functions that set options, as `ipu.utils` has them."""

import doctest
import inspect
import logging

import pytest

from ipu_keras import utils
from ipu_keras.config import IPUConfig
from ipu_keras.machine.system import SYSTEM
from ipu_keras.settings import verification
from ipu_keras.settings.config_setters import SETTERS as TABLE
from ipu_keras.settings.enumerations import DeviceConnectionType, MergeRemoteBuffersBehaviour
from ipu_keras.settings.verification import KeyId, VerificationOptions
from ipu_keras.utils import create_ipu_config

SETTERS = [each.name for each in TABLE if not each.creates]

# Arguments other than defaults, and the values of all options that they set.
WRITTEN = {
    "auto_select_ipus": ([[2, 4]], {"auto_select_ipus": [2, 4]}),
    "select_ipus": ([(3,)], {"select_ipus": (3,)}),
    "set_compilation_options": (
        [{"autoReport.all": "true"}],
        {"compilation_poplar_options": {"autoReport.all": "true"}},
    ),
    "set_convolution_options": (
        [{"partialsType": "half"}],
        {"convolutions.poplar_options": {"partialsType": "half"}},
    ),
    "set_experimental_multi_replica_distribution_options": (
        [4, 3],
        {
            "experimental.multi_replica_distribution.process_count": 4,
            "experimental.multi_replica_distribution.process_index": 3,
        },
    ),
    "set_floating_point_behaviour_options": (
        [True, False, True, False, True],
        {
            "floating_point_behaviour.inv": True,
            "floating_point_behaviour.oflo": True,
            "floating_point_behaviour.nanoo": True,
        },
    ),
    "set_gcl_options": ([{"a": 1}], {"gcl_poplar_options": {"a": 1}}),
    "set_io_tile_options": (
        [8, True, 0.5],
        {
            "io_tiles.num_io_tiles": 8,
            "io_tiles.place_ops_on_io_tiles": True,
            "io_tiles.available_memory_proportion": 0.5,
        },
    ),
    "set_ipu_connection_type": (
        [DeviceConnectionType.ON_DEMAND, "ipu1", True],
        {
            "device_connection.type": DeviceConnectionType.ON_DEMAND,
            "device_connection.version": "ipu1",
            "device_connection.enable_remote_buffers": True,
        },
    ),
    "set_ipu_model_options": (
        [False, 16, "ipu1"],
        {
            "ipu_model.compile_ipu_code": False,
            "ipu_model.tiles_per_ipu": 16,
            "ipu_model.version": "ipu1",
        },
    ),
    "set_matmul_options": (
        [{"partialsType": "half"}, True],
        {"matmuls.poplar_options": {"partialsType": "half"}, "matmuls.clear_pass_type": True},
    ),
    "set_norm_options": (
        [True, 2],
        {
            "norms.use_stable_statistics": True,
            "norms.experimental.distributed_batch_norm_replica_group_size": 2,
        },
    ),
    "set_optimization_options": (
        [True, True, 1, 2, 3, 4, 5, MergeRemoteBuffersBehaviour.MERGE, False, 6, 7, True],
        {
            "optimizations.combine_embedding_lookups": True,
            "optimizations.combine_matmuls": True,
            "optimizations.maximum_cross_replica_sum_buffer_size": 1,
            "optimizations.maximum_reduce_scatter_buffer_size": 2,
            "optimizations.maximum_inter_ipu_copies_buffer_size": 3,
            "optimizations.maximum_send_recv_cluster_size": 4,
            "optimizations.minimum_remote_tensor_size": 5,
            "optimizations.merge_remote_buffers": MergeRemoteBuffersBehaviour.MERGE,
            "optimizations.enable_gather_simplifier": False,
            "optimizations.triangular_solve_expander_block_size": 6,
            "optimizations.cholesky_block_size": 7,
            "optimizations.enable_fast_math": True,
        },
    ),
    "set_pooling_options": ([{"a": "b"}], {"pooling.poplar_options": {"a": "b"}}),
    "set_recomputation_options": ([True], {"allow_recompute": True}),
    "set_report_options": ([None, {}], {}),
    "set_serialization_options": (["there"], {"serialization_output_folder": "there"}),
    "set_transfer_options": ([False], {}),
    "set_verification_options": ([VerificationOptions()], {}),
}


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch):
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    SYSTEM.reset()
    yield
    SYSTEM.reset()


def changed(config):
    return {
        name: value for name, value in config._values.items() if value != config.TABLE[name].default
    }


def test_examples():
    assert doctest.testmod(verification).failed == 0


@pytest.mark.parametrize("name", SETTERS)
def test_what_each_writes(name):
    arguments, expected = WRITTEN[name]
    opts = IPUConfig()
    assert getattr(utils, name)(opts, *arguments) is opts
    assert changed(opts) == expected
    by_name = list(inspect.signature(getattr(utils, name)).parameters)[1:]
    again = getattr(utils, name)(IPUConfig(), **dict(zip(by_name, arguments, strict=True)))
    assert changed(again) == expected


@pytest.mark.parametrize("name", [*SETTERS, "create_ipu_config", "extract_compile_reports"])
def test_each_says_that_it_is_deprecated(name):
    assert "THIS FUNCTION IS DEPRECATED" in getattr(utils, name).__doc__


@pytest.mark.parametrize("name", SETTERS)
def test_each_refuses_what_is_no_configuration(name):
    message = r"^`opts` must be an IPUConfig, .* Received: opts=\{\} of type dict$"
    with pytest.raises(TypeError, match=message):
        getattr(utils, name)({}, *WRITTEN[name][0])


def test_the_system_takes_what_they_return():
    opts = utils.auto_select_ipus(create_ipu_config(), num_ipus=[1, 2])
    opts = utils.set_matmul_options(opts, {"availableMemoryProportion": "0.4"})
    utils.configure_ipu_system(opts)
    assert [len(device.ipus) for device in SYSTEM.devices] == [1, 2]
    assert SYSTEM.config.matmuls.poplar_options == {"availableMemoryProportion": "0.4"}


@pytest.mark.parametrize("first", ["auto_select_ipus", "select_ipus"])
@pytest.mark.parametrize("second", ["auto_select_ipus", "select_ipus"])
def test_devices_are_chosen_once(first, second):
    opts = getattr(utils, first)(IPUConfig(), 4)
    message = (
        r"^IPU devices have already been configured\.\nOnly one of `auto_select_ipus` and "
        rf"`select_ipus` can be set, .* Received: {second}\(\w+=\[1\]\) with {first}=4\."
    )
    with pytest.raises(ValueError, match=message):
        getattr(utils, second)(opts, [1])
    assert changed(opts) == {first: 4}


@pytest.mark.parametrize(
    ("name", "arguments", "error", "message"),
    [
        ("auto_select_ipus", ["2"], TypeError, r"^`num_ipus` sets `auto_select_ipus`, .*='2'\."),
        ("auto_select_ipus", [[0]], ValueError, r"^`num_ipus` .* a positive number of IPUs"),
        ("select_ipus", [[-1]], ValueError, "^`indices` .* ids start at 0"),
        (
            *("select_ipus", [[1, 1]], ValueError),
            r"^All device indices in `indices` must be unique\.\n.*=\[1, 1\]$",
        ),
        ("set_ipu_model_options", [True, -1], ValueError, "^`tiles_per_ipu` sets"),
        ("set_ipu_model_options", [True, 1, "ipu3"], ValueError, "^`ipu_model_version` sets"),
        (
            *("set_ipu_connection_type", [DeviceConnectionType.NEVER], ValueError),
            "^`ipu_version` must be set when `connection_type` is set to "
            "`DeviceConnectionType.NEVER`",
        ),
        ("set_ipu_connection_type", ["ALWAYS"], TypeError, "^`connection_type` sets"),
        ("set_io_tile_options", [1, 1], TypeError, "^`place_ops_on_io_tiles` sets"),
        (
            *("set_experimental_multi_replica_distribution_options", [2, 2], ValueError),
            "^`process_index` must be at least 0 .* process_count=2, process_index=2$",
        ),
        ("set_convolution_options", [[1]], TypeError, "^`convolution_options` must be a dictio"),
        ("set_matmul_options", [{"partialsType": "x"}], ValueError, "^`matmul_options` sets"),
        ("set_compilation_options", [{"autoReport.all": 1}], ValueError, "^`compilation_options`"),
        ("set_report_options", [None, "x"], TypeError, "^`execution_options` must be a dict"),
        ("set_transfer_options", ["x"], TypeError, "^`use_verified_transfers` must be True or"),
        (
            *("set_verification_options", [{}], TypeError),
            "^`verification_options` must be of type VerificationOptions. Received: ",
        ),
    ],
)
def test_what_they_refuse(name, arguments, error, message):
    opts = IPUConfig()
    with pytest.raises(error, match=message):
        getattr(utils, name)(opts, *arguments)
    assert changed(opts) == {}


def test_io_tiles_that_are_placed_stay_so():
    opts = utils.set_io_tile_options(IPUConfig(), 8, True)
    assert utils.set_io_tile_options(opts, 16).io_tiles.place_ops_on_io_tiles


def test_flags_are_added():
    opts = utils.set_convolution_options(IPUConfig(), {"a": "1", "b": "2"})
    utils.set_convolution_options(opts, {"b": "3"})
    assert utils.set_convolution_options(opts).convolutions.poplar_options == {"a": "1", "b": "3"}


@pytest.mark.parametrize(
    ("name", "argument", "reason"),
    [
        ("set_transfer_options", True, r"`use_verified_transfers` \(transfers are not emulated"),
        (
            *("set_verification_options", VerificationOptions(inputs=KeyId(1))),
            r"`verification_options` \(transfers are not",
        ),
        ("set_report_options", {"a": "b"}, r"`graph_options` \(reports have one form"),
    ],
)
def test_what_has_no_effect_says_so_where_it_is_asked_for(name, argument, reason):
    with pytest.warns(UserWarning, match=rf"^These have no effect here: {reason}") as told:
        getattr(utils, name)(IPUConfig(), argument)
    assert [one.filename for one in told] == [__file__]


def test_deprecation_is_logged(caplog, monkeypatch):
    from tensorflow.python.util import deprecation

    monkeypatch.setattr(deprecation, "_PRINTED_WARNING", {})
    # Other tests may have left TensorFlow's logger silent.
    monkeypatch.setattr(logging.getLogger("tensorflow"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("tensorflow"), "disabled", False)
    caplog.set_level("WARNING", logger="tensorflow")
    for _ in range(2):
        utils.set_recomputation_options(IPUConfig())
    assert [one.getMessage().count("is deprecated") for one in caplog.records] == [1]
    assert "Create an `IPUConfig` and set its attributes" in caplog.text
