// RUN: pwc opt - --no-debug-info --pass-pipeline=insert-transfers
// A call says that it runs on another island than its slice is bound to.
#x = #sdy.sharding_per_value<[<@m0, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "place", pw.platform = "cpu"} {
  "pw.island"() {name = "i0", hosts = 1 : i64, devices = 1 : i64, kind = "any"} : () -> ()
  "pw.island"() {name = "i1", hosts = 1 : i64, devices = 1 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i0, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>}) -> !t attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0, island = @i1, in_shardings = #x, out_shardings = #x} : (!t) -> !t
    return %a : !t
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: pw.call is on @i1, its slice is on @i0
  --> -:11
  have:  %0 = "pw.call"(%arg0) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, []>]>, island = @i1, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>} : (tensor<f32>) -> tensor<f32>
  need:  the island of its slice
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
