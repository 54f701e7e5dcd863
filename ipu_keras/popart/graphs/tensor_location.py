"""Where a tensor is kept."""

from dataclasses import dataclass

from ipu_keras.popart.options.enumerations import ReplicatedTensorSharding, TensorStorage, TileSet


@dataclass
class TensorLocation:
    """Where a tensor is kept.

    Args:
        storage: Its memory.
        loadTileSet: The tiles that load it.
        storageTileSet: The tiles that it is on, if it is on the chip.
        replicatedTensorSharding: Whether replicas share it out.
    """

    storage: TensorStorage = TensorStorage.OnChip
    loadTileSet: TileSet = TileSet.Compute
    storageTileSet: TileSet = TileSet.Compute
    replicatedTensorSharding: ReplicatedTensorSharding = ReplicatedTensorSharding.Off
