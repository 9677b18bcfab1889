// RUN: pwc opt - --no-debug-info --pass-pipeline=propagate-shardings
// A sharding of an argument is closed: `[{?}]` would say nothing.
module attributes {pw.phase = "trace", pw.platform = "cpu", pw.in_tree = "\22leaf\22", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[]}"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  func.func @p(%a: tensor<8xf32> {pw.name = "a", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, [{"x", ?}]>}) attributes {pw.program} { return }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: func.func states pw.sharding = #sdy.sharding<@m0, [{"x", ?}]> of argument 0
  --> -:5
  have:  func.func @p(%arg0: tensor<8xf32> {pw.mesh = @m0, pw.name = "a", pw.sharding = #sdy.sharding<@m0, [{"x", ?}]>}) attributes {pw.program} {
           return
         }
  need:  attributes of arguments as in docs/dialect.md
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
