# RUN: pwc compile %s

import pathways as pw

decoder = pw.make_virtual_device_set().add_slice(devices=4)
mesh = decoder.mesh(("data", "model"), (2, 4))
# EXPECTED exit 3
# error[PWC0201]: the mesh does not match the slice slice#
#   --> %s:6  in <module>
#       6 | mesh = decoder.mesh(("data", "model"), (2, 4))
#   have:  axes ('data', 'model') of shape (2 x 4) = 8 devices
#   need:  one size per axis, 4 devices in all: slice# (%s:5)
#   try:   choose sizes with the product 4, or a slice of 8
