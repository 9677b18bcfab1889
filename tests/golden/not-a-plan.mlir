// RUN: pwc inspect %s
module attributes {pw.phase = "place"} {}
// EXPECTED exit 3
error[PWC0601]: %s is not a plan
  have:  IR after phase place, not a plan; give it to pwc compile
  need:  a plan.bin that pwc compile wrote
  try:   pwc compile model.py -o plan.bin
