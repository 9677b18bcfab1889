// RUN: pwc opt - --no-debug-info --pass-pipeline=per-device
// A module for one device says that it is the share of a computation that is not there.
#a = #sdy.sharding_per_value<[<@m0, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "plan", pw.platform = "cpu"} {
  "pw.island"() {name = "i", hosts = 1 : i64, devices = 1 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t) -> !t { return %x : !t } }
  module @h attributes {mhlo.num_partitions = 1 : i32, pw.per_device_of = @gone} { func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>}) -> !t attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0, island = @i, in_shardings = #a, out_shardings = #a, step = 0 : i64} : (!t) -> !t
    return %a : !t
  }
  "pw.plan"() ({
    "pw.buffers"() {name = "x", owner = "x", role = "input", slot = 0 : i64, birth = -1 : i64, deaths = array<i64: 0>, bytes = array<i64: 4>,
      sharding = #a, shards = [!t], types = [!t]} : () -> ()
    "pw.buffers"() {name = "a", owner = "a", role = "value", slot = 1 : i64, birth = 0 : i64, deaths = array<i64: -1>, bytes = array<i64: 4>,
      sharding = #a, shards = [!t], types = [!t]} : () -> ()
    "pw.run"() {callee = @f, mesh = @m0, inputs = array<i64: 0>, outputs = array<i64: 1>, donated = array<i64>, step = 0 : i64} : () -> ()
    "pw.free"() {slots = array<i64: 0>, step = 0 : i64} : () -> ()
  }) {island = @i, peak_bytes = 8 : i64} : () -> ()
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: builtin.module is for one device of @gone, which does not exist
  --> -:9
  have:  module @h attributes {mhlo.num_partitions = 1 : i32, pw.per_device_of = @gone} {
           func.func @main(%arg0: tensor<f32>) -> tensor<f32> {
             return %arg0 : tensor<f32>
           }
         }
  need:  a computation of the module
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
