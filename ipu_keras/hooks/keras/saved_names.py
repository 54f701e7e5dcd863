"""Adds to the tables in which Keras looks up the names that classes are saved as."""

from ipu_keras.internals.keras.saving import public_names, registered_names


def save_as(extended: type, cls: type) -> None:
    """Has Keras save instances of `extended` under the name of `cls`, which loading then finds.

    Keras looks the name up by the class itself, in one table for its own classes and in another
    for those that users have registered.
    """
    for names in (public_names(), registered_names()):
        if cls in names:
            names[extended] = names[cls]
