// RUN: pwc opt - --no-debug-info --pass-pipeline=plan-islands
// An island has less memory than one of its devices needs; the owners of that memory are named.
#a = #sdy.sharding_per_value<[<@m0, []>]>
#aa = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>
#b = #sdy.sharding_per_value<[<@m1, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "schedule", pw.platform = "cpu"} {
  "pw.island"() {name = "i", hosts = 1 : i64, devices = 2 : i64, kind = "any", memory = 7 : i64} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 1 : i64, island = @i, device_ids = "1"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%k: !t, %x: !t) -> !t { return %x : !t } }
  module @g attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%k: !t {pw.name = "k", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>, pw.value = "00000000"},
               %x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>},
               %y: !t {pw.name = "y", pw.mesh = @m1, pw.sharding = #sdy.sharding<@m1, []>}) -> (!t, !t, !t) attributes {pw.program} {
    %a = "pw.call"(%k, %x) {callee = @f, mesh = @m0, island = @i, action = "0F0", in_shardings = #aa, out_shardings = #a, step = 0 : i64} : (!t, !t) -> !t
    %t = "pw.transfer"(%a) {mesh = @m1, sharding = #b, source = #a, route = "ici", bytes = 4 : i64, step = 1 : i64} : (!t) -> !t
    %b = "pw.call"(%t) {callee = @g, mesh = @m1, island = @i, action = "1B0", in_shardings = #b, out_shardings = #b, step = 2 : i64} : (!t) -> !t
    %c = "pw.call"(%a) {callee = @g, mesh = @m0, island = @i, action = "0B0", in_shardings = #a, out_shardings = #a, step = 3 : i64} : (!t) -> !t
    %d = "pw.call"(%k, %c) {callee = @f, mesh = @m0, island = @i, again, action = "0B0", in_shardings = #aa, out_shardings = #a, step = 4 : i64} : (!t, !t) -> !t
    return %b, %d, %y : !t, !t, !t
  }
}
// EXPECTED exit 5
error[PWC0302]: the program does not fit into the memory of i
  --> -:21
  have:  7 bytes on each device
  need:  16 bytes on one device at step 4 (0B0 f), 9 B too many:
                4 B  constants
                4 B  gradients of 1 microbatch (0)
                4 B  results
                4 B  x
  try:   use more devices per slice, smaller batches, donate_argnums, or islands with more memory
