import sys
from types import ModuleType, SimpleNamespace

import pytest

from ipu_keras.internals.forms import (
    Class,
    Compiled,
    Form,
    FormError,
    Function,
    InstanceOf,
    Module,
    PrivateName,
)


def resize(image, size, method="linear", *, antialias=False):
    return image, size, method, antialias


class Batch:
    def __init__(self, size):
        self._size = size

    def rows(self, start, stop):
        return range(self._size)[start:stop]


class ShuffledBatch(Batch):
    pass


def a_module(**content) -> ModuleType:
    module = ModuleType("library")
    vars(module).update(content)
    return module


@pytest.mark.parametrize(
    ("form", "found"),
    [
        (Function("image", "size"), resize),
        (Function("image", keywords=("size", "antialias")), resize),
        (Function("start", "stop"), Batch(3).rows),
        (Compiled(), len),
        (Class(), Batch),
        (Class("rows", assigned=("_size",)), ShuffledBatch),
        (Class(members={"rows": Function("self", "start", "stop")}), Batch),
        (Module(resize=Function("image", "size"), Batch=Class()), a_module(**globals())),
        (InstanceOf(dict), {}),
    ],
    ids=lambda one: one.__name__ if hasattr(one, "__name__") else str(one),
)
def test_what_is_relied_on(form: Form, found):
    assert form.mismatch(found) is None


@pytest.mark.parametrize(
    ("form", "found", "instead"),
    [
        # Other parameters first, one missing, and one more that is required.
        (
            Function("size", "image"),
            resize,
            "a function of (image, size, method='linear', *, antialias=False)",
        ),
        (
            Function("image", "size", keywords=("smooth",)),
            resize,
            "a function of (image, size, method='linear', *, antialias=False)",
        ),
        (
            Function("image"),
            resize,
            "a function of (image, size, method='linear', *, antialias=False)",
        ),
        (Function(), 3, "a value of type int"),
        (Function(), max, "a function whose parameters cannot be known"),
        (Compiled(), {}, "a value of type dict"),
        (Class(), resize, "a function"),
        (
            Class("rows", "columns", assigned=("_size", "_start")),
            Batch,
            "a class without columns and that does not assign _start",
        ),
        (
            Class(members={"rows": Function("self", "start"), "columns": Function("self")}),
            Batch,
            "a class without columns and whose rows is a function of (self, start, stop)",
        ),
        (Module(resize=Function()), Batch, "a class"),
        (Module(resize=Function()), a_module(), "a module without resize"),
        (InstanceOf(dict), sys, "a module"),
    ],
)
def test_what_is_found_instead(form: Form, found, instead):
    assert form.mismatch(found) == instead


@pytest.fixture
def library(monkeypatch):
    """A library of which `library.images` has private names."""
    images = a_module(_resize=resize, _Batch=Batch)
    monkeypatch.setitem(sys.modules, "library", a_module(__version__="2.99.0", images=images))
    monkeypatch.setitem(sys.modules, "library.images", images)
    return SimpleNamespace(images=images)


def test_a_private_name_is_what_it_is_now(library):
    name = PrivateName("library.images", "_Batch.rows", Function("self", "start", "stop"))
    assert name.get() is Batch.rows
    library.images._Batch = type("_Batch", (), {"rows": lambda self, start, stop: None})
    assert name.get() is library.images._Batch.rows


def test_a_name_of_nothing(library):
    library.images._resize = None
    with pytest.raises(FormError, match=r"Received: a value of type NoneType\. Install"):
        PrivateName("library.images", "_resize", Function("image")).get()


def test_a_changed_name_says_what_has_changed(library):
    name = PrivateName("library.images", "_resize", Function("image", "size"))
    assert name.get() is resize
    library.images._resize = lambda image, *, scale: image
    with pytest.raises(FormError) as raised:
        name.get()
    assert str(raised.value) == (
        "ipu_keras relies on the private name `library.images._resize`, which has another form in "
        "library 2.99.0. Expected: a function that is called with (image, size). Received: a "
        "function of (image, *, scale). Install a version of library that this version of "
        "ipu_keras was made for."
    )


@pytest.mark.parametrize(
    ("module", "name", "received"),
    [
        ("library.images", "_crop", "nothing (module 'library' has no attribute '_crop')"),
        ("library.sounds", "_mix", "nothing (No module named 'library.sounds'"),
    ],
)
def test_a_name_that_is_gone(library, module, name, received):
    with pytest.raises(FormError, match=r"library 2\.99\.0") as raised:
        PrivateName(module, name, Function("image")).get()
    assert f"Received: {received}" in str(raised.value)
