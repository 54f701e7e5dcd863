"""The tables in which Keras looks up the names that classes are saved as."""

from keras.src import api_export
from keras.src.saving import object_registration


def save_as(extended: type, cls: type) -> None:
    """Has Keras save a class as another one.

    Keras looks the name of a class up by the class itself, in one of two tables.

    Args:
        extended: The class.
        cls: The one that is found when it is loaded.
    """
    public_name = api_export.get_name_from_symbol(cls)
    if public_name is not None:
        api_export.REGISTERED_OBJS_TO_NAMES[extended] = public_name
    if cls in object_registration.GLOBAL_CUSTOM_NAMES:
        name = object_registration.GLOBAL_CUSTOM_NAMES[cls]
        object_registration.GLOBAL_CUSTOM_NAMES[extended] = name
