import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options.enumerations import DotCheck, TensorStorage
from ipu_keras.popart.options.kinds import (
    BOOL,
    NUMBER,
    TEXT,
    choice,
    dict_of,
    integer,
    kind_of,
    list_of,
    one_of,
    set_of,
)
from ipu_keras.popart.options.settings import TensorLocation

ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.lists(st.integers()),
    st.dictionaries(st.text(), st.text()),
    st.sampled_from([*TensorStorage, TensorLocation(), np.float32(1), np.int64(1), np.bool_(True)]),
)


@pytest.mark.parametrize(
    ("kind", "given_value", "kept"),
    [
        (BOOL, np.bool_(True), True),
        (BOOL, 1, True),
        (BOOL, 0, False),
        (integer(0), np.uint8(3), 3),
        (integer(0), 2**63 - 1, 2**63 - 1),
        (NUMBER, 1, 1.0),
        (NUMBER, np.float32(0.5), 0.5),
        (TEXT, "", ""),
        (choice("", "half"), "half", "half"),
        (one_of(TensorStorage), TensorStorage.OffChip, TensorStorage.OffChip),
        (list_of(TEXT), ("a", "b"), ["a", "b"]),
        (set_of(one_of(DotCheck)), [DotCheck.Final, DotCheck.Final], {DotCheck.Final}),
        (dict_of(TEXT), {"a": "b"}, {"a": "b"}),
    ],
)
def test_what_is_taken(kind, given_value, kept):
    taken = kind.taken("option", given_value)
    assert taken == kept
    if isinstance(kept, bool | int | float | str):
        assert type(taken) is type(kept)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (BOOL, "true", "`option` must be a bool. Received: option='true' of type str"),
        (BOOL, 2, "`option` must be a bool. Received: option=2 of type int"),
        (BOOL, None, "`option` must be a bool. Received: option=None of type NoneType"),
        (integer(0), 1.0, "`option` must be an int. Received: option=1.0 of type float"),
        (integer(0), True, "`option` must be an int. Received: option=True of type bool"),
        (NUMBER, "1", "`option` must be a float. Received: option='1' of type str"),
        (TEXT, b"a", "`option` must be a str. Received: option=b'a' of type bytes"),
        (one_of(DotCheck), 0, "`option` must be a DotCheck. Received: option=0 of type int"),
        (list_of(TEXT), "ab", "`option` must be a list, each item a str. Received: option='ab' of"),
        (list_of(TEXT), ["a", 1], "`option` must be a list, each item a str. Received: option=["),
        (set_of(TEXT), {"a": 1}, "`option` must be a set, each item a str. Received: option={"),
        (dict_of(TEXT), {"a": 1}, "`option` must be a dict from str, each value a str. Received"),
        (dict_of(TEXT), {1: "a"}, "`option` must be a dict from str, each value a str. Received"),
        (dict_of(TEXT), [("a", "b")], "`option` must be a dict from str, each value a str. Rec"),
    ],
)
def test_wrong_types(kind, value, message):
    with pytest.raises(TypeError) as error:
        kind.taken("option", value)
    assert str(error.value).startswith(message)
    assert error.value.__cause__ is None


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (integer(1), 0, "`option` must be at least 1, and less than 2**63. Received: option=0"),
        (integer(0), 2**63, "`option` must be at least 0, and less than 2**63. Received: option=9"),
        (choice("", "half"), "float", "`option` must be one of '', 'half'. Received: option='flo"),
    ],
)
def test_values_out_of_range(kind, value, message):
    with pytest.raises(popart_exception) as error:
        kind.taken("option", value)
    assert str(error.value).startswith(message)


@given(
    st.sampled_from(
        [BOOL, NUMBER, TEXT, integer(0), one_of(TensorLocation), list_of(TEXT), dict_of(TEXT)]
    ),
    ANYTHING,
)
def test_whatever_is_given_is_taken_or_refused_by_name(kind, value):
    refusal = ""
    try:
        kept = kind.taken("option", value)
    except (TypeError, popart_exception) as error:
        refusal = str(error)
    if refusal:
        assert refusal.startswith(
            f"`option` must be {kind.expected}. Received: option={value!r} "
        ) or (refusal.endswith(f". Received: option={value!r}"))
    else:
        again = kind.taken("option", kept)
        assert again == kept or (kept != kept and again != again)


class TestContainers:
    def test_items_of_dicts_are_checked(self):
        options = dict_of(TEXT).taken("option", {})
        options["a"] = "b"
        options.update({"c": "d"})
        options |= {"e": "f"}
        assert options == {"a": "b", "c": "d", "e": "f"}
        with pytest.raises(TypeError, match=r"^`x` must be a str\. Received: x=1 of type int"):
            options["x"] = 1
        with pytest.raises(TypeError, match=r"^`x` must be a str"):
            options.setdefault("x", 1)
        with pytest.raises(TypeError, match=r"^Keys must be str\. Received: 1 of type int"):
            options[1] = "a"
        assert len(options) == 3
        del options["a"]
        assert dict(options) == {"c": "d", "e": "f"}

    def test_items_of_lists_are_checked(self):
        numbers = list_of(integer(0)).taken("option", [1, 2])
        numbers.append(3)
        numbers += [4]
        numbers[0] = 5
        numbers[1:2] = [6, 7]
        assert numbers == [5, 6, 7, 3, 4]
        assert repr(numbers) == "[5, 6, 7, 3, 4]"
        for change in (
            lambda: numbers.append("a"),
            lambda: numbers.__setitem__(0, "a"),
            lambda: numbers.__setitem__(slice(1), ["a"]),
        ):
            with pytest.raises(TypeError, match=r"`item` must be an int\. Received: item='a'"):
                change()
        assert numbers == [5, 6, 7, 3, 4]
        del numbers[0]
        assert numbers != [5, 6, 7, 3, 4]
        assert numbers == list_of(integer(0)).taken("option", [6, 7, 3, 4])

    def test_items_of_sets_are_checked(self):
        checks = set_of(one_of(DotCheck)).taken("option", [DotCheck.Final])
        checks.add(DotCheck.Bwd0)
        checks |= {DotCheck.Fwd0}
        checks.discard(DotCheck.Final)
        assert checks == {DotCheck.Bwd0, DotCheck.Fwd0}
        assert checks | {DotCheck.Fwd1} == {DotCheck.Bwd0, DotCheck.Fwd0, DotCheck.Fwd1}
        with pytest.raises(TypeError, match=r"`item` must be a DotCheck\. Received: item='Fwd0'"):
            checks.add("Fwd0")

    @given(st.lists(st.text()), st.data())
    def test_what_was_given_and_what_is_kept_are_apart(self, values, data):
        kept = list_of(TEXT).taken("option", values)
        again = list_of(TEXT).taken("option", kept)
        values.append("more")
        again.append("other")
        assert list(kept) == values[:-1]


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        (False, "a bool"),
        (0, "an int"),
        (0.5, "a float"),
        ("", "a str"),
        (DotCheck.Final, "a DotCheck"),
        (TensorLocation(), "a TensorLocation"),
    ],
)
def test_kinds_that_follow_from_defaults(default, expected):
    assert kind_of(default).expected == expected


def test_integers_are_from_0_on():
    with pytest.raises(popart_exception, match=r"^`option` must be at least 0, and less than 2"):
        kind_of(3).taken("option", -1)
