// RUN: pwc opt - --no-debug-info --pass-pipeline=propagate-shardings
module attributes {pw.in_tree = "{\22kind\22:\22tuple\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22tuple\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "trace", pw.platform = "cpu"} {
  "pw.slice"() {devices = 2 : i64, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {devices = 4 : i64, pin = "pod", sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["y"=4]>, devices = "0:4", slice = @s1, sym_name = "m1"} : () -> ()
  module @scale attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]> {stablehlo.mesh = {axes = [{name = "x", size = 2 : i64}]}}
    func.func public @main(%operands5B05D: tensor<4xf32>, %operands5B15D: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> (tensor<8x4xf32> {jax.result_info = "result[0]"}) {
      %jit28scale292Fbroadcast_in_dim = stablehlo.broadcast_in_dim %operands5B05D, dims = [1] : (tensor<4xf32>) -> tensor<1x4xf32>
      %jit28scale292Fmul = stablehlo.broadcast_in_dim %jit28scale292Fbroadcast_in_dim, dims = [0, 1] : (tensor<1x4xf32>) -> tensor<8x4xf32>
      %jit28scale292Fmul_0 = stablehlo.multiply %operands5B15D, %jit28scale292Fmul : tensor<8x4xf32>
      return %jit28scale292Fmul_0 : tensor<8x4xf32>
    }
  }
  module @total attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["y"=4]> {stablehlo.mesh = {axes = [{name = "y", size = 4 : i64}]}}
    func.func public @main(%operands5B05D: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}) -> (tensor<8xf32> {jax.result_info = "result[0]"}) {
      %jit28total292Freduce_sum = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %jit28total292Freduce_sum_0 = stablehlo.reduce(%operands5B05D init: %jit28total292Freduce_sum) applies stablehlo.add across dimensions = [1] : (tensor<8x4xf32>, tensor<f32>) -> tensor<8xf32>
      return %jit28total292Freduce_sum_0 : tensor<8xf32>
    }
  }
  module @add attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    func.func public @main(%operands5B05D: tensor<8xf32>) -> (tensor<8xf32> {jax.result_info = "result[0]"}) {
      %jit28add29 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %jit28add292Fadd = stablehlo.broadcast_in_dim %jit28add29, dims = [] : (tensor<f32>) -> tensor<8xf32>
      %jit28add292Fadd_0 = stablehlo.add %operands5B05D, %jit28add292Fadd : tensor<8xf32>
      return %jit28add292Fadd_0 : tensor<8xf32>
    }
  }
  func.func @step(%w: tensor<4xf32> {pw.mesh = @m0, pw.name = "w"}, %x: tensor<8x4xf32> {pw.donate, pw.mesh = @m0, pw.name = "x"}) -> (tensor<8xf32> {pw.name = "out[0]"}, tensor<8x4xf32> {pw.name = "out[1]"}) attributes {pw.program} {
    %scale = "pw.call"(%w, %x) {callee = @missing, mesh = @m0} : (tensor<4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    %total = "pw.call"(%scale) {callee = @total, mesh = @m1} : (tensor<8x4xf32>) -> tensor<8xf32>
    %add = "pw.call"(%total) {callee = @add, gathered, mesh = @m1} : (tensor<8xf32>) -> tensor<8xf32>
    %moved = "pw.transfer"(%scale) {mesh = @m1, sharding = #sdy.sharding_per_value<[<@m1, [{"y"}, {}]>]>, user} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %add, %moved : tensor<8xf32>, tensor<8x4xf32>
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is not valid: pw.call  calls @missing, which is not there
  --> -:32
  have:  %0 = "pw.call"(%arg0, %arg1) {callee = @missing, mesh = @m0} : (tensor<4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  need:  a nested module that no other function calls
  try:   look at the op in the dump of the phase before, or rerun with --print-ir-after-all
