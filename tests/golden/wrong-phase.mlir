// RUN: pwc opt - --no-debug-info --pass-pipeline=merge-calls
// A pass refuses IR of an earlier phase than it requires, before it looks at it.
#x = #sdy.sharding_per_value<[<@m0, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "place", pw.platform = "cpu"} {
  "pw.island"() {name = "i0", hosts = 1 : i64, devices = 1 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i0, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>}) -> !t attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0, island = @i0, in_shardings = #x, out_shardings = #x} : (!t) -> !t
    return %a : !t
  }
}
// EXPECTED exit 3
error[PWC0703]: the pass merge-calls needs IR of phase schedule
  have:  IR of phase place
  need:  phase schedule
  try:   pwc compile runs the phases in between, from a source or an earlier dump
