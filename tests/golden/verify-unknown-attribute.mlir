// RUN: pwc opt - --no-debug-info
// An attribute that the dialect does not know, one letter beside one that it knows.
!t = tensor<f32>
module attributes {pw.phase = "trace", pw.platform = "cpu",
  pw.in_tree = "\22leaf\22", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[]}"} {
  "pw.slice"() {sym_name = "s0", devices = 1 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f { func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0}) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, gathred, mesh = @m0} : (!t) -> !t
    return
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: pw.call has an unknown attribute gathred
  --> -:9
  have:  %0 = "pw.call"(%arg0) {callee = @f, gathred, mesh = @m0} : (tensor<f32>) -> tensor<f32>
  need:  attributes and operands as in docs/dialect.md
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
