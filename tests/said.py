"""What an error says in all."""


def said(error: BaseException) -> str:
    """The text of an error, and its notes, a line each, as Python prints them."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])
