// RUN: pwc compile small.mlir --emit mpmd
module @step attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["data"=2]>
  sdy.mesh @mesh_1 = <["one"=1]>
  func.func public @main(%xs5B05D: !mpmd.mesh_tensor<"m0", tensor<2x4xf32>, sharding=<@mesh, [{"data"}, {}]>> {jax.buffer_donor = true}, %xs5B15D: !mpmd.mesh_tensor<"m0", tensor<2x4xf32>, sharding=<@mesh, [{"data"}, {}]>>, %total: !mpmd.mesh_tensor<"m1", tensor<2x4xf32>, sharding=<@mesh_1, [{}, {}]>> {jax.buffer_donor = true}) -> (!mpmd.mesh_tensor<"m1", tensor<2x4xf32>, sharding=<@mesh_1, [{}, {}]>> {jax.result_info = "out[0]"}, !mpmd.mesh_tensor<"m0", tensor<2x4xf32>, sharding=<@mesh, [{"data"}, {}]>> {jax.result_info = "out[1]"}) attributes {topology = #mpmd.topology<<"m0" : <["data"=2]>>, <"m1" : <["one"=1]>>>} {
    %c = mpmd.fragment_call<mesh="m0", origin=[]> @p0_constant.step() : () -> !mpmd.mesh_tensor<"m0", tensor<2x4xf32>, sharding=<@mesh, [{}, {}]>>
    %0 = mpmd.fragment_call<mesh="m0", origin=["first"]> @p1_stage0_fwd_calls0to1.step(%xs5B05D, %c) {actions = ["0F0"]} : (!mpmd.mesh_tensor<"m0", tensor<2x4xf32>, sharding=<@mesh, [{"data"}, {}]>>, !mpmd.mesh_tensor<"m0", tensor<2x4xf32>, sharding=<@mesh, [{}, {}]>>) -> !mpmd.mesh_tensor<"m0", tensor<2x4xf32>, sharding=<@mesh, [{"data"}, {}]>>
    %1 = mpmd.transfer %0 : (!mpmd.mesh_tensor<"m0", tensor<2x4xf32>, sharding=<@mesh, [{"data"}, {}]>>) -> !mpmd.mesh_tensor<"m1", tensor<2x4xf32>, sharding=<@mesh_1, [{}, {}]>>
    %2 = mpmd.fragment_call<mesh="m1", origin=["last"]> @p2_stage1_fwd_calls0to1.step(%1, %total) {actions = ["1F0"]} : (!mpmd.mesh_tensor<"m1", tensor<2x4xf32>, sharding=<@mesh_1, [{}, {}]>>, !mpmd.mesh_tensor<"m1", tensor<2x4xf32>, sharding=<@mesh_1, [{}, {}]>>) -> !mpmd.mesh_tensor<"m1", tensor<2x4xf32>, sharding=<@mesh_1, [{}, {}]>>
    %3 = mpmd.fragment_call<mesh="m0", origin=["first"]> @p1_stage0_fwd_calls0to1.step(%xs5B15D, %c) {actions = ["0F1"]} : (!mpmd.mesh_tensor<"m0", tensor<2x4xf32>, sharding=<@mesh, [{"data"}, {}]>>, !mpmd.mesh_tensor<"m0", tensor<2x4xf32>, sharding=<@mesh, [{}, {}]>>) -> !mpmd.mesh_tensor<"m0", tensor<2x4xf32>, sharding=<@mesh, [{"data"}, {}]>>
    %4 = mpmd.transfer %3 : (!mpmd.mesh_tensor<"m0", tensor<2x4xf32>, sharding=<@mesh, [{"data"}, {}]>>) -> !mpmd.mesh_tensor<"m1", tensor<2x4xf32>, sharding=<@mesh_1, [{}, {}]>>
    %5 = mpmd.fragment_call<mesh="m1", origin=["last"]> @p2_stage1_fwd_calls0to1.step(%4, %2) {actions = ["1F1"]} : (!mpmd.mesh_tensor<"m1", tensor<2x4xf32>, sharding=<@mesh_1, [{}, {}]>>, !mpmd.mesh_tensor<"m1", tensor<2x4xf32>, sharding=<@mesh_1, [{}, {}]>>) -> !mpmd.mesh_tensor<"m1", tensor<2x4xf32>, sharding=<@mesh_1, [{}, {}]>>
    return %5, %3 : !mpmd.mesh_tensor<"m1", tensor<2x4xf32>, sharding=<@mesh_1, [{}, {}]>>, !mpmd.mesh_tensor<"m0", tensor<2x4xf32>, sharding=<@mesh, [{"data"}, {}]>>
  }
  func.func @p0_constant.step() -> (tensor<2x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) attributes {mesh_shape = #sdy.mesh<["data"=2]>} {
    %cst = stablehlo.constant dense<[[1.000000e+00, 2.000000e+00, 0.000000e+00, 1.000000e+00], [1.000000e+00, 2.000000e+00, 0.000000e+00, 1.000000e+00]]> : tensor<2x4xf32>
    return %cst : tensor<2x4xf32>
  }
  func.func @p1_stage0_fwd_calls0to1.step(%arg0: tensor<2x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}, %arg1: tensor<2x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<2x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}) attributes {mesh_shape = #sdy.mesh<["data"=2]>} {
    %0 = call @p1_stage0_fwd_calls0to1.step.helper(%arg0, %arg1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{"data"}, {}]> : tensor<2x4xf32>
    return %1 : tensor<2x4xf32>
  }
  func.func private @p1_stage0_fwd_calls0to1.step.helper(%arg0: tensor<2x4xf32>, %arg1: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %0 = stablehlo.multiply %arg0, %arg1 : tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
  func.func @p2_stage1_fwd_calls0to1.step(%arg0: tensor<2x4xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<2x4xf32> {jax.buffer_donor = true}) -> tensor<2x4xf32> attributes {mesh_shape = #sdy.mesh<["one"=1]>} {
    %0 = stablehlo.add %arg0, %arg1 : tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}
