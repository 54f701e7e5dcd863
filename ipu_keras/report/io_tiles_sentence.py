"""What a report says of tiles for input and output."""

from ipu_keras.compiler.modelling import Model


def io_tiles_sentence(model: Model) -> str:
    """Whether tiles for input and output hide copies with the host, without a full stop.

    Args:
        model: Of a program with such tiles.
    """
    options, held = model.options, model.io_tile_bytes
    apart = f"{options.num_io_tiles:,} more tiles of each IPU are for input and output"
    if not options.place_ops_on_io_tiles:
        return f"{apart}, which is on the others: `place_ops_on_io_tiles` is not set"
    if held > model.io_tile_capacity:
        return (
            f"{apart}, which is on the others: it is {held:,} bytes, and these tiles may hold "
            f"{model.io_tile_capacity:,}"
        )
    return (
        f"{apart}: {model.hidden_host_cycles:,} cycles per step of the host's copies pass while "
        "the others compute"
    )
