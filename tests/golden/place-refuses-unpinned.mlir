// RUN: pwc opt - --no-debug-info --pass-pipeline='place{policy=pinned}' --topology islands=1,devices=2
// The policy that chooses nothing is given a slice without an island.
#sx = #sdy.sharding<@m0, [{"x"}]>
#x = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>
!t = tensor<8xf32>
module attributes {pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "shard", pw.platform = "cpu"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @m0 = <["x"=2]>
    func.func @main(%x: !t {sdy.sharding = #sx}) -> (!t {sdy.sharding = #sx}) { return %x : !t } }
  func.func @p(%x0: !t {pw.name = "x0", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, [{"x"}]>}) attributes {pw.program} {
    %a = "pw.call"(%x0) {callee = @f, mesh = @m0, in_shardings = #x, out_shardings = #x} : (!t) -> !t
    return
  }
}
// EXPECTED exit 3
error[PWC0306]: placement `pinned` chooses no islands, but s0 (-:6) name none
  --> -:6
  have:  add_slice(...) without island=
  need:  add_slice(..., island=...) for every slice
  try:   add_slice(..., island='island0'), or --placement spread
