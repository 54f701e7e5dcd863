"""Models what a program would cost on an IPU; how the host computes it is no concern of it.

A traced step goes through these passes (`passes`), each of which gives the next one a value with
more in it (`model`), by what was chosen (`options`):

1. `choose_precision`: the types of numbers (`rewrites.precision`).
2. `write_out`: what XLA writes in other words than Poplar is rewritten (the other `rewrites`), and
   the graph becomes compute sets (`flat.flattening`). Tables that stay on the host are found
   (`flat.host_tables`), and the parts of the step (`pipeline.step_parts`, `pipeline.finer_stages`).
   Then what is one vertex, or computed once, is put together (`flat.joint_normalizations`,
   `flat.fusion`, `flat.normalizations`), also within operations of Poplar's libraries
   (`flat.poplar_bodies`).
3. `add_up_gradients`: of several batches and replicas (`pipeline.accumulation`).
4. `order`: of execution (`flat.liveness`, `pipeline.step_parts`).
5. `drop_activations`: what is computed again (`flat.recomputation`, in a pipeline
   `pipeline.recomputation`).
6. `place_on_ipus`: layers (`pipeline.shards`) or stages (`pipeline.placement`,
   `pipeline.offloading`).
7. `merge_sums`: collectives that wait for each other (`pipeline.merged_collectives`).
8. `reuse_memory`: what is written over what (`flat.in_place`).
9. `estimate_cycles`: which values lie alike (`flat.layouts`), then what each compute set costs
   (`vertices.families`, and a module of `vertices` for each family; `products.plans`).
10. `run_pipeline`: its parts in time (`pipeline.pipeline_run`, `pipeline.schedule`, `pipeline.timing`).
11. `estimate_host_copies`: infeeds and outfeeds (`tile.exchange`, `tile.io_tiles`).
12. `fill_tiles`: how full the tiles become (`flat.memory`, `flat.code_sharing`, `vertices.code`).
13. `keep_what_costs_more_to_drop`: the program without recomputation, if that needs less.

`small_programs` knows without a model that a program fits.
"""

from ipu_keras.cost.pipeline.depth import depth_message as depth_message
from ipu_keras.cost.pipeline.depth import overlap as overlap
