// RUN: pwc opt - --no-debug-info --pass-pipeline=merge-calls
// A call says that it was merged of something that is no part: action, name, line.
#a = #sdy.sharding_per_value<[<@m0, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "schedule", pw.platform = "cpu"} {
  "pw.island"() {name = "i", hosts = 1 : i64, devices = 1 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>}) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0, island = @i, in_shardings = #a, out_shardings = #a, parts = ["f"], made_by = array<i64: 0>, step = 0 : i64} : (!t) -> !t
    return
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: pw.call has a part that cannot be read: 'f' is not like ACTION NAME FILE:LINE FUNCTION
  --> -:10
  have:  %0 = "pw.call"(%arg0) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, []>]>, island = @i, made_by = array<i64: 0>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, parts = ["f"], step = 0 : i64} : (tensor<f32>) -> tensor<f32>
  need:  action, name and line of each: 2F3 f model.py:1
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
