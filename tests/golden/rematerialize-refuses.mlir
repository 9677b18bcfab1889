// RUN: pwc opt - --no-debug-info --pass-pipeline=rematerialize
// Backward of a stage is on another slice than forward, whose memory it is about.
#a = #sdy.sharding_per_value<[<@m0, []>]>
#b = #sdy.sharding_per_value<[<@m1, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "schedule", pw.platform = "cpu"} {
  "pw.island"() {name = "i", hosts = 1 : i64, devices = 2 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 1 : i64, island = @i, device_ids = "1"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>}) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0, island = @i, action = "0F0", in_shardings = #a, out_shardings = #a, step = 0 : i64} : (!t) -> !t
    %t = "pw.transfer"(%a) {mesh = @m1, sharding = #b, source = #a, route = "ici", bytes = 4 : i64, step = 1 : i64} : (!t) -> !t
    %b = "pw.call"(%t) {callee = @f, mesh = @m1, island = @i, action = "0B0", in_shardings = #b, out_shardings = #b, step = 2 : i64} : (!t) -> !t
    return
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: pw.call puts stage 0 on @s1
  --> -:15
  have:  %2 = "pw.call"(%1) {action = "0B0", callee = @f, in_shardings = #sdy.sharding_per_value<[<@m1, []>]>, island = @i, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, []>]>, step = 2 : i64} : (tensor<f32>) -> tensor<f32>
  need:  @s0, as in another call of the stage
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
