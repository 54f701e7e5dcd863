"""Names the attributes that say how nodes run.

PopART writes them on ONNX nodes under names that begin with two underscores, which ONNX's schemas
never use, so that a model with them is still valid.
"""

VIRTUAL_GRAPH = "__ipu_number"
PIPELINE_STAGE = "__pipeline_stage"
EXECUTION_PHASE = "__execution_phase"
RECOMPUTE = "__recompute"
OUTPUT_TENSOR_LOCATION = "__output_tensor_location"
SCHEDULE_PRIORITY = "__schedule_priority"
OUTLINE_ATTRIBUTES = "__outline_attributes"
COMM_GROUP = "__collectiveCommGroup"
PARTIALS_TYPE = "__partials_type"
AVAILABLE_MEMORY = "__available_memory_proportion"
SERIALIZE_MATMUL_MODE = "__serialize_matmul_mode"
SERIALIZE_MATMUL_FACTOR = "__serialize_matmul_factor"
SERIALIZE_MATMUL_PRECISION = "__serialize_matmul_precision"
EXCLUDE_PATTERNS = "__exclude_patterns"
INPLACE_NAMES = "__inplace_op_names"
INPLACE_PRIORITIES = "__inplace_op_priorities"
PLAN_TYPE = "__plan_type"
RESERVED_TILES = "__per_conv_reserved_tiles"
CYCLE_BACK_OFF = "__cycle_back_off"
