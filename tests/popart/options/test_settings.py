import doctest

import pytest

from ipu_keras.popart.options import settings
from ipu_keras.popart.options.enumerations import (
    AccumulateOuterFragmentSchedule,
    AutodiffStitchStrategy,
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    ExecutionPhaseIOSchedule,
    ExecutionPhaseSchedule,
    ReplicatedTensorSharding,
    TensorStorage,
    TileSet,
)
from ipu_keras.popart.options.settings import (
    AccumulateOuterFragmentSettings,
    AutodiffSettings,
    AutomaticLossScalingSettings,
    BatchSerializationSettings,
    ClipNormSettings,
    ExecutionPhaseSettings,
    NumIOTiles,
    TensorLocation,
    TensorLocationSettings,
)

OFF_CHIP, SHARDED = TensorStorage.OffChip, ReplicatedTensorSharding.On
PRELOAD, ON_DEMAND = ExecutionPhaseIOSchedule


def test_examples():
    assert doctest.testmod(settings).failed == 0


def test_the_overloads_of_a_location():
    assert TensorLocation().storage is TensorStorage.OnChip
    assert TensorLocation(OFF_CHIP).replicatedTensorSharding is ReplicatedTensorSharding.Off
    whole = TensorLocation(OFF_CHIP, TileSet.Compute, TileSet.Compute, SHARDED)
    assert TensorLocation(OFF_CHIP, SHARDED) == whole
    assert TensorLocation(storage=OFF_CHIP, replicatedTensorSharding=SHARDED) == whole
    io = TensorLocation(OFF_CHIP, TileSet.IO)
    assert (io.loadTileSet, io.storageTileSet) == (TileSet.IO, TileSet.Compute)
    with pytest.raises(TypeError, match=r"^`loadTileSet` must be a TileSet\. Received: loadTileS"):
        TensorLocation(OFF_CHIP, OFF_CHIP)


def test_the_overloads_of_locations_of_a_kind():
    first = TensorLocationSettings()
    assert (first.location, first.minElementsForOffChip) == (TensorLocation(), 2)
    assert first.minElementsForReplicatedTensorSharding == 8192
    assert TensorLocationSettings(OFF_CHIP, 0) == TensorLocationSettings(
        TensorLocation(OFF_CHIP), minElementsForOffChip=0
    )
    with pytest.raises(TypeError, match=r"^`location` must be a TensorLocation\. Received: loc"):
        TensorLocationSettings(1)


def test_all_values_in_order():
    assert vars(
        BatchSerializationSettings(
            4,
            False,
            False,
            False,
            BatchSerializationTransformContext.Bwd,
            BatchSerializationMethod.Loop,
            BatchSerializationBatchSchedule.OverlapOnIo,
        )
    ) == {
        "factor": 4,
        "concatOnVirtualGraphChange": False,
        "concatOnExecutionPhaseChange": False,
        "concatOnPipelineStageChange": False,
        "transformContext": BatchSerializationTransformContext.Bwd,
        "method": BatchSerializationMethod.Loop,
        "batchSchedule": BatchSerializationBatchSchedule.OverlapOnIo,
    }
    assert vars(
        ExecutionPhaseSettings(
            4, 1, ON_DEMAND, ON_DEMAND, PRELOAD, ON_DEMAND, ExecutionPhaseSchedule.Batch
        )
    ) == {
        "phases": 4,
        "stages": 1,
        "weightIOSchedule": ON_DEMAND,
        "activationIOSchedule": ON_DEMAND,
        "optimizerStateIOSchedule": PRELOAD,
        "accumulatorIOSchedule": ON_DEMAND,
        "schedule": ExecutionPhaseSchedule.Batch,
    }
    scaling = AutomaticLossScalingSettings(True, 0.5, 0.25)
    assert list(vars(scaling).values()) == [True, 0.5, 0.25]
    outer = AccumulateOuterFragmentSettings(AccumulateOuterFragmentSchedule.Scheduler, [0, 2])
    assert outer.excludedVirtualGraphs == [0, 2]
    assert AutodiffSettings(AutodiffStitchStrategy.AddFwdOutputs) != AutodiffSettings()


def test_norms_to_clip_need_both():
    clip = ClipNormSettings(["w", "b"], 2)
    assert (clip.weightIds, clip.maxNorm) == (["w", "b"], 2.0)
    assert ClipNormSettings(weightIds=["w"], maxNorm=0.5).maxNorm == 0.5
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'maxNorm'"):
        ClipNormSettings(["w"])


def test_a_number_of_tiles():
    assert (int(NumIOTiles()), int(NumIOTiles(32))) == (0, 32)
    assert NumIOTiles(32) == NumIOTiles(32) == 32
    assert hash(NumIOTiles(32)) == hash(32)
    assert repr(NumIOTiles(2)) == "NumIOTiles(2)"
    with pytest.raises(TypeError, match=r"^`numIOTiles` must be an int\. Received: numIOTiles='2'"):
        NumIOTiles("2")
