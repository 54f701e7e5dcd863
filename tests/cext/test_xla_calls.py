"""What XLA and the functions that its programs call agree on. See also test_random_bits."""

import ctypes

import pytest
from headers import check_headers

from ipu_keras import _xla_calls


def test_the_installed_headers_have_the_same_layout():
    lines = [
        f'static_assert(offsetof({struct}, {field}) == {offset}, "{struct}.{field}");'
        for struct, fields in _xla_calls.abi_layout().items()
        for field, offset in fields.items()
    ]
    assert len(lines) == 26
    source = '#include <cstddef>\n#include "xla/ffi/api/c_api.h"\n' + "\n".join(lines)
    check_headers(source)


def test_a_refusal():
    """XLA takes the same name for the same function again, so it has to be an XLA of our own."""
    layout = _xla_calls.abi_layout()
    text = ctypes.create_string_buffer(b"no more names")

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    def refuse(_registration):
        return ctypes.addressof(text)

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def say(question):
        offsets = layout["XLA_FFI_Error_GetMessage_Args"]
        error = ctypes.c_void_p.from_address(question + offsets["error"])
        ctypes.c_void_p.from_address(question + offsets["message"]).value = error.value

    api = ctypes.create_string_buffer(256)
    functions = {"XLA_FFI_Handler_Register": refuse, "XLA_FFI_Error_GetMessage": say}
    for name, function in functions.items():
        place = ctypes.addressof(api) + layout["XLA_FFI_Api"][name]
        ctypes.c_void_p.from_address(place).value = ctypes.cast(function, ctypes.c_void_p).value
    get_api = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(api))
    address = ctypes.cast(get_api, ctypes.c_void_p).value
    with pytest.raises(RuntimeError, match=r"does not take functions .* Received: no more names$"):
        _xla_calls.register(address, "ipu_test", "uniform")
