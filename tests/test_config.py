import copy
import doctest
import inspect
import math
import pathlib
import pickle
import typing
import warnings

import pytest
import tensorflow as tf
from config_options import (
    CATEGORY_NAMES,
    OPTION_NAMES,
    OTHER,
    markdown_table,
    other_value,
    read,
    write,
)
from hypothesis import given
from hypothesis import strategies as st
from said import said

from ipu_keras import config as config_module
from ipu_keras.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    IPUConfig,
    KeyId,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
    VerificationOptions,
)
from ipu_keras.machine.system import SYSTEM
from ipu_keras.settings import config_tree, ipu_options
from ipu_keras.settings.config_tree import (
    AttributeMetadata,
    ConfigTree,
    category,
    closest_option,
    option_table,
)
from ipu_keras.settings.ipu_options import OPTIONS


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch):
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    previous = SYSTEM.config
    SYSTEM.reset()
    yield
    SYSTEM.reset()
    if previous is not None:
        SYSTEM.configure(previous)


@pytest.mark.parametrize("module", [config_module, config_tree, ipu_options])
def test_examples(module):
    assert doctest.testmod(module).failed == 0


def test_the_table_has_all_documented_names_once():
    # Four options, and two categories, are those of later releases.
    assert (len(OPTION_NAMES), len(CATEGORY_NAMES)) == (50 + 4, 13 + 2)
    assert len(set(OPTION_NAMES + CATEGORY_NAMES)) == 69
    for name in OPTION_NAMES + CATEGORY_NAMES:
        path = name.rpartition(".")[0]
        assert not path or path in CATEGORY_NAMES


def test_the_reference_is_up_to_date():
    reference = pathlib.Path(__file__).parents[1] / "docs" / "ipu_config.md"
    _, _, table = reference.read_text(encoding="utf-8").partition("## Options\n\n")
    assert table == markdown_table(OPTIONS), (
        "Replace the table below '## Options' in docs/ipu_config.md by what this prints: "
        "python tests/config_options.py"
    )


def refusal(call):
    """The error that a call is refused with, of the documented types; `None` if it is not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except (TypeError, ValueError, tf.errors.FailedPreconditionError) as error:
        return error
    return None


class TestAttributes:
    @pytest.mark.parametrize("name", OPTION_NAMES)
    def test_holds_values_of_its_type_only(self, name):
        config = IPUConfig()
        option = config.get_attribute_metadata(name)
        assert read(config, name) == option.default
        assert type(read(config, name)) is type(option.default)
        value = other_value(option)
        assert value != option.default
        write(config, name, value)
        assert read(config, name) is value
        wrong = OTHER[option.type][1]
        with pytest.raises(TypeError) as error:
            write(config, name, wrong)
        assert said(error.value).startswith(
            f"Trying to set {name} to {wrong}, but it must be of type {option.type}\n"
            f"Received: {wrong!r} of type {type(wrong).__name__}."
        )
        assert read(config, name) is value
        assert read(IPUConfig(), name) == option.default

    @pytest.mark.parametrize("name", CATEGORY_NAMES)
    def test_categories_cannot_be_assigned(self, name):
        config = IPUConfig()
        before = read(config, name)
        with pytest.raises(Exception) as error:
            write(config, name, before)
        assert str(error.value) == f"{name} is a category and cannot be assigned to."
        assert read(config, name) is before

    def test_a_held_category_stays_connected(self):
        config = IPUConfig()
        io_tiles = config.io_tiles
        io_tiles.num_io_tiles = 32
        config.io_tiles.place_ops_on_io_tiles = True
        assert config.io_tiles.num_io_tiles == 32
        assert io_tiles.place_ops_on_io_tiles is True

    def test_mutable_defaults_are_not_shared(self):
        first, second = IPUConfig(), IPUConfig()
        first.matmuls.poplar_options["availableMemoryProportion"] = "0.1"
        first.auto_select_ipus.append(2)
        assert second.matmuls.poplar_options == second.convolutions.poplar_options == {}
        assert second.auto_select_ipus == second.select_ipus == []

    @pytest.mark.parametrize("value", [[1, True], (1, 2.0), [[1]], {1}, True, None])
    def test_selectors_hold_ints_only(self, value):
        config = IPUConfig()
        with pytest.raises(TypeError, match=r"must be of type typing\.Union\[int, typing\.List\["):
            config.auto_select_ipus = value
        with pytest.raises(TypeError, match=r"must be of type typing\.Union\[int, typing\.List\["):
            config.select_ipus = value

    def test_esr_takes_both_spellings(self):
        behaviour = IPUConfig().floating_point_behaviour
        for value in (True, *StochasticRoundingBehaviour):
            behaviour.esr = value
            assert behaviour.esr is value
        with pytest.raises(TypeError, match=r"esr to 1, but it must be of type bool\n"):
            behaviour.esr = 1
        with pytest.raises(TypeError, match=r"inv to .*ON, but it must be of type bool\n"):
            behaviour.inv = StochasticRoundingBehaviour.ON

    @pytest.mark.parametrize(
        ("name", "value", "expected"),
        [
            ("auto_select_ipus", 0, "a positive number of IPUs"),
            ("auto_select_ipus", [1, -1], "a positive number of IPUs"),
            ("select_ipus", -1, "the id of a device configuration"),
            ("select_ipus", (0, -2), "the id of a device configuration"),
            ("device_connection.version", "ipu3", "one of '', 'ipu1', 'ipu2'"),
            ("ipu_model.version", "", "one of 'ipu1', 'ipu2'"),
            ("ipu_model.tiles_per_ipu", -1, "0 or more"),
            ("io_tiles.num_io_tiles", -32, "0 or more"),
            ("io_tiles.available_memory_proportion", 1.01, "a proportion from 0.0 to 1.0"),
            ("io_tiles.available_memory_proportion", float("nan"), "a proportion from 0.0 to"),
            ("norms.experimental.distributed_batch_norm_replica_group_size", 0, "1 or more"),
            ("experimental.multi_replica_distribution.process_count", -1, "0 or more"),
            ("pooling.poplar_options", {1: "a"}, "a dictionary from flag names to strings"),
            ("gcl_poplar_options", {"a": None}, "a dictionary from flag names to strings"),
            ("matmuls.poplar_options", {"availableMemoryProportion": "1.5"}, "a dictionary from"),
            ("convolutions.poplar_options", {"availableMemoryProportion": "all"}, "a dictionary"),
            ("serialization_output_folder", __file__, "the path of a directory"),
            ("serialization_output_folder", "a\0b", "the path of a directory"),
        ],
    )
    def test_unacceptable_values_are_refused(self, name, value, expected):
        config = IPUConfig()
        with pytest.raises(ValueError) as error:
            write(config, name, value)
        message = str(error.value)
        assert message.startswith(f"`{name}` must be {expected}")
        assert message.endswith(f"Received: {name}={value!r}.")
        assert read(config, name) == config.get_attribute_metadata(name).default

    @given(st.floats(0, 1))
    def test_every_proportion_is_accepted(self, proportion):
        config = IPUConfig()
        config.io_tiles.available_memory_proportion = proportion
        config.matmuls.poplar_options = {"availableMemoryProportion": str(proportion)}
        config.convolutions.poplar_options = {"availableMemoryProportion": proportion}
        assert config.frozen_copy().io_tiles.available_memory_proportion == proportion

    def test_a_folder_may_exist_or_not(self, tmp_path):
        config = IPUConfig()
        for folder in (str(tmp_path), str(tmp_path / "new"), ""):
            config.serialization_output_folder = folder
            assert config.serialization_output_folder == folder

    @given(
        st.lists(st.integers(1, 64)), st.sampled_from([list, tuple]), st.sampled_from([0, [0], ()])
    )
    def test_selectors_exclude_each_other_when_the_system_is_configured(self, counts, kind, ids):
        config = IPUConfig()
        config.auto_select_ipus = kind(counts)
        config.select_ipus = ids
        if not counts or ids == ():
            config.frozen_copy()
            return
        with pytest.raises(Exception) as error:
            config.configure_ipu_system()
        assert said(error.value).startswith(
            "Only one of `auto_select_ipus` and `select_ipus` can be set.\nReceived: "
            f"auto_select_ipus={kind(counts)!r}, select_ipus={ids!r}."
        )
        assert SYSTEM.devices == ()
        config.auto_select_ipus = []
        config.frozen_copy()

    @given(
        st.sampled_from(OPTION_NAMES),
        st.sampled_from(
            [
                *(0, -1, 1, 1.0, math.nan, math.inf, 10**30, -(10**30), None, True, object(), int),
                *("2", "", "\0", b"", [], [0], [10**30], [None], ["2"], (), {}, {1: 2}),
                {"a": math.nan},
            ]
        ),
    )
    def test_any_value_is_taken_or_refused_by_name(self, name, value):
        """What is taken can be handed to a system, or is refused there, by name too."""
        config = IPUConfig()
        before = read(config, name)
        error = refusal(lambda: write(config, name, value))
        if error is not None:
            assert name in str(error)
            assert repr(value) in said(error)
            assert read(config, name) is before
            return
        option = config.get_attribute_metadata(name)
        assert type(value) is type(option.default) or option.type.startswith("typing.Union")
        error = refusal(config.configure_ipu_system)
        if error is None:
            SYSTEM.reset()
        else:
            assert name.rpartition(".")[2] in said(error)
            assert SYSTEM.devices == ()


def test_a_later_name_is_the_same_option():
    config = IPUConfig()
    config.optimizations.math.fast = True
    assert config.optimizations.enable_fast_math is True
    assert repr(config) == "IPUConfig(optimizations.enable_fast_math=True)"
    config.optimizations.enable_fast_math = False
    assert config.optimizations.math.fast is False


class TestUnknownAttributes:
    @pytest.mark.parametrize(
        ("path", "name", "meant"),
        [
            ("", "auto_select_ipu", "auto_select_ipus"),
            ("", "esr", "floating_point_behaviour.esr"),
            ("", "num_io_tile", "io_tiles.num_io_tiles"),
            ("", "floating_point", "floating_point_behaviour"),
            ("io_tiles", "num_tiles", "io_tiles.num_io_tiles"),
            ("matmuls", "enable_fast_maths", "optimizations.enable_fast_math"),
            ("norms.experimental", "use_stable_statistic", "norms.use_stable_statistics"),
            ("optimizations", "algorithm", "scheduling.algorithm"),
            ("pooling", "options", "pooling.poplar_options"),
        ],
    )
    def test_reading_and_writing_suggest_the_closest(self, path, name, meant):
        config = IPUConfig()
        owner = read(config, path) if path else config
        message = (
            f"^'{name}' is not a valid attribute of this config. Did you mean '{meant}'\\?\n"
            f"Received: '{(path + '.').removeprefix('.')}{name}'\\."
        )
        with pytest.raises(ValueError, match=message):
            getattr(owner, name)
        with pytest.raises(ValueError, match=message):
            setattr(owner, name, 1)
        with pytest.raises(ValueError, match=f"^Could not get attribute metadata for '{name}': '"):
            owner.get_attribute_metadata(name)

    @given(st.sampled_from(OPTION_NAMES), st.data())
    def test_an_option_in_the_wrong_place_is_found_in_spite_of_a_slip(self, meant, data):
        leaf = meant.rpartition(".")[2]
        slip = data.draw(st.integers(0, len(leaf) - 1))
        typed = leaf[:slip] + leaf[slip + 1 :] if len(leaf) > 7 else leaf
        path = data.draw(st.sampled_from(["", "nowhere."]))
        found = closest_option(path + typed, OPTION_NAMES)
        # poplar_options and version exist in several categories.
        assert found.rpartition(".")[2] == leaf

    @given(st.sampled_from(OPTION_NAMES))
    def test_a_name_is_closest_to_itself(self, name):
        assert closest_option(name, IPUConfig.TABLE) == name

    def test_protocols_get_their_attribute_error(self):
        config = IPUConfig()
        assert not hasattr(config, "__array__")
        assert not hasattr(config.io_tiles, "_repr_html_")
        with pytest.raises(AttributeError, match="'IPUConfig' object has no attribute '__len__'"):
            config.__len__  # noqa: B018
        with pytest.raises(ValueError, match="'__array__' is not a valid attribute"):
            config.__array__ = 1
        assert inspect.unwrap(config) is config
        assert {"auto_select_ipus", "io_tiles", "configure_ipu_system"} <= set(dir(config))
        assert "num_io_tiles" in dir(config.io_tiles)
        for name, value in inspect.getmembers(config):
            assert name.startswith("_") or value is not None

    def test_methods_cannot_be_overwritten(self):
        with pytest.raises(ValueError, match="'configure_ipu_system' is not a valid attribute"):
            IPUConfig().configure_ipu_system = None


class TestCopies:
    @pytest.mark.parametrize(
        "duplicate", [copy.deepcopy, lambda config: pickle.loads(pickle.dumps(config))]
    )
    def test_a_deep_copy_is_equal_and_independent(self, duplicate):
        config = IPUConfig()
        config.selection_order = SelectionOrder.SNAKE
        config.matmuls.poplar_options = {"partialsType": "half"}
        config.norms.experimental.distributed_batch_norm_replica_group_size = 2
        twin = duplicate(config)
        assert repr(twin) == repr(config)
        twin.matmuls.poplar_options["partialsType"] = "float"
        twin.norms.experimental.distributed_batch_norm_replica_group_size = 4
        assert config.matmuls.poplar_options == {"partialsType": "half"}
        assert config.norms.experimental.distributed_batch_norm_replica_group_size == 2

    def test_a_shallow_copy_has_its_own_attributes(self):
        config = IPUConfig()
        twin = copy.copy(config)
        twin.io_tiles.num_io_tiles = 32
        assert config.io_tiles.num_io_tiles == 0
        assert twin.matmuls.poplar_options is config.matmuls.poplar_options

    def test_a_copied_category_belongs_to_a_copy(self):
        config = IPUConfig()
        twin = copy.deepcopy(config.io_tiles)
        twin.num_io_tiles = 32
        assert config.io_tiles.num_io_tiles == 0
        assert repr(twin) == "IPUConfig.io_tiles(num_io_tiles=32)"

    def test_a_frozen_copy_cannot_be_changed(self):
        config = IPUConfig()
        config.convolutions.poplar_options = {"a": "1"}
        frozen = config.frozen_copy()
        with pytest.raises(TypeError, match="Trying to set auto_select_ipus to 1, but this is the"):
            frozen.auto_select_ipus = 1
        with pytest.raises(TypeError, match=r"Trying to set io_tiles\.num_io_tiles to 1, but this"):
            frozen.io_tiles.num_io_tiles = 1
        frozen.convolutions.poplar_options["a"] = "2"
        frozen.auto_select_ipus.append(1)
        assert frozen.convolutions.poplar_options == {"a": "1"}
        assert frozen.auto_select_ipus == []
        assert frozen.frozen_copy() is frozen
        thawed = copy.deepcopy(frozen)
        thawed.auto_select_ipus = 1
        assert thawed.convolutions.poplar_options == {"a": "1"}


class TestMetadata:
    def test_describes_an_option(self):
        metadata = IPUConfig().get_attribute_metadata("scheduling.algorithm")
        assert isinstance(metadata, AttributeMetadata)
        assert metadata.name == "scheduling.algorithm"
        assert metadata.type == "SchedulingAlgorithm"
        assert metadata.default is SchedulingAlgorithm.CHOOSE_BEST
        assert (metadata.deprecated, metadata.deprecated_msg) == (False, None)
        assert metadata.documentation == metadata.__doc__
        assert metadata.documentation.startswith("How instructions are ordered")
        assert metadata.check_type(SchedulingAlgorithm.CLUSTERING) is True
        metadata.warn_if_deprecated()

    def test_names_are_relative_to_the_category_and_reported_in_full(self):
        config = IPUConfig()
        metadata = config.norms.get_attribute_metadata(
            "experimental.distributed_batch_norm_replica_group_size"
        )
        full = "norms.experimental.distributed_batch_norm_replica_group_size"
        assert metadata.name == full
        assert config.get_attribute_metadata(full) is metadata

    def test_a_category_has_neither_type_nor_default(self):
        metadata = IPUConfig().norms.get_attribute_metadata("experimental")
        assert metadata.name == "norms.experimental"
        assert (metadata.type, metadata.default, metadata.is_category) == (None, None, True)
        with pytest.raises(TypeError, match=r"'norms\.experimental' is a category: it has no type"):
            metadata.check_type(1)

    def test_the_default_is_a_fresh_copy(self):
        metadata = IPUConfig().get_attribute_metadata("auto_select_ipus")
        metadata.default.append(1)
        assert metadata.default == IPUConfig().auto_select_ipus == []

    @pytest.mark.parametrize("attr", ["", ".", "io_tiles.", "io_tiles.num_io_tiles.x", "x.y"])
    def test_a_bad_path_is_an_error(self, attr):
        message = f"^Could not get attribute metadata for '{attr}': '{attr}' is not a valid attr"
        with pytest.raises(ValueError, match=message):
            IPUConfig().get_attribute_metadata(attr)

    def test_a_path_is_a_string(self):
        with pytest.raises(TypeError, match=r"`attr` must be the name .* Received: attr=None"):
            IPUConfig().get_attribute_metadata(None)

    @pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
    def test_every_entry_is_documented_and_its_default_acceptable(self, option):
        assert option.documentation.endswith(".")
        if not option.is_category:
            assert option.check_value(option.default)


class TestDeprecation:
    class OldConfig(
        ConfigTree,
        options=option_table(
            {
                "old": category("Options of the past.", deprecated_msg="Use `new`."),
                "old.size": AttributeMetadata(1, "A size.", deprecated_msg="Use `new.size`."),
                "new": category("Options of today."),
                "new.size": AttributeMetadata(1, "A size."),
            }
        ),
    ):
        __slots__ = ()

    def test_setting_warns_where_it_is_set(self):
        config = self.OldConfig()
        message = r"^The option 'old\.size' is deprecated: Use `new\.size`\.$"
        with pytest.warns(FutureWarning, match=message) as warned:
            config.old.size = 2
        assert [warning.filename for warning in warned] == [__file__]
        assert config.old.size == 2
        config.new.size = 2

    def test_metadata_says_so(self):
        metadata = self.OldConfig().get_attribute_metadata("old")
        assert (metadata.deprecated, metadata.deprecated_msg) == (True, "Use `new`.")
        with pytest.warns(FutureWarning, match="^The category 'old' is deprecated: Use `new`") as w:
            metadata.warn_if_deprecated()
        assert [warning.filename for warning in w] == [__file__]

    def test_the_reference_says_so(self):
        table = markdown_table(self.OldConfig.TABLE.values())
        assert table.splitlines()[2:4] == [
            "| **`old`** | category | | Options of the past. Deprecated: Use `new`. | |",
            "| `old.size` | `int` | `1` | A size. Deprecated: Use `new.size`. "
            "| No effect: stored and checked. |",
        ]


def test_enumerations_have_the_documented_members():
    members = {
        DeviceConnectionType: ["ALWAYS", "ON_DEMAND", "PRE_COMPILE", "NEVER"],
        ExecutionProfileType: ["NO_PROFILE", "DEVICE_PROFILE", "IPU_PROFILE", "TILE_PROFILE"],
        MergeRemoteBuffersBehaviour: ["NO_MERGING", "MERGE", "IF_BENEFICIAL"],
        SchedulingAlgorithm: [
            *("CHOOSE_BEST", "CLUSTERING", "POST_ORDER", "LOOK_AHEAD", "SHORTEST_PATH")
        ],
        SelectionOrder: ["AUTO", "ZIGZAG", "SNAKE", "HOOF"],
        StochasticRoundingBehaviour: ["OFF", "ON", "REPLICA_IDENTICAL_ONLY"],
    }
    for enumeration, names in members.items():
        assert [member.name for member in enumeration] == names
        assert [member.value for member in enumeration] == list(range(len(names)))


def test_verification_options_keep_a_key_for_each_feed():
    options = VerificationOptions()
    options.input_parameters = KeyId(1)
    options.infeeds["training_feed"] = KeyId(2)
    options.outfeeds["metrics"].start_id = 7
    assert options.infeeds == {"training_feed": KeyId(key=2, start_id=-1)}
    assert options.outfeeds == {"metrics": KeyId(key=0, start_id=7)}
    assert options.inputs == options.outputs == options.output_parameters == KeyId(0, -1)
    assert options.checkpoint_in == options.checkpoint_out == KeyId(0, 0)
    assert VerificationOptions().infeeds == {}


def test_all_types_in_the_reference_are_covered_here():
    assert {option.type for option in OPTIONS if not option.is_category} == set(OTHER)
    assert typing.get_args(ipu_options._IntOrInts)[0] is int
