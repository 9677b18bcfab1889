# RUN: pwc compile %s


from pathways.dialect.plan.match import check_fit
from pathways.dialect.topology import parse_topology

needed = parse_topology("islands=2,devices=8,kind=h100,memory=80GB")
check_fit("train", needed, parse_topology("islands=1,devices=8,kind=h100,memory=80GB"), needed.names)
# EXPECTED exit 5
# error[PWC0607]: the plan of train does not fit this topology
#   have:  island0: 8 x h100 (80 GB)
#   need:  island0: 8 x h100 (80 GB) + island1: 8 x h100 (80 GB)
#   try:   no island is free for island1; if its slices fit, compile it for these machines: pwc compile model.py --topology ...
