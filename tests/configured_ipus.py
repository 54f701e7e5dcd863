"""IPUs that are configured for a test; the fixture `reset_afterwards` undoes it."""

from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.ipu_strategy import IPUStrategy


def configured(num_ipus=1, **options):
    """A strategy of devices that are configured anew.

    Args:
        num_ipus: As `auto_select_ipus` takes it.
        options: Those of `floating_point_behaviour`, or others with `__` for a dot.
    """
    reset_ipu_configuration()
    config = IPUConfig()
    config.auto_select_ipus = num_ipus
    for path, value in options.items():
        *categories, name = path.split("__")
        category = config
        if path in dir(config.floating_point_behaviour):
            category = config.floating_point_behaviour
        for each in categories:
            category = getattr(category, each)
        setattr(category, name, value)
    config.configure_ipu_system()
    return IPUStrategy()
