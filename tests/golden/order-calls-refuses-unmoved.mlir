// RUN: pwc opt - --no-debug-info --pass-pipeline=order-calls
// A call takes a value from another slice, and nothing moves it there.
#a = #sdy.sharding_per_value<[<@m0, []>]>
#b = #sdy.sharding_per_value<[<@m1, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "transfer", pw.platform = "cpu"} {
  "pw.island"() {name = "i", hosts = 1 : i64, devices = 2 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 1 : i64, island = @i, device_ids = "1"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>}) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0, island = @i, in_shardings = #a, out_shardings = #a} : (!t) -> !t
    %b = "pw.call"(%a) {callee = @f, mesh = @m1, island = @i, in_shardings = #b, out_shardings = #b} : (!t) -> !t
    return
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: pw.call reads operand 0 from another place
  --> -:14
  have:  %1 = "pw.call"(%0) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m1, []>]>, island = @i, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, []>]>} : (tensor<f32>) -> tensor<f32>
  need:  an explicit pw.transfer for every move
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
