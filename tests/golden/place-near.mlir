// RUN: pwc opt - --no-debug-info --pass-pipeline='place{policy=spread}' --topology islands=3,devices=4
// Slices are bound: one pinned by the user, one near another, one where most room is left; calls follow, a user's move stays as it is.
#sx = #sdy.sharding<@m0, [{"x"}]>
#sy = #sdy.sharding<@m1, [{"y"}]>
#x = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>
#y = #sdy.sharding_per_value<[<@m1, [{"y"}]>]>
#z = #sdy.sharding_per_value<[<@m2, [{"x"}]>]>
!t = tensor<8xf32>
module attributes {pw.phase = "shard", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[]}"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 4 : i64, pin = "island1"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["y"=4]>, devices = "0:4"} : () -> ()
  "pw.slice"() {sym_name = "s2", devices = 2 : i64, near = @s0} : () -> ()
  "pw.mesh"() {sym_name = "m2", slice = @s2, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @m0 = <["x"=2]>
    func.func @main(%x: !t {sdy.sharding = #sx}) -> (!t {sdy.sharding = #sx}) { return %x : !t } }
  module @g attributes {mhlo.num_partitions = 4 : i32} { sdy.mesh @m1 = <["y"=4]>
    func.func @main(%x: !t {sdy.sharding = #sy}) -> (!t {sdy.sharding = #sy}) { return %x : !t } }
  func.func @p(%x0: !t {pw.name = "x0", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, [{"x"}]>},
               %x1: !t {pw.name = "x1", pw.mesh = @m1, pw.sharding = #sdy.sharding<@m1, [{"y"}]>}) attributes {pw.program} {
    %a = "pw.call"(%x0) {callee = @f, mesh = @m0, in_shardings = #x, out_shardings = #x} : (!t) -> !t
    %b = "pw.call"(%x1) {callee = @g, mesh = @m1, in_shardings = #y, out_shardings = #y} : (!t) -> !t
    %t = "pw.transfer"(%a) {mesh = @m2, sharding = #z, user} : (!t) -> !t
    %c = "pw.call"(%t) {callee = @f, gathered, mesh = @m2, in_shardings = #z, out_shardings = #z} : (!t) -> !t
    return
  }
}
// EXPECTED exit 0
module attributes {pw.dcn_gbps = 1.250000e+01 : f64, pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[]}", pw.phase = "place", pw.placement = "spread: about 0.16 ns a run, 0 bytes between islands; assumed: 1e+12 flop/s a device, 50% of the flop/s", pw.platform = "cpu"} {
  "pw.island"() {devices = 4 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "any", name = "island0"} : () -> ()
  "pw.island"() {devices = 4 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "any", name = "island1"} : () -> ()
  "pw.island"() {devices = 4 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "any", name = "island2"} : () -> ()
  "pw.slice"() {device_ids = "0:2", devices = 2 : i64, island = @island0, reason = "least loaded of 2 islands (0%)", runner_up = "none: the user puts it on the island of s2", sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {device_ids = "0:4", devices = 4 : i64, island = @island1, pin = "island1", reason = "pinned to island1 by the user", runner_up = "none: the user pinned it", sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["y"=4]>, devices = "0:4", slice = @s1, sym_name = "m1"} : () -> ()
  "pw.slice"() {device_ids = "2:4", devices = 2 : i64, island = @island0, near = @s0, reason = "on the island of s0, as the user asked", runner_up = "none: the user puts it on the island of s0", sym_name = "s2"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s2, sym_name = "m2"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32} {
    sdy.mesh @m0 = <["x"=2]>
    func.func @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}]>}) {
      return %arg0 : tensor<8xf32>
    }
  }
  module @g attributes {mhlo.num_partitions = 4 : i32} {
    sdy.mesh @m1 = <["y"=4]>
    func.func @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m1, [{"y"}]>}) -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@m1, [{"y"}]>}) {
      return %arg0 : tensor<8xf32>
    }
  }
  func.func @p(%arg0: tensor<8xf32> {pw.mesh = @m0, pw.name = "x0", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}, %arg1: tensor<8xf32> {pw.mesh = @m1, pw.name = "x1", pw.sharding = #sdy.sharding<@m1, [{"y"}]>}) attributes {pw.program} {
    %0 = "pw.call"(%arg0) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    %1 = "pw.call"(%arg1) {callee = @g, in_shardings = #sdy.sharding_per_value<[<@m1, [{"y"}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{"y"}]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    %2 = "pw.transfer"(%0) {mesh = @m2, sharding = #sdy.sharding_per_value<[<@m2, [{"x"}]>]>, user} : (tensor<8xf32>) -> tensor<8xf32>
    %3 = "pw.call"(%2) {callee = @f, gathered, in_shardings = #sdy.sharding_per_value<[<@m2, [{"x"}]>]>, island = @island0, mesh = @m2, out_shardings = #sdy.sharding_per_value<[<@m2, [{"x"}]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    return
  }
}

