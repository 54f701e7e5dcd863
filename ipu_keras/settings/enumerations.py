"""The enumerations that options of `IPUConfig` have as their values."""

import enum


class DeviceConnectionType(enum.Enum):
    """When a program is connected to IPU hardware.

    * `ALWAYS`: as soon as the system is configured.
    * `ON_DEMAND`: when an IPU is needed for the first time.
    * `PRE_COMPILE`: never; programs are only compiled, and running one gives zeros.
    * `NEVER`: never.
    """

    ALWAYS = 0
    ON_DEMAND = 1
    PRE_COMPILE = 2
    NEVER = 3


class ExecutionProfileType(enum.Enum):
    """How finely the profile of an execution is resolved.

    * `NO_PROFILE`: no profile.
    * `DEVICE_PROFILE`: events of the device as a whole.
    * `IPU_PROFILE`: events of each IPU.
    * `TILE_PROFILE`: events of each tile.
    """

    NO_PROFILE = 0
    DEVICE_PROFILE = 1
    IPU_PROFILE = 2
    TILE_PROFILE = 3


class MergeRemoteBuffersBehaviour(enum.Enum):
    """Whether remote buffers of the same kind become one.

    * `NO_MERGING`: all buffers stay separate.
    * `MERGE`: compatible buffers are always merged.
    * `IF_BENEFICIAL`: they are merged where it lets code be shared.
    """

    NO_MERGING = 0
    MERGE = 1
    IF_BENEFICIAL = 2


class SyntheticDataCategory(enum.Enum):
    """Kinds of data that can be synthetic: `--synthetic_data_categories` of `TF_POPLAR_FLAGS`.

    * `Infeed`: what infeeds bring.
    * `Outfeed`: what outfeeds take.
    * `Seed`: seeds of random numbers.
    * `HostEmbedding`: rows of tables on the host.
    * `Parameters`: variables, and arguments of programs.
    """

    Infeed = 0
    Outfeed = 1
    Seed = 2
    HostEmbedding = 3
    Parameters = 4


class SchedulingAlgorithm(enum.Enum):
    """How the compiler orders instructions.

    * `CHOOSE_BEST`: tries the others and takes the order with the lowest predicted peak of live
      memory. The prediction is for the IPU as a whole, so the fullest tile may still be worse
      off.
    * `CLUSTERING`: keeps related instructions together.
    * `POST_ORDER`: the order of a post-order walk of the graph.
    * `LOOK_AHEAD`: searches a limited number of steps ahead for low memory use.
    * `SHORTEST_PATH`: begins with what is closest to the root.
    """

    CHOOSE_BEST = 0
    CLUSTERING = 1
    POST_ORDER = 2
    LOOK_AHEAD = 3
    SHORTEST_PATH = 4


class StochasticRoundingBehaviour(enum.Enum):
    """When results that are rounded to half precision are rounded at random.

    * `OFF`: never, they are rounded to nearest.
    * `ON`: always.
    * `REPLICA_IDENTICAL_ONLY`: only where all replicas compute the same value,
      so that they stay equal.
    """

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2
