// RUN: pwc opt - --no-debug-info --pass-pipeline=plan-islands
// Steps do not grow in the order of the program.
#a = #sdy.sharding_per_value<[<@m0, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "schedule", pw.platform = "cpu"} {
  "pw.island"() {name = "i", hosts = 1 : i64, devices = 1 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>}) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0, island = @i, in_shardings = #a, out_shardings = #a, step = 1 : i64} : (!t) -> !t
    %b = "pw.call"(%a) {callee = @f, mesh = @m0, island = @i, in_shardings = #a, out_shardings = #a, step = 0 : i64} : (!t) -> !t
    return
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: pw.call has step 0 after step 1
  --> -:11
  have:  %1 = "pw.call"(%0) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, []>]>, island = @i, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 0 : i64} : (tensor<f32>) -> tensor<f32>
  need:  steps that increase in program order, which is the order of execution
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
