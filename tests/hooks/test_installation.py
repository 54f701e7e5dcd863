import functools
import types

import pytest

from ipu_keras.hooks.installation import install, installed, uninstall


def plus(number):
    """A wrapper that adds a number."""
    return lambda original: lambda *args: original(*args) + number


def by_another_library(function, *, copies=True):
    """As another library would wrap a function, with `functools.wraps` or without."""

    def wrapper(*args):
        return 10 * function(*args)

    return functools.wraps(function)(wrapper) if copies else wrapper


@pytest.fixture
def module():
    def double(x):
        """Twice as much."""
        return 2 * x

    return types.SimpleNamespace(double=double)


def test_installing_twice_is_one_wrapper(module):
    install(module, "double", plus(1))
    once = module.double
    install(module, "double", plus(1))
    assert module.double is once
    assert module.double(5) == 11


def test_the_original_is_put_back(module):
    original = module.double
    install(module, "double", plus(1))
    uninstall(module, "double")
    assert module.double is original
    assert installed(module, "double") is None
    uninstall(module, "double")
    assert module.double is original
    install(module, "double", plus(2))
    assert module.double(5) == 12


def test_a_replacement_looks_like_what_it_replaces(module):
    original = module.double
    install(module, "double", plus(1))
    assert module.double.__name__ == "double"
    assert module.double.__doc__ == "Twice as much."
    assert module.double.__wrapped__ is original


def test_a_wrapper_of_another_library_is_not_taken_for_ours(module):
    module.double = theirs = by_another_library(module.double)
    install(module, "double", plus(1))
    assert module.double(5) == 101
    uninstall(module, "double")
    assert module.double is theirs


def test_ours_is_found_below_a_wrapper_of_another_library(module):
    install(module, "double", plus(1))
    module.double = theirs = by_another_library(module.double)
    install(module, "double", plus(1))
    assert module.double is theirs
    assert module.double(5) == 110


@pytest.mark.parametrize("copies", [True, False])
def test_a_later_wrapper_of_another_library_stays(module, copies):
    install(module, "double", plus(1))
    module.double = theirs = by_another_library(module.double, copies=copies)
    uninstall(module, "double")
    assert module.double is theirs
    assert module.double(5) == 110


def test_an_object_with_several_owners_stays_one(module):
    public = types.SimpleNamespace(double=module.double)
    original = module.double
    install(module, "double", plus(1), also=[public])
    assert public.double is module.double is not original
    assert installed(public, "double") is installed(module, "double") is not None
    uninstall(public, "double")
    assert public.double is module.double is original


class Base:
    def __new__(cls, *args):
        return super().__new__(cls)

    def triple(self, x):
        return 3 * x


class Derived(Base):
    pass


def test_making_of_instances_can_be_wrapped():
    original, made = vars(Base)["__new__"], []

    def wrapper(make):
        def __new__(cls, *args):
            made.append((cls, args))
            return make(cls, *args)

        return __new__

    install(Base, "__new__", wrapper)
    try:
        assert type(Derived(1)) is Derived
        assert isinstance(vars(Base)["__new__"], staticmethod)
    finally:
        uninstall(Base, "__new__")
    assert made == [(Derived, (1,))]
    assert vars(Base)["__new__"] is original


def test_an_inherited_method_is_wrapped_where_it_was_asked_for():
    install(Derived, "triple", plus(1))
    try:
        assert (Base().triple(5), Derived().triple(5)) == (15, 16)
    finally:
        uninstall(Derived, "triple")
    assert "triple" not in vars(Derived)
    assert Derived().triple(5) == 15


def test_what_is_installed_in_a_base_is_not_installed_in_a_subclass():
    install(Base, "triple", plus(1))
    try:
        assert installed(Derived, "triple") is None
        install(Derived, "triple", plus(2))
        assert Derived().triple(5) == 18
        uninstall(Derived, "triple")
        assert Derived().triple(5) == 16
    finally:
        uninstall(Base, "triple")
    assert Derived().triple(5) == 15


def test_a_value_can_be_replaced():
    module = types.SimpleNamespace(cache={})

    class Cache(dict):
        pass

    original = module.cache
    for _ in range(2):
        install(module, "cache", lambda cache: Cache(cache, more=1))
    assert module.cache == {"more": 1}
    module.cache = {}  # what TensorFlow does where it starts anew
    assert installed(module, "cache") is None
    install(module, "cache", Cache)
    uninstall(module, "cache")
    assert module.cache == original == {}
