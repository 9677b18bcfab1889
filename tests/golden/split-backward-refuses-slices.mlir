// RUN: pwc opt - --no-debug-info --pass-pipeline=split-backward
// Forward and backward of one stage are on two slices.
!t = tensor<f32>
module attributes {pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "trace", pw.platform = "cpu"} {
  "pw.slice"() {sym_name = "s0", devices = 1 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 1 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["y"=1]>, devices = "0"} : () -> ()
  module @f { func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0}) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0, action = "0F0"} : (!t) -> !t
    %b = "pw.call"(%a) {callee = @f, mesh = @m1, action = "0B0"} : (!t) -> !t
    return
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: pw.call puts stage 0 on @s1
  --> -:11
  have:  %1 = "pw.call"(%0) {action = "0B0", callee = @f, mesh = @m1} : (tensor<f32>) -> tensor<f32>
  need:  @s0, as in another call of the stage
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
