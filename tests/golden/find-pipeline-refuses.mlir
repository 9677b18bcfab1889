// RUN: pwc opt - --no-debug-info --pass-pipeline=find-pipeline
// The actions that somebody wrote leave a microbatch out.
!t = tensor<f32>
module attributes {pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "trace", pw.platform = "cpu"} {
  "pw.slice"() {sym_name = "s0", devices = 1 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f { func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0}) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0, action = "0F0"} : (!t) -> !t
    %b = "pw.call"(%a) {callee = @f, mesh = @m0, action = "0F2"} : (!t) -> !t
    return
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: pw.call is of microbatch 2, and there are 2
  --> -:9
  have:  %1 = "pw.call"(%0) {action = "0F2", callee = @f, mesh = @m0} : (tensor<f32>) -> tensor<f32>
  need:  calls of every microbatch from 0 to the last
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
