"""The tables in which Keras looks up the names that classes are saved as."""

from ipu_keras.internals.keras.saving import public_names, registered_names


def save_as(extended: type, cls: type) -> None:
    """Has Keras save a class as another one.

    Keras looks the name of a class up by the class itself, in one of two tables.

    Args:
        extended: The class.
        cls: The one that is found when it is loaded.
    """
    for names in (public_names(), registered_names()):
        if cls in names:
            names[extended] = names[cls]
