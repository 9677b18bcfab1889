// RUN: pwc opt - --no-debug-info --pass-pipeline=merge-calls
// A call has no step: nobody has put the calls in order.
#a = #sdy.sharding_per_value<[<@m0, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "schedule", pw.platform = "cpu"} {
  "pw.island"() {name = "i", hosts = 1 : i64, devices = 1 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>}) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0, island = @i, in_shardings = #a, out_shardings = #a, step = 0 : i64} : (!t) -> !t
    %b = "pw.call"(%a) {callee = @f, mesh = @m0, island = @i, in_shardings = #a, out_shardings = #a} : (!t) -> !t
    return
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: pw.call has no step
  --> -:11
  have:  %1 = "pw.call"(%0) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, []>]>, island = @i, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>} : (tensor<f32>) -> tensor<f32>
  need:  a step for every call and transfer from phase schedule on
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
