// RUN: pwc opt - --no-debug-info --pass-pipeline=per-device
// What needs no other device is written once more for one of them; what adds up over devices is not.
#sx = #sdy.sharding<@m0, [{"x"}]>
#x = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>
#r = #sdy.sharding_per_value<[<@m0, []>]>
!t = tensor<4xf32>
!s = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "plan", pw.platform = "cpu"} {
  "pw.island"() {name = "i", hosts = 1 : i64, devices = 2 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 2 : i64, island = @i, device_ids = "0:2"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @m0 = <["x"=2]>
    func.func @main(%x: !t {sdy.sharding = #sx}) -> (!t {sdy.sharding = #sx}) { %0 = stablehlo.multiply %x, %x : !t return %0 : !t } }
  module @g attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @m0 = <["x"=2]>
    func.func @main(%x: !t {sdy.sharding = #sx}) -> (!s {sdy.sharding = #sdy.sharding<@m0, []>}) { %0 = stablehlo.constant dense<0.0> : !s
      %1 = stablehlo.reduce(%x init: %0) applies stablehlo.add across dimensions = [0] : (!t, !s) -> !s return %1 : !s } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sx}) -> !s attributes {pw.program} {
    %y = "pw.call"(%x) {callee = @f, mesh = @m0, island = @i, in_shardings = #x, out_shardings = #x, step = 0 : i64} : (!t) -> !t
    %z = "pw.call"(%y) {callee = @g, mesh = @m0, island = @i, in_shardings = #x, out_shardings = #r, step = 1 : i64} : (!t) -> !s
    return %z : !s
  }
  "pw.plan"() ({
    "pw.buffers"() {name = "x", owner = "x", role = "input", slot = 0 : i64, birth = -1 : i64, deaths = array<i64: 0>, bytes = array<i64: 8>,
      sharding = #x, shards = [tensor<2xf32>], types = [!t]} : () -> ()
    "pw.buffers"() {name = "y", owner = "y", role = "value", slot = 1 : i64, birth = 0 : i64, deaths = array<i64: -1>, bytes = array<i64: 8>,
      sharding = #x, shards = [tensor<2xf32>], types = [!t]} : () -> ()
    "pw.run"() {callee = @f, mesh = @m0, inputs = array<i64: 0>, outputs = array<i64: 1>, donated = array<i64>, step = 0 : i64} : () -> ()
    "pw.buffers"() {name = "z", owner = "results", role = "value", slot = 2 : i64, birth = 1 : i64, deaths = array<i64: -1>, bytes = array<i64: 4>,
      sharding = #r, shards = [!s], types = [!s]} : () -> ()
    "pw.run"() {callee = @g, mesh = @m0, inputs = array<i64: 1>, outputs = array<i64: 2>, donated = array<i64>, step = 1 : i64} : () -> ()
  }) {island = @i, peak_bytes = 20 : i64} : () -> ()
}
// EXPECTED exit 0
module attributes {pw.dcn_gbps = 1.000000e+00 : f64, pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "plan", pw.platform = "cpu"} {
  "pw.island"() {devices = 2 : i64, hosts = 1 : i64, kind = "any", name = "i"} : () -> ()
  "pw.slice"() {device_ids = "0:2", devices = 2 : i64, island = @i, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32} {
    sdy.mesh @m0 = <["x"=2]>
    func.func @main(%arg0: tensor<4xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}]>}) {
      %0 = stablehlo.multiply %arg0, %arg0 : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }
  module @g attributes {mhlo.num_partitions = 2 : i32} {
    sdy.mesh @m0 = <["x"=2]>
    func.func @main(%arg0: tensor<4xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> (tensor<f32> {sdy.sharding = #sdy.sharding<@m0, []>}) {
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }
  }
  func.func @p(%arg0: tensor<4xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> tensor<f32> attributes {pw.program} {
    %0 = "pw.call"(%arg0) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, island = @i, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, step = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "pw.call"(%0) {callee = @g, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, island = @i, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 1 : i64} : (tensor<4xf32>) -> tensor<f32>
    return %1 : tensor<f32>
  }
  "pw.plan"() ({
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 8>, deaths = array<i64: 0>, name = "x", owner = "x", role = "input", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<2xf32>], slot = 0 : i64, types = [tensor<4xf32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 8>, deaths = array<i64: -1>, name = "y", owner = "y", role = "value", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<2xf32>], slot = 1 : i64, types = [tensor<4xf32>]} : () -> ()
    "pw.run"() {callee = @f, donated = array<i64>, inputs = array<i64: 0>, mesh = @m0, outputs = array<i64: 1>, step = 0 : i64} : () -> ()
    "pw.buffers"() {birth = 1 : i64, bytes = array<i64: 4>, deaths = array<i64: -1>, name = "z", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<f32>], slot = 2 : i64, types = [tensor<f32>]} : () -> ()
    "pw.run"() {callee = @g, donated = array<i64>, inputs = array<i64: 1>, mesh = @m0, outputs = array<i64: 2>, step = 1 : i64} : () -> ()
  }) {island = @i, peak_bytes = 20 : i64} : () -> ()
  module @f_per_device attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32, pw.per_device_of = @f} {
    func.func @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.multiply %arg0, %arg0 : tensor<2xf32>
      return %0 : tensor<2xf32>
    }
  }
}

