// RUN: pwc opt - --no-debug-info --pass-pipeline='merge-calls'
module attributes {pw.dcn_gbps = 1.250000e+01 : f64, pw.in_tree = "{\22kind\22:\22tuple\22,\22children\22:[{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]},\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "schedule", pw.placement = "spread: about 5.12 ns a run, 64 bytes between islands; 1e+12 flop/s assumed where none are stated", pw.platform = "cpu", pw.schedule = {bound = 0.33333333333333337 : f64, bubble = 0.33333333333333337 : f64, estimated_bound = 0.91160220994475138 : f64, estimated_bubble = 0.95355587808417996 : f64, estimated_seconds = 2.7559999999999996E-9 : f64, microbatches = 2 : i64, name = "1f1b", note = "", slices = 2 : i64, stages = 2 : i64}} {
  "pw.island"() {devices = 1 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "any", name = "island0"} : () -> ()
  "pw.island"() {devices = 1 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "any", name = "island1"} : () -> ()
  "pw.slice"() {device_ids = "0", devices = 1 : i64, island = @island0, reason = "least taken of 2 islands (0%)", runner_up = "island1, in exchange for s1: 5.13 ns a run (the same)", sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {device_ids = "0", devices = 1 : i64, island = @island1, reason = "the only island with room for it", runner_up = "island0, in exchange for s0: 5.13 ns a run (the same)", sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s1, sym_name = "m1"} : () -> ()
  module @dynamic_slice_squeeze attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]>
    func.func public @main(%operands5B05D: tensor<2x2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {}]>}, %operands5B15D: tensor<ui32> {sdy.sharding = #sdy.sharding<@mesh, []>}) -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %jit28dynamic_slice_squeeze29 = stablehlo.constant dense<0> : tensor<ui32>
      %jit28dynamic_slice_squeeze29_0 = stablehlo.constant dense<0> : tensor<ui32>
      %jit28dynamic_slice_squeeze292Fdynamic_slice = stablehlo.dynamic_slice %operands5B05D, %operands5B15D, %jit28dynamic_slice_squeeze29, %jit28dynamic_slice_squeeze29_0, sizes = [1, 2, 2] : (tensor<2x2x2xf32>, tensor<ui32>, tensor<ui32>, tensor<ui32>) -> tensor<1x2x2xf32>
      %jit28dynamic_slice_squeeze292Fsqueeze = stablehlo.reshape %jit28dynamic_slice_squeeze292Fdynamic_slice : (tensor<1x2x2xf32>) -> tensor<2x2xf32>
      return %jit28dynamic_slice_squeeze292Fsqueeze : tensor<2x2xf32>
    }
  }
  module @stage attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]> {stablehlo.mesh = {axes = [{name = "x", size = 1 : i64}]}}
    func.func public @main(%operands5B05D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %operands5B15D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, tensor<2x2xf32> {jax.result_info = "result[1]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %jit28stage292Fdot_general = stablehlo.dot_general %operands5B15D, %operands5B05D, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %jit28stage292Ftanh = stablehlo.tanh %jit28stage292Fdot_general : tensor<2x2xf32>
      %jit28stage29 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %jit28stage292Fsub = stablehlo.broadcast_in_dim %jit28stage29, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      %jit28stage292Fsub_0 = stablehlo.subtract %jit28stage292Fsub, %jit28stage292Ftanh : tensor<2x2xf32>
      return %jit28stage292Ftanh, %jit28stage292Fsub_0 : tensor<2x2xf32>, tensor<2x2xf32>
    }
  }
  module @broadcast_in_dim attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]>
    func.func public @main() -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %jit28broadcast_in_dim29 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %jit28broadcast_in_dim292Ftranspose28jvp2829292Fbroadcast_in_dim = stablehlo.broadcast_in_dim %jit28broadcast_in_dim29, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      return %jit28broadcast_in_dim292Ftranspose28jvp2829292Fbroadcast_in_dim : tensor<2x2xf32>
    }
  }
  module @stage_1 attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]> {stablehlo.mesh = {axes = [{name = "x", size = 1 : i64}]}}
    func.func public @main(%operands5B05D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %operands5B15D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %operands5B25D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %operands5B35D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %operands5B45D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, tensor<2x2xf32> {jax.result_info = "result[1]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %jit28stage292Fmul = stablehlo.multiply %operands5B45D, %operands5B35D : tensor<2x2xf32>
      %jit28stage292Fmul_0 = stablehlo.multiply %jit28stage292Fmul, %operands5B25D : tensor<2x2xf32>
      %jit28stage292Fadd_any = stablehlo.add %jit28stage292Fmul, %jit28stage292Fmul_0 : tensor<2x2xf32>
      %jit28stage292Fdot_general = stablehlo.dot_general %jit28stage292Fadd_any, %operands5B15D, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %jit28stage292Ftranspose = stablehlo.transpose %jit28stage292Fdot_general, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
      %jit28stage292Fdot_general_1 = stablehlo.dot_general %jit28stage292Fadd_any, %operands5B05D, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      return %jit28stage292Ftranspose, %jit28stage292Fdot_general_1 : tensor<2x2xf32>, tensor<2x2xf32>
    }
  }
  module @broadcast_in_dim_add attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]>
    func.func public @main(%operands5B05D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %jit28broadcast_in_dim_add29 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %jit28broadcast_in_dim_add292Fbroadcast_in_dim = stablehlo.broadcast_in_dim %jit28broadcast_in_dim_add29, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      %jit28broadcast_in_dim_add292Fadd = stablehlo.add %jit28broadcast_in_dim_add292Fbroadcast_in_dim, %operands5B05D : tensor<2x2xf32>
      return %jit28broadcast_in_dim_add292Fadd : tensor<2x2xf32>
    }
  }
  module @stage_2 attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]> {stablehlo.mesh = {axes = [{name = "x", size = 1 : i64}]}}
    func.func public @main(%operands5B05D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %operands5B15D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %operands5B25D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %operands5B35D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %jit28stage292Fmul = stablehlo.multiply %operands5B35D, %operands5B25D : tensor<2x2xf32>
      %jit28stage292Fmul_0 = stablehlo.multiply %jit28stage292Fmul, %operands5B15D : tensor<2x2xf32>
      %jit28stage292Fadd_any = stablehlo.add %jit28stage292Fmul, %jit28stage292Fmul_0 : tensor<2x2xf32>
      %jit28stage292Fdot_general = stablehlo.dot_general %jit28stage292Fadd_any, %operands5B05D, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %jit28stage292Ftranspose = stablehlo.transpose %jit28stage292Fdot_general, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
      return %jit28stage292Ftranspose : tensor<2x2xf32>
    }
  }
  module @add attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]>
    func.func public @main(%operands5B05D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %operands5B15D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %jit28add292Fadd = stablehlo.add %operands5B05D, %operands5B15D : tensor<2x2xf32>
      return %jit28add292Fadd : tensor<2x2xf32>
    }
  }
  func.func @step(%index_0: tensor<ui32> {pw.mesh = @m0, pw.name = "index 0", pw.sharding = #sdy.sharding<@m0, []>, pw.value = "00000000"}, %index_1: tensor<ui32> {pw.mesh = @m0, pw.name = "index 1", pw.sharding = #sdy.sharding<@m0, []>, pw.value = "01000000"}, %ws_0: tensor<2x2xf32> {pw.mesh = @m0, pw.name = "ws[0]", pw.sharding = #sdy.sharding<@m0, [{}, {}]>}, %ws_1: tensor<2x2xf32> {pw.mesh = @m1, pw.name = "ws[1]", pw.sharding = #sdy.sharding<@m1, [{}, {}]>}, %xs: tensor<2x2x2xf32> {pw.mesh = @m0, pw.name = "xs", pw.sharding = #sdy.sharding<@m0, [{}, {}, {}]>}) -> (tensor<2x2xf32> {pw.name = "out[0]"}, tensor<2x2xf32> {pw.name = "out[1]"}) attributes {pw.program} {
    %dynamic_slice_squeeze = "pw.call"(%xs, %index_0) {action = "0F0", callee = @dynamic_slice_squeeze, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}, {}]>, <@m0, []>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, step = 0 : i64} : (tensor<2x2x2xf32>, tensor<ui32>) -> tensor<2x2xf32>
    %stage:2 = "pw.call"(%ws_0, %dynamic_slice_squeeze) {action = "0F0", callee = @stage, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{}, {}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{}, {}]>]>, step = 1 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %stage_0 = "pw.transfer"(%stage#0) {bytes = 16 : i64, mesh = @m1, reason = "stage runs on s1 and takes it, s0 holds it", route = "dcn", runner_up = "the whole array to every device: 16 bytes instead of 16", sharding = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, source = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, step = 2 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %stage_1:2 = "pw.call"(%ws_1, %stage_0) {action = "1F0", callee = @stage, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>]>, step = 3 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %dynamic_slice_squeeze_2 = "pw.call"(%xs, %index_1) {action = "0F1", callee = @dynamic_slice_squeeze, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}, {}]>, <@m0, []>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, step = 4 : i64} : (tensor<2x2x2xf32>, tensor<ui32>) -> tensor<2x2xf32>
    %stage_3:2 = "pw.call"(%ws_0, %dynamic_slice_squeeze_2) {action = "0F1", callee = @stage, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{}, {}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{}, {}]>]>, step = 5 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %broadcast_in_dim = "pw.call"() {action = "1B0", callee = @broadcast_in_dim, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, step = 6 : i64} : () -> tensor<2x2xf32>
    %stage_4:2 = "pw.call"(%ws_1, %stage_0, %stage_1#0, %stage_1#1, %broadcast_in_dim) {action = "1B0", callee = @stage_1, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>, <@m1, [{}, {}]>, <@m1, [{}, {}]>, <@m1, [{}, {}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>]>, step = 7 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %stage_5 = "pw.transfer"(%stage_3#0) {bytes = 16 : i64, mesh = @m1, reason = "stage runs on s1 and takes it, s0 holds it", route = "dcn", runner_up = "the whole array to every device: 16 bytes instead of 16", sharding = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, source = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, step = 8 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %stage_6 = "pw.transfer"(%stage_4#1) {bytes = 16 : i64, mesh = @m0, reason = "stage runs on s0 and takes it, s1 holds it", route = "dcn", runner_up = "the whole array to every device: 16 bytes instead of 16", sharding = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, source = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, step = 9 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %broadcast_in_dim_add = "pw.call"(%stage_4#0) {action = "1B0", callee = @broadcast_in_dim_add, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, step = 10 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %stage_7 = "pw.call"(%dynamic_slice_squeeze, %stage#0, %stage#1, %stage_6) {action = "0B0", callee = @stage_2, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{}, {}]>, <@m0, [{}, {}]>, <@m0, [{}, {}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, step = 11 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %stage_8:2 = "pw.call"(%ws_1, %stage_5) {action = "1F1", callee = @stage, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>]>, step = 12 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %broadcast_in_dim_9 = "pw.call"() {action = "1B1", callee = @broadcast_in_dim, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, step = 13 : i64} : () -> tensor<2x2xf32>
    %stage_10:2 = "pw.call"(%ws_1, %stage_5, %stage_8#0, %stage_8#1, %broadcast_in_dim_9) {action = "1B1", callee = @stage_1, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>, <@m1, [{}, {}]>, <@m1, [{}, {}]>, <@m1, [{}, {}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>]>, step = 14 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %broadcast_in_dim_add_11 = "pw.call"(%stage_7) {action = "0B0", callee = @broadcast_in_dim_add, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, step = 15 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %stage_12 = "pw.transfer"(%stage_10#1) {bytes = 16 : i64, mesh = @m0, reason = "stage runs on s0 and takes it, s1 holds it", route = "dcn", runner_up = "the whole array to every device: 16 bytes instead of 16", sharding = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, source = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, step = 16 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %add = "pw.call"(%broadcast_in_dim_add, %stage_10#0) {callee = @add, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, step = 17 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %stage_13 = "pw.call"(%dynamic_slice_squeeze_2, %stage_3#0, %stage_3#1, %stage_12) {action = "0B1", callee = @stage_2, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{}, {}]>, <@m0, [{}, {}]>, <@m0, [{}, {}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, step = 18 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %add_14 = "pw.call"(%broadcast_in_dim_add_11, %stage_13) {callee = @add, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{}, {}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, step = 19 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    return %add_14, %add : tensor<2x2xf32>, tensor<2x2xf32>
  }
}

// EXPECTED exit 0
module attributes {pw.dcn_gbps = 1.250000e+01 : f64, pw.in_tree = "{\22kind\22:\22tuple\22,\22children\22:[{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]},\22leaf\22]}", pw.merged, pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "schedule", pw.placement = "spread: about 5.12 ns a run, 64 bytes between islands; 1e+12 flop/s assumed where none are stated", pw.platform = "cpu", pw.schedule = {bound = 0.33333333333333337 : f64, bubble = 0.33333333333333337 : f64, estimated_bound = 0.91160220994475138 : f64, estimated_bubble = 0.95355587808417996 : f64, estimated_seconds = 2.7559999999999996E-9 : f64, microbatches = 2 : i64, name = "1f1b", note = "", slices = 2 : i64, stages = 2 : i64}} {
  "pw.island"() {devices = 1 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "any", name = "island0"} : () -> ()
  "pw.island"() {devices = 1 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "any", name = "island1"} : () -> ()
  "pw.slice"() {device_ids = "0", devices = 1 : i64, island = @island0, reason = "least taken of 2 islands (0%)", runner_up = "island1, in exchange for s1: 5.13 ns a run (the same)", sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {device_ids = "0", devices = 1 : i64, island = @island1, reason = "the only island with room for it", runner_up = "island0, in exchange for s0: 5.13 ns a run (the same)", sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s1, sym_name = "m1"} : () -> ()
  module @stage attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]> {stablehlo.mesh = {axes = [{name = "x", size = 1 : i64}]}}
    func.func public @main(%arg0: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg1: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, tensor<2x2xf32> {jax.result_info = "result[1]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %0 = stablehlo.dot_general %arg1, %arg0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %1 = stablehlo.tanh %0 : tensor<2x2xf32>
      %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      %3 = stablehlo.subtract %2, %1 : tensor<2x2xf32>
      return %1, %3 : tensor<2x2xf32>, tensor<2x2xf32>
    }
  }
  module @broadcast_in_dim attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]>
    func.func public @main() -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      return %0 : tensor<2x2xf32>
    }
  }
  module @stage_1 attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]> {stablehlo.mesh = {axes = [{name = "x", size = 1 : i64}]}}
    func.func public @main(%arg0: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg1: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg2: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg3: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg4: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, tensor<2x2xf32> {jax.result_info = "result[1]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %0 = stablehlo.multiply %arg4, %arg3 : tensor<2x2xf32>
      %1 = stablehlo.multiply %0, %arg2 : tensor<2x2xf32>
      %2 = stablehlo.add %0, %1 : tensor<2x2xf32>
      %3 = stablehlo.dot_general %2, %arg1, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %4 = stablehlo.transpose %3, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
      %5 = stablehlo.dot_general %2, %arg0, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      return %4, %5 : tensor<2x2xf32>, tensor<2x2xf32>
    }
  }
  module @broadcast_in_dim_add attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]>
    func.func public @main(%arg0: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      %1 = stablehlo.add %0, %arg0 : tensor<2x2xf32>
      return %1 : tensor<2x2xf32>
    }
  }
  module @add attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]>
    func.func public @main(%arg0: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg1: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %0 = stablehlo.add %arg0, %arg1 : tensor<2x2xf32>
      return %0 : tensor<2x2xf32>
    }
  }
  module @dynamic_slice_squeeze_stage attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]>
    func.func private @part0_main(%arg0: tensor<2x2x2xf32>, %arg1: tensor<ui32>) -> tensor<2x2xf32> {
      %c = stablehlo.constant dense<0> : tensor<ui32>
      %c_0 = stablehlo.constant dense<0> : tensor<ui32>
      %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, sizes = [1, 2, 2] : (tensor<2x2x2xf32>, tensor<ui32>, tensor<ui32>, tensor<ui32>) -> tensor<1x2x2xf32>
      %1 = stablehlo.reshape %0 : (tensor<1x2x2xf32>) -> tensor<2x2xf32>
      return %1 : tensor<2x2xf32>
    }
    func.func private @part1_main(%arg0: tensor<2x2xf32>, %arg1: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
      %0 = stablehlo.dot_general %arg1, %arg0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %1 = stablehlo.tanh %0 : tensor<2x2xf32>
      %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      %3 = stablehlo.subtract %2, %1 : tensor<2x2xf32>
      return %1, %3 : tensor<2x2xf32>, tensor<2x2xf32>
    }
    func.func public @main(%arg0: tensor<2x2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {}]>}, %arg1: tensor<ui32> {sdy.sharding = #sdy.sharding<@mesh, []>}, %arg2: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %0 = call @part0_main(%arg0, %arg1) : (tensor<2x2x2xf32>, tensor<ui32>) -> tensor<2x2xf32>
      %1:2 = call @part1_main(%arg2, %0) : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
      return %0, %1#0, %1#1 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>
    }
  }
  module @stage_2_broadcast_in_dim_add attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]> {stablehlo.mesh = {axes = [{name = "x", size = 1 : i64}]}}
    func.func private @part0_main(%arg0: tensor<2x2xf32>, %arg1: tensor<2x2xf32>, %arg2: tensor<2x2xf32>, %arg3: tensor<2x2xf32>) -> tensor<2x2xf32> {
      %0 = stablehlo.multiply %arg3, %arg2 : tensor<2x2xf32>
      %1 = stablehlo.multiply %0, %arg1 : tensor<2x2xf32>
      %2 = stablehlo.add %0, %1 : tensor<2x2xf32>
      %3 = stablehlo.dot_general %2, %arg0, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %4 = stablehlo.transpose %3, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
      return %4 : tensor<2x2xf32>
    }
    func.func private @part1_main(%arg0: tensor<2x2xf32>) -> tensor<2x2xf32> {
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      %1 = stablehlo.add %0, %arg0 : tensor<2x2xf32>
      return %1 : tensor<2x2xf32>
    }
    func.func public @main(%arg0: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg1: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg2: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg3: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %0 = call @part0_main(%arg0, %arg1, %arg2, %arg3) : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %1 = call @part1_main(%0) : (tensor<2x2xf32>) -> tensor<2x2xf32>
      return %1 : tensor<2x2xf32>
    }
  }
  module @stage_2_add attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]> {stablehlo.mesh = {axes = [{name = "x", size = 1 : i64}]}}
    func.func private @part0_main(%arg0: tensor<2x2xf32>, %arg1: tensor<2x2xf32>, %arg2: tensor<2x2xf32>, %arg3: tensor<2x2xf32>) -> tensor<2x2xf32> {
      %0 = stablehlo.multiply %arg3, %arg2 : tensor<2x2xf32>
      %1 = stablehlo.multiply %0, %arg1 : tensor<2x2xf32>
      %2 = stablehlo.add %0, %1 : tensor<2x2xf32>
      %3 = stablehlo.dot_general %2, %arg0, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %4 = stablehlo.transpose %3, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
      return %4 : tensor<2x2xf32>
    }
    func.func private @part1_main(%arg0: tensor<2x2xf32>, %arg1: tensor<2x2xf32>) -> tensor<2x2xf32> {
      %0 = stablehlo.add %arg0, %arg1 : tensor<2x2xf32>
      return %0 : tensor<2x2xf32>
    }
    func.func public @main(%arg0: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg1: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg2: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg3: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg4: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %0 = call @part0_main(%arg0, %arg1, %arg2, %arg3) : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %1 = call @part1_main(%arg4, %0) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      return %1 : tensor<2x2xf32>
    }
  }
  func.func @step(%arg0: tensor<ui32> {pw.mesh = @m0, pw.name = "index 0", pw.sharding = #sdy.sharding<@m0, []>, pw.value = "00000000"}, %arg1: tensor<ui32> {pw.mesh = @m0, pw.name = "index 1", pw.sharding = #sdy.sharding<@m0, []>, pw.value = "01000000"}, %arg2: tensor<2x2xf32> {pw.mesh = @m0, pw.name = "ws[0]", pw.sharding = #sdy.sharding<@m0, [{}, {}]>}, %arg3: tensor<2x2xf32> {pw.mesh = @m1, pw.name = "ws[1]", pw.sharding = #sdy.sharding<@m1, [{}, {}]>}, %arg4: tensor<2x2x2xf32> {pw.mesh = @m0, pw.name = "xs", pw.sharding = #sdy.sharding<@m0, [{}, {}, {}]>}) -> (tensor<2x2xf32> {pw.name = "out[0]"}, tensor<2x2xf32> {pw.name = "out[1]"}) attributes {pw.program} {
    %dynamic_slice_squeeze2Bstage:3 = "pw.call"(%arg4, %arg0, %arg2) {action = "0F0", callee = @dynamic_slice_squeeze_stage, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}, {}]>, <@m0, []>, <@m0, [{}, {}]>]>, island = @island0, made_by = array<i64: 0, 1, 1>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{}, {}]>, <@m0, [{}, {}]>]>, parts = ["0F0 dynamic_slice_squeeze -:77", "0F0 stage -:78"], step = 0 : i64} : (tensor<2x2x2xf32>, tensor<ui32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>)
    %0 = "pw.transfer"(%dynamic_slice_squeeze2Bstage#1) {bytes = 16 : i64, mesh = @m1, reason = "stage runs on s1 and takes it, s0 holds it", route = "dcn", runner_up = "the whole array to every device: 16 bytes instead of 16", sharding = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, source = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, step = 1 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %1:2 = "pw.call"(%arg3, %0) {action = "1F0", callee = @stage, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>]>, step = 2 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %dynamic_slice_squeeze2Bstage_0:3 = "pw.call"(%arg4, %arg1, %arg2) {action = "0F1", callee = @dynamic_slice_squeeze_stage, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}, {}]>, <@m0, []>, <@m0, [{}, {}]>]>, island = @island0, made_by = array<i64: 0, 1, 1>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{}, {}]>, <@m0, [{}, {}]>]>, parts = ["0F1 dynamic_slice_squeeze -:81", "0F1 stage -:82"], step = 3 : i64} : (tensor<2x2x2xf32>, tensor<ui32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>)
    %2 = "pw.call"() {action = "1B0", callee = @broadcast_in_dim, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, step = 4 : i64} : () -> tensor<2x2xf32>
    %3:2 = "pw.call"(%arg3, %0, %1#0, %1#1, %2) {action = "1B0", callee = @stage_1, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>, <@m1, [{}, {}]>, <@m1, [{}, {}]>, <@m1, [{}, {}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>]>, step = 5 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %4 = "pw.transfer"(%dynamic_slice_squeeze2Bstage_0#1) {bytes = 16 : i64, mesh = @m1, reason = "stage runs on s1 and takes it, s0 holds it", route = "dcn", runner_up = "the whole array to every device: 16 bytes instead of 16", sharding = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, source = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, step = 6 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %5 = "pw.transfer"(%3#1) {bytes = 16 : i64, mesh = @m0, reason = "stage runs on s0 and takes it, s1 holds it", route = "dcn", runner_up = "the whole array to every device: 16 bytes instead of 16", sharding = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, source = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, step = 7 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %6 = "pw.call"(%3#0) {action = "1B0", callee = @broadcast_in_dim_add, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, step = 8 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %stage_22Bbroadcast_in_dim_add = "pw.call"(%dynamic_slice_squeeze2Bstage#0, %dynamic_slice_squeeze2Bstage#1, %dynamic_slice_squeeze2Bstage#2, %5) {action = "0B0", callee = @stage_2_broadcast_in_dim_add, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{}, {}]>, <@m0, [{}, {}]>, <@m0, [{}, {}]>]>, island = @island0, made_by = array<i64: 1>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, parts = ["0B0 stage_2 -:88", "0B0 broadcast_in_dim_add -:92"], step = 9 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %7:2 = "pw.call"(%arg3, %4) {action = "1F1", callee = @stage, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>]>, step = 10 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %8 = "pw.call"() {action = "1B1", callee = @broadcast_in_dim, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, step = 11 : i64} : () -> tensor<2x2xf32>
    %9:2 = "pw.call"(%arg3, %4, %7#0, %7#1, %8) {action = "1B1", callee = @stage_1, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>, <@m1, [{}, {}]>, <@m1, [{}, {}]>, <@m1, [{}, {}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>]>, step = 12 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %10 = "pw.transfer"(%9#1) {bytes = 16 : i64, mesh = @m0, reason = "stage runs on s0 and takes it, s1 holds it", route = "dcn", runner_up = "the whole array to every device: 16 bytes instead of 16", sharding = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, source = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, step = 13 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %11 = "pw.call"(%6, %9#0) {callee = @add, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>, step = 14 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %stage_22Badd = "pw.call"(%dynamic_slice_squeeze2Bstage_0#0, %dynamic_slice_squeeze2Bstage_0#1, %dynamic_slice_squeeze2Bstage_0#2, %10, %stage_22Bbroadcast_in_dim_add) {action = "0B1", callee = @stage_2_add, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{}, {}]>, <@m0, [{}, {}]>, <@m0, [{}, {}]>, <@m0, [{}, {}]>]>, island = @island0, made_by = array<i64: 1>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, parts = ["0B1 stage_2 -:95", "- add -:96"], step = 15 : i64} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    return %stage_22Badd, %11 : tensor<2x2xf32>, tensor<2x2xf32>
  }
}

