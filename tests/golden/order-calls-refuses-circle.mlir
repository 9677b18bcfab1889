// RUN: pwc opt - --no-debug-info --pass-pipeline=order-calls
// The actions that are written contradict the program: 0F0 needs what 0F1 makes, and stands before it.
#a = #sdy.sharding_per_value<[<@m0, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "transfer", pw.platform = "cpu"} {
  "pw.island"() {name = "i", hosts = 1 : i64, devices = 1 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>}) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0, island = @i, action = "0F0", in_shardings = #a, out_shardings = #a} : (!t) -> !t
    %b = "pw.call"(%a) {callee = @f, mesh = @m0, island = @i, action = "0F1", in_shardings = #a, out_shardings = #a} : (!t) -> !t
    %c = "pw.call"(%b) {callee = @f, mesh = @m0, island = @i, action = "0F0", in_shardings = #a, out_shardings = #a} : (!t) -> !t
    return
  }
}
// EXPECTED exit 3
error[PWC0402]: the schedule program cannot complete: 2 actions wait for each other
  --> -:11
  have:     0F1 f (-:11) on s0: comes after 0F0 in row 1
         -> 0F0 f (-:12) on s0: needs a result of 0F1
         -> 0F1 f (-:11) on s0
  need:  an order in which every action comes after the actions that it depends on
  try:   move 0F1 to the left in row 1
