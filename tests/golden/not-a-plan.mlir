// RUN: pwc inspect %s
// IR is no plan; which phase it has reached is said, and what to give it to.
module attributes {pw.phase = "place"} {}
// EXPECTED exit 3
error[PWC0601]: %s is not a plan
  have:  IR after phase place, not a plan; pass it to pwc compile
  need:  a plan that pwc compile wrote
  try:   check the path, or write a plan: pwc compile model.py -o plan.bin
