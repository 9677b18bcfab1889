# RUN: pwc compile %s
import io
import json
import zipfile

from pathways.dialect.plan.plan_file import read_plan

manifest = {"kind": "pathways plan", "format": 5, "writer": {"pathways-mpmd": "9.1", "jax": "0.19.0"}}
raw = io.BytesIO()
with zipfile.ZipFile(raw, "w") as plan:
    plan.writestr("manifest.json", json.dumps(manifest))
read_plan(raw.getvalue(), "plan.bin")
# EXPECTED exit 6
# error[PWC0603]: the plan plan.bin has format 5
#   have:  format 5, written by pathways-mpmd 9.1, jax 0.19.0
#   need:  format 4, the only one that this version reads
#   try:   upgrade pathways-mpmd, or compile the plan again with this version
