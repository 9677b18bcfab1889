# RUN: pwc compile %s
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

mesh = pw.make_virtual_device_set().add_slice(devices=8).mesh(("batch", "model"), (2, 4))
rows = NamedSharding(mesh, P("bach", None))
# EXPECTED exit 3
# error[PWC0205]: bach is not an axis of the mesh
#   --> %s:8  in <module>
#       8 | rows = NamedSharding(mesh, P("bach", None))
#   have:  "bach" in P('bach', None)
#   need:  one of batch, model
#   try:   did you mean "batch"?
