"""Sessions of TensorFlow 1, whose several public methods end in one private one."""

from typing import Any

from ipu_keras.internals.forms import Class, Function, PrivateName

_SESSION = PrivateName(
    "tensorflow.python.client.session",
    "BaseSession",
    Class(
        members={
            "__init__": Function("self", "target", "graph", "config"),
            "make_callable": Function("self", "fetches", "feed_list", "accept_options"),
            "_do_run": Function(
                "self",
                "handle",
                "target_list",
                "fetch_list",
                "feed_dict",
                "options",
                "run_metadata",
            ),
        },
        assigned=("_closed", "_config"),
    ),
)


def session_class() -> Any:
    return _SESSION.get()


def config_of(session: Any) -> Any:
    """The configuration that a session was made with."""
    _SESSION.get()
    return session._config


def is_closed(session: Any) -> bool:
    _SESSION.get()
    return session._closed
