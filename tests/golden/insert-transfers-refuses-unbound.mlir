// RUN: pwc opt - --no-debug-info --pass-pipeline=insert-transfers
// A slice names an island that the module does not have.
#x = #sdy.sharding_per_value<[<@m0, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "place", pw.platform = "cpu"} {
  "pw.island"() {name = "i0", hosts = 1 : i64, devices = 1 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @nowhere, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>}) -> !t attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0, island = @nowhere, in_shardings = #x, out_shardings = #x} : (!t) -> !t
    return %a : !t
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: pw.slice is not bound to an island
  --> -:6
  have:  "pw.slice"() {device_ids = "0", devices = 1 : i64, island = @nowhere, sym_name = "s0"} : () -> ()
  need:  an island and devices from phase place on
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
