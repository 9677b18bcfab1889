// RUN: pwc opt - --no-debug-info --pass-pipeline='place{policy=spread}' --topology islands=2,devices=3
// Slices that no island has room for; one is pinned to an island that there is not.
#sx = #sdy.sharding<@m0, [{"x"}]>
#sy = #sdy.sharding<@m1, [{"y"}]>
#x = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>
#y = #sdy.sharding_per_value<[<@m1, [{"y"}]>]>
!t = tensor<8xf32>
module attributes {pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "shard", pw.platform = "cpu"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 4 : i64, pin = "pod"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["y"=4]>, devices = "0:4"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @m0 = <["x"=2]>
    func.func @main(%x: !t {sdy.sharding = #sx}) -> (!t {sdy.sharding = #sx}) { return %x : !t } }
  module @g attributes {mhlo.num_partitions = 4 : i32} { sdy.mesh @m1 = <["y"=4]>
    func.func @main(%x: !t {sdy.sharding = #sy}) -> (!t {sdy.sharding = #sy}) { return %x : !t } }
  func.func @p(%x0: !t {pw.name = "x0", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, [{"x"}]>},
               %x1: !t {pw.name = "x1", pw.mesh = @m1, pw.sharding = #sdy.sharding<@m1, [{"y"}]>}) attributes {pw.program} {
    %a = "pw.call"(%x0) {callee = @f, mesh = @m0, in_shardings = #x, out_shardings = #x} : (!t) -> !t
    %b = "pw.call"(%x1) {callee = @g, mesh = @m1, in_shardings = #y, out_shardings = #y} : (!t) -> !t
    return
  }
}
// EXPECTED exit 5
error[PWC0301]: the slices do not fit the topology
  --> -:8
  have:  island0 (3 x any), island1 (3 x any)
  need:  s0: 2 devices, s1: 4 devices on pod; 6 in all, each slice on one island, no device twice
  try:   use a --topology with more or larger islands or more memory, or smaller slices
