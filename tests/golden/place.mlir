// RUN: pwc opt - --no-debug-info --pass-pipeline='place{policy=spread}'
// Slices are bound to islands of the default topology, one as the user pinned it; calls follow, a user's move stays as it is.
#sx = #sdy.sharding<@m0, [{"x"}]>
#sy = #sdy.sharding<@m1, [{"y"}]>
#x = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>
#y = #sdy.sharding_per_value<[<@m1, [{"y"}]>]>
!t = tensor<8xf32>
module attributes {pw.phase = "shard", pw.platform = "cpu",
  pw.in_tree = "\22leaf\22", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[]}"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 4 : i64, pin = "pod"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["y"=4]>, devices = "0:4"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @m0 = <["x"=2]>
    func.func @main(%x: !t {sdy.sharding = #sx}) -> (!t {sdy.sharding = #sx}) { return %x : !t } }
  module @g attributes {mhlo.num_partitions = 4 : i32} { sdy.mesh @m1 = <["y"=4]>
    func.func @main(%x: !t {sdy.sharding = #sy}) -> (!t {sdy.sharding = #sy}) { return %x : !t } }
  func.func @p(%x0: !t {pw.name = "x0", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, [{"x"}]>}) attributes {pw.program} {
    %a = "pw.call"(%x0) {callee = @f, mesh = @m0, in_shardings = #x, out_shardings = #x} : (!t) -> !t
    %b = "pw.call"(%a) {callee = @g, mesh = @m1, in_shardings = #y, out_shardings = #y} : (!t) -> !t
    %t = "pw.transfer"(%a) {mesh = @m1, sharding = #y, user} : (!t) -> !t
    %c = "pw.call"(%b) {callee = @g, gathered, mesh = @m1, in_shardings = #y, out_shardings = #y} : (!t) -> !t
    return
  }
}
// EXPECTED exit 0
module attributes {pw.dcn_gbps = 1.250000e+01 : f64, pw.in_tree = "\22leaf\22", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[]}", pw.phase = "place", pw.placement = "spread: about 2.56 ns a run, 32 bytes between islands; assumed: 1e+12 flop/s a device, 50% of the flop/s", pw.platform = "cpu"} {
  "pw.island"() {devices = 2 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "cpu", name = "island0"} : () -> ()
  "pw.island"() {devices = 4 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "cpu", name = "pod"} : () -> ()
  "pw.slice"() {device_ids = "0:2", devices = 2 : i64, island = @island0, reason = "the only island with room for it", runner_up = "none: no other island can take it", sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {device_ids = "0:4", devices = 4 : i64, island = @pod, pin = "pod", reason = "pinned to pod by the user", runner_up = "none: the user pinned it", sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["y"=4]>, devices = "0:4", slice = @s1, sym_name = "m1"} : () -> ()
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
  func.func @p(%arg0: tensor<8xf32> {pw.mesh = @m0, pw.name = "x0", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}) attributes {pw.program} {
    %0 = "pw.call"(%arg0) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    %1 = "pw.call"(%0) {callee = @g, in_shardings = #sdy.sharding_per_value<[<@m1, [{"y"}]>]>, island = @pod, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{"y"}]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    %2 = "pw.transfer"(%0) {mesh = @m1, sharding = #sdy.sharding_per_value<[<@m1, [{"y"}]>]>, user} : (tensor<8xf32>) -> tensor<8xf32>
    %3 = "pw.call"(%1) {callee = @g, gathered, in_shardings = #sdy.sharding_per_value<[<@m1, [{"y"}]>]>, island = @pod, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{"y"}]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    return
  }
}

