// RUN: pwc opt - --no-debug-info --pass-pipeline=split-backward
// An action that is none: the kinds are F, B, I and W.
!t = tensor<f32>
module attributes {pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "trace", pw.platform = "cpu"} {
  "pw.slice"() {sym_name = "s0", devices = 1 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f { func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0}) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0, action = "0X0"} : (!t) -> !t
    return
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: pw.call has the action 0X0
  --> -:8
  have:  %0 = "pw.call"(%arg0) {action = "0X0", callee = @f, mesh = @m0} : (tensor<f32>) -> tensor<f32>
  need:  stage, F, B, I or W, microbatch: 2F3
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
