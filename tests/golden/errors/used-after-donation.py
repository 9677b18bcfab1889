# RUN: pwc compile %s
import numpy as np

import pathways as pw

update = pw.program(lambda params: params * 2, donate_argnums=0)
params = update(np.ones(4, np.float32))
newer = update(params)
print(update(params))
# EXPECTED exit 3
# error[PWC0207]: out was donated and is used again
#   --> %s:9  in <module>
#       9 | print(update(params))
#   have:  an array that was donated to lambda at %s:8
#   need:  an array that no program may overwrite
#   try:   use the result that replaced it, or remove it from donate_argnums
