// RUN: pwc opt - --no-debug-info --pass-pipeline='order-calls{schedule=sometimes}'
// There is no such schedule, and no file of that name.
#a = #sdy.sharding_per_value<[<@m0, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "transfer", pw.platform = "cpu"} {
  "pw.island"() {name = "i", hosts = 1 : i64, devices = 1 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>}) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0, island = @i, in_shardings = #a, out_shardings = #a} : (!t) -> !t
    return
  }
}
// EXPECTED exit 2
error[PWC0405]: there is no schedule sometimes
  have:  sometimes
  need:  the name of a schedule, or a table FILE.csv
  try:   known: program, gpipe, 1f1b, interleaved, zero-bubble
