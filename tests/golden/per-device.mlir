// RUN: pwc opt - --no-debug-info --pass-pipeline=per-device
module attributes {pw.dcn_gbps = 12.5 : f64, pw.in_tree = "{\22kind\22:\22tuple\22,\22children\22:[\22leaf\22]}", pw.out_tree = "\22leaf\22", pw.phase = "plan", pw.platform = "cpu"} {
  "pw.island"() {devices = 2 : i64, hosts = 1 : i64, kind = "any", name = "island0"} : () -> ()
  "pw.slice"() {device_ids = "0:2", devices = 2 : i64, island = @island0, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  module @square attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func public @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
      %0 = stablehlo.multiply %x, %x : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }
  module @total attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func public @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<f32> {sdy.sharding = #sdy.sharding<@mesh, []>}) {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }
  }
  func.func @step(%x: tensor<4xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> (tensor<f32> {pw.name = "out"}) attributes {pw.program} {
    %y = "pw.call"(%x) {callee = @square, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, step = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    %z = "pw.call"(%y) {callee = @total, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 1 : i64} : (tensor<4xf32>) -> tensor<f32>
    return %z : tensor<f32>
  }
  "pw.plan"() ({
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 8>, deaths = array<i64: 0>, name = "x", owner = "x", role = "input", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<2xf32>], slot = 0 : i64, types = [tensor<4xf32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 8>, deaths = array<i64: -1>, name = "y", owner = "y", role = "value", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<2xf32>], slot = 1 : i64, types = [tensor<4xf32>]} : () -> ()
    "pw.run"() {callee = @square, donated = array<i64>, inputs = array<i64: 0>, mesh = @m0, outputs = array<i64: 1>, step = 0 : i64} : () -> ()
    "pw.buffers"() {birth = 1 : i64, bytes = array<i64: 4>, deaths = array<i64: -1>, name = "z", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<f32>], slot = 2 : i64, types = [tensor<f32>]} : () -> ()
    "pw.run"() {callee = @total, donated = array<i64>, inputs = array<i64: 1>, mesh = @m0, outputs = array<i64: 2>, step = 1 : i64} : () -> ()
  }) {island = @island0, peak_bytes = 20 : i64} : () -> ()
}
// EXPECTED exit 0
module attributes {pw.dcn_gbps = 1.250000e+01 : f64, pw.in_tree = "{\22kind\22:\22tuple\22,\22children\22:[\22leaf\22]}", pw.out_tree = "\22leaf\22", pw.phase = "plan", pw.platform = "cpu"} {
  "pw.island"() {devices = 2 : i64, hosts = 1 : i64, kind = "any", name = "island0"} : () -> ()
  "pw.slice"() {device_ids = "0:2", devices = 2 : i64, island = @island0, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  module @square attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func public @main(%arg0: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
      %0 = stablehlo.multiply %arg0, %arg0 : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }
  module @total attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func public @main(%arg0: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<f32> {sdy.sharding = #sdy.sharding<@mesh, []>}) {
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }
  }
  func.func @step(%arg0: tensor<4xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> (tensor<f32> {pw.name = "out"}) attributes {pw.program} {
    %0 = "pw.call"(%arg0) {callee = @square, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, step = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "pw.call"(%0) {callee = @total, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 1 : i64} : (tensor<4xf32>) -> tensor<f32>
    return %1 : tensor<f32>
  }
  "pw.plan"() ({
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 8>, deaths = array<i64: 0>, name = "x", owner = "x", role = "input", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<2xf32>], slot = 0 : i64, types = [tensor<4xf32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 8>, deaths = array<i64: -1>, name = "y", owner = "y", role = "value", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<2xf32>], slot = 1 : i64, types = [tensor<4xf32>]} : () -> ()
    "pw.run"() {callee = @square, donated = array<i64>, inputs = array<i64: 0>, mesh = @m0, outputs = array<i64: 1>, step = 0 : i64} : () -> ()
    "pw.buffers"() {birth = 1 : i64, bytes = array<i64: 4>, deaths = array<i64: -1>, name = "z", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<f32>], slot = 2 : i64, types = [tensor<f32>]} : () -> ()
    "pw.run"() {callee = @total, donated = array<i64>, inputs = array<i64: 1>, mesh = @m0, outputs = array<i64: 2>, step = 1 : i64} : () -> ()
  }) {island = @island0, peak_bytes = 20 : i64} : () -> ()
  module @square_per_device attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32, pw.per_device_of = @square} {
    func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.multiply %arg0, %arg0 : tensor<2xf32>
      return %0 : tensor<2xf32>
    }
  }
}

