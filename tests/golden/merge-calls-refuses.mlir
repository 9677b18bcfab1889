// RUN: pwc opt - --no-debug-info --pass-pipeline=merge-calls
module attributes {pw.dcn_gbps = 1.250000e+01 : f64, pw.in_tree = "{\22kind\22:\22tuple\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22tuple\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "place", pw.platform = "cpu"} {
  "pw.island"() {devices = 2 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "any", name = "island0"} : () -> ()
  "pw.island"() {devices = 4 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "any", name = "pod"} : () -> ()
  "pw.slice"() {device_ids = "0:2", devices = 2 : i64, island = @island0, reason = "the only island with room for it", sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {device_ids = "0:4", devices = 4 : i64, island = @pod, pin = "pod", reason = "pinned to pod by the user", sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["y"=4]>, devices = "0:4", slice = @s1, sym_name = "m1"} : () -> ()
  module @scale attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]> {stablehlo.mesh = {axes = [{name = "x", size = 2 : i64}]}}
    func.func public @main(%operands5B05D: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}, %operands5B15D: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> (tensor<8x4xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
      %jit28scale292Fbroadcast_in_dim = stablehlo.broadcast_in_dim %operands5B05D, dims = [1] : (tensor<4xf32>) -> tensor<1x4xf32>
      %jit28scale292Fmul = stablehlo.broadcast_in_dim %jit28scale292Fbroadcast_in_dim, dims = [0, 1] : (tensor<1x4xf32>) -> tensor<8x4xf32>
      %jit28scale292Fmul_0 = stablehlo.multiply %operands5B15D, %jit28scale292Fmul : tensor<8x4xf32>
      return %jit28scale292Fmul_0 : tensor<8x4xf32>
    }
  }
  module @total attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["y"=4]> {stablehlo.mesh = {axes = [{name = "y", size = 4 : i64}]}}
    func.func public @main(%operands5B05D: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}) -> (tensor<8xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
      %jit28total292Freduce_sum = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %jit28total292Freduce_sum_0 = stablehlo.reduce(%operands5B05D init: %jit28total292Freduce_sum) applies stablehlo.add across dimensions = [1] : (tensor<8x4xf32>, tensor<f32>) -> tensor<8xf32>
      return %jit28total292Freduce_sum_0 : tensor<8xf32>
    }
  }
  module @add attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["y"=4]>
    func.func public @main(%operands5B05D: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) -> (tensor<8xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
      %jit28add29 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %jit28add292Fadd = stablehlo.broadcast_in_dim %jit28add29, dims = [] : (tensor<f32>) -> tensor<8xf32>
      %jit28add292Fadd_0 = stablehlo.add %operands5B05D, %jit28add292Fadd : tensor<8xf32>
      return %jit28add292Fadd_0 : tensor<8xf32>
    }
  }
  func.func @step(%w: tensor<4xf32> {pw.mesh = @m0, pw.name = "w", pw.sharding = #sdy.sharding<@m0, [{}]>}, %x: tensor<8x4xf32> {pw.donate, pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}, {}]>}) -> (tensor<8xf32> {pw.name = "out[0]"}, tensor<8x4xf32> {pw.name = "out[1]"}) attributes {pw.program} {
    %scale = "pw.call"(%w, %x) {callee = @scale, in_shardings = #sdy.sharding_per_value<[<@m0, [{}]>, <@m0, [{"x"}, {}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>} : (tensor<4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    %total = "pw.call"(%scale) {callee = @total, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"y"}]>]>, island = @pod, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}]>]>} : (tensor<8x4xf32>) -> tensor<8xf32>
    %add = "pw.call"(%total) {callee = @add, gathered, in_shardings = #sdy.sharding_per_value<[<@m1, [{}]>]>, island = @pod, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    %moved = "pw.transfer"(%scale) {mesh = @m1, sharding = #sdy.sharding_per_value<[<@m1, [{"y"}, {}]>]>, user} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %add, %moved : tensor<8xf32>, tensor<8x4xf32>
  }
}
// EXPECTED exit 3
error[PWC0703]: the pass merge-calls needs IR of phase schedule
  have:  IR of phase place
  need:  phase schedule
  try:   pwc compile runs the phases between, from a source or an earlier dump
