import dataclasses
import doctest
import math
import pathlib
import re

import pytest
from config_options import table_of_flags
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.settings import flags
from ipu_keras.settings.flags import PoplarFlags, current_flags, help_text, idle_flags, parse_flags

FIELDS = dataclasses.fields(PoplarFlags)

# What flags take, apart from any text or any truth value.
LEAST = {
    "ipu_model_tiles": 0,
    "log_cycle_count": -1,
    "max_compilation_threads": -1,
    "max_infeed_threads": -1,
    "while_loop_brute_force_max_trip_count": 0,
    "on_demand_device_poll_time": 100,
    "on_demand_device_timeout": 0,
}
CHOICES = {"show_progress_bar": ("auto", "true", "false")}
ITEMS = {
    "synthetic_data_categories": ("infeed", "outfeed", "seed", "hostembedding", "parameters"),
}


def test_examples():
    assert doctest.testmod(flags).failed == 0


def test_nothing_set_gives_the_defaults():
    defaults = PoplarFlags()
    assert parse_flags("") == parse_flags("  \n") == defaults
    assert defaults.use_ipu_model is False
    assert defaults.max_infeed_threads == -1
    assert defaults.while_loop_brute_force_max_trip_count == 128
    assert defaults.on_demand_device_timeout == 3_600_000
    assert defaults.show_progress_bar == "auto"


def test_documented_flags_are_known():
    # The list of the upstream facts, 2.2's save_* flags and on-demand options included; the last
    # three are of 2.6.
    assert {field.name for field in FIELDS} == {
        *("use_ipu_model", "ipu_model_tiles", "use_synthetic_data", "synthetic_data_initializer"),
        *("synthetic_data_categories", "executable_cache_path", "log_cycle_count"),
        *("show_progress_bar", "max_compilation_threads", "max_infeed_threads", "null_data_feed"),
        *("dump_schedule_as_dot", "tensor_map_file_path", "fallback_scheduler", "allow_nans"),
        *("while_loop_brute_force_max_trip_count", "on_demand_device_poll_time"),
        *("on_demand_device_timeout", "help", "save_vertex_graph", "save_interval_report"),
        *("sync_replica_start", "enable_hlo_verifier", "disable_poplar_version_check"),
    }


def test_values_are_parsed_by_type():
    parsed = parse_flags(
        "--use_ipu_model --allow_nans=true --null_data_feed=false --ipu_model_tiles=64\n"
        '--executable_cache_path="/tmp/my cache" --synthetic_data_initializer=random'
    )
    assert parsed == PoplarFlags(
        use_ipu_model=True,
        allow_nans=True,
        ipu_model_tiles=64,
        executable_cache_path="/tmp/my cache",
        synthetic_data_initializer="random",
    )


def test_the_last_of_repeated_flags_counts():
    assert parse_flags("--use_ipu_model --use_ipu_model=false") == PoplarFlags()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--use_ipu_modle", "Unknown flag '--use_ipu_modle' .* Did you mean '--use_ipu_model'"),
        ("-use_ipu_model", "Unknown flag '-use_ipu_model' .* Did you mean '--use_ipu_model'"),
        ("use_ipu_model=true", "Unknown flag 'use_ipu_model' .* Did you mean '--use_ipu_model'"),
        ("--qqqq", r"Unknown flag '--qqqq' in TF_POPLAR_FLAGS\. Received: '--qqqq'"),
        ("--use_ipu_model=1", "--use_ipu_model in .* must be 'true' or 'false'. Received: .*=1'"),
        ("--use_ipu_model=", "--use_ipu_model in .* must be 'true' or 'false'"),
        ("--ipu_model_tiles=4.5", "--ipu_model_tiles in .* must be a whole number of 0 or more"),
        ("--ipu_model_tiles=-1", "--ipu_model_tiles in .* must be a whole number of 0 or more"),
        ("--log_cycle_count", "--log_cycle_count in .* must be a whole number of -1 or more"),
        ("--on_demand_device_poll_time=99", "must be a whole number of 100 or more"),
        ("--show_progress_bar=yes", "--show_progress_bar in .* must be one of 'auto', 'true'"),
        ("--executable_cache_path", "--executable_cache_path in .* must be a text that is not em"),
        ("--save_vertex_graph=", "--save_vertex_graph in .* must be a text that is not empty"),
        (
            "--synthetic_data_categories=infeed,weights",
            "--synthetic_data_categories in .* must be some of infeed, outfeed, seed, hostemb.*, p",
        ),
        (
            "--synthetic_data_initializer=ones",
            "--synthetic_data_initializer in TF_POPLAR_FLAGS must be 'random' or a number. "
            "Received: '--synthetic_data_initializer=ones'",
        ),
        ("--synthetic_data_initializer", "must be 'random' or a number"),
        ("--synthetic_data_initializer=inf", "must be 'random' or a number"),
        ("--save_vertex_graph='a", r"TF_POPLAR_FLAGS cannot be split into flags: No closing quot"),
    ],
)
def test_bad_flags_are_refused_by_name(text, message):
    with pytest.raises(ValueError, match=message):
        parse_flags(text)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            field.name: st.booleans()
            if isinstance(field.default, bool)
            else st.integers(100, 10**9)
            if isinstance(field.default, int)
            else st.sampled_from(CHOICES[field.name])
            if field.name in CHOICES
            else st.lists(st.sampled_from(ITEMS[field.name]), min_size=1).map(",".join)
            if field.name in ITEMS
            else st.sampled_from(["random", "-1", "2.5", "1e-3"])
            if field.name == "synthetic_data_initializer"
            else st.from_regex("[a-z/.,=-]{1,9}", fullmatch=True)
            for field in FIELDS
        },
    )
)
def test_what_is_written_is_read(values):
    def written(value):
        return str(value).lower() if isinstance(value, bool) else str(value)

    text = " ".join(f"--{name}={written(value)}" for name, value in values.items())
    parsed = parse_flags(text)
    assert parsed == PoplarFlags(**values)
    assert all(type(getattr(parsed, field.name)) is type(field.default) for field in FIELDS)


def spelled(field, text):
    """Whether a text is a value of a flag, said in another way than the code does."""
    if isinstance(field.default, bool):
        return text in ("true", "false")
    if isinstance(field.default, int):
        # Python reads no integer of more digits.
        digits = text.removeprefix("-")
        is_integer = digits.isdigit() and len(digits) <= 4300
        return is_integer and int(text) >= LEAST[field.name]
    if field.name == "synthetic_data_initializer":
        is_number = re.fullmatch(r"-?\d+(\.\d+)?(e\d+)?", text) is not None
        return is_number and math.isfinite(float(text))
    allowed = {**CHOICES, **ITEMS}.get(field.name)
    return text != "" if allowed is None else text in allowed


@given(
    st.sampled_from(FIELDS),
    st.sampled_from(["0", "1", "-1", "-2", "nan", "1.5", "2", "None", "True", "", "1e3", "inf"])
    | st.integers(-(10**30), 10**30).map(str)
    | st.just("9" * 5000),
)
def test_every_flag_takes_its_own_kind_of_value_only(field, text):
    written = f"--{field.name}={text}"
    if spelled(field, text):
        assert type(getattr(parse_flags(written), field.name)) is type(field.default)
        return
    with pytest.raises(ValueError) as error:
        parse_flags(written)
    assert str(error.value).startswith(f"The flag --{field.name} in TF_POPLAR_FLAGS must be ")
    assert f"Received: {written!r}" in str(error.value)


@pytest.mark.parametrize(
    "name",
    [
        "executable_cache_path",
        "tensor_map_file_path",
        "save_vertex_graph",
        "save_interval_report",
    ],
)
def test_the_home_directory(monkeypatch, name):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert getattr(parse_flags(f"--{name}=~/here"), name) == "/home/somebody/here"
    assert getattr(parse_flags(f"--{name}=here/~"), name) == "here/~"


def test_idle_flags_are_those_set_without_effect():
    assert idle_flags(PoplarFlags()) == {}
    assert idle_flags(PoplarFlags(use_ipu_model=True, help=True)) == {}
    assert idle_flags(parse_flags("--max_infeed_threads=2 --use_ipu_model --allow_nans")) == {
        "max_infeed_threads": "Each infeed has one thread.",
        "allow_nans": "The host computes, for which NaN is a number like others.",
    }


def test_each_flag_has_an_effect_or_a_reason():
    for field in FIELDS:
        option = field.metadata["option"]
        effect, why_idle = option.effect, option.why_idle
        assert (effect is None) is not (why_idle is None), field.name
        assert (effect or why_idle).endswith("."), field.name


def test_flags_about_compiled_programs_have_an_effect():
    flags = parse_flags(
        "--log_cycle_count=0 --tensor_map_file_path=a --dump_schedule_as_dot "
        "--executable_cache_path=b"
    )
    assert idle_flags(flags) == {}


def test_the_environment_is_read_at_the_call(monkeypatch):
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    assert current_flags().use_ipu_model
    monkeypatch.delenv("TF_POPLAR_FLAGS")
    assert not current_flags().use_ipu_model


def test_help_documents_every_flag():
    text = help_text()
    assert "--ipu_model_tiles=int (default 0)\n      Tiles of each modelled IPU" in text
    for field in FIELDS:
        assert f"  --{field.name}={type(field.default).__name__} (default" in text
        assert field.metadata["option"].documentation in text


def test_the_reference_is_up_to_date():
    reference = pathlib.Path(__file__).parents[2] / "docs" / "ipu_config.md"
    _, _, section = reference.read_text(encoding="utf-8").partition("## Flags of TF_POPLAR_FLAGS\n")
    table, _, _ = section[section.index("| flag ") :].partition("\n## ")
    assert table.strip() == table_of_flags().strip(), (
        "Replace the table below '## Flags of TF_POPLAR_FLAGS' in docs/ipu_config.md by the last "
        "one that `python tests/config_options.py` prints"
    )


def test_flags_change_something_if_they_have_an_effect():
    for field in FIELDS:
        assert bool(field.metadata["changes"]) is (field.metadata["option"].effect is not None)
