"""The exceptions that PopART raises, which have the names that users catch."""


class popart_exception(Exception):
    """What users asked for cannot be done; the text says what, and what to do instead."""


class popart_internal_exception(Exception):
    """Something went wrong that users have no part in."""


class poplar_exception(Exception):
    """The device, or its options, refused something."""


class poplibs_exception(Exception):
    """An operation's implementation refused something."""
