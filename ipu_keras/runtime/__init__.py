"""Running executables: the engine of a device, and the feeds that supply it."""

from ipu_keras._engine import FeedMemory as FeedMemory
from ipu_keras.runtime.engine import Engine as Engine
from ipu_keras.runtime.engine import EngineCounters as EngineCounters
from ipu_keras.runtime.feed import Feed as Feed
from ipu_keras.runtime.feed import SuperBatch as SuperBatch
