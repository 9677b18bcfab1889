// RUN: pwc opt - --no-debug-info --pass-pipeline=propagate-shardings
// A call names a computation that is not there.
!t = tensor<8xf32>
module attributes {pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "trace", pw.platform = "cpu"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0}) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0} : (!t) -> !t
    return
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: pw.call calls @f, which does not exist
  --> -:7
  have:  %0 = "pw.call"(%arg0) {callee = @f, mesh = @m0} : (tensor<8xf32>) -> tensor<8xf32>
  need:  a nested module that no other function calls
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
