// RUN: pwc opt - --no-debug-info --pass-pipeline='split-backward'
module attributes {pw.in_tree = "{\22kind\22:\22tuple\22,\22children\22:[{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]},\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "trace", pw.platform = "cpu"} {
  "pw.slice"() {devices = 1 : i64, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {devices = 1 : i64, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s1, sym_name = "m1"} : () -> ()
  module @dynamic_slice_squeeze attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    func.func public @main(%operands5B05D: tensor<2x2x2xf32>, %operands5B15D: tensor<ui32>) -> (tensor<2x2xf32> {jax.result_info = "result[0]"}) {
      %jit28dynamic_slice_squeeze29 = stablehlo.constant dense<0> : tensor<ui32>
      %jit28dynamic_slice_squeeze29_0 = stablehlo.constant dense<0> : tensor<ui32>
      %jit28dynamic_slice_squeeze292Fdynamic_slice = stablehlo.dynamic_slice %operands5B05D, %operands5B15D, %jit28dynamic_slice_squeeze29, %jit28dynamic_slice_squeeze29_0, sizes = [1, 2, 2] : (tensor<2x2x2xf32>, tensor<ui32>, tensor<ui32>, tensor<ui32>) -> tensor<1x2x2xf32>
      %jit28dynamic_slice_squeeze292Fsqueeze = stablehlo.reshape %jit28dynamic_slice_squeeze292Fdynamic_slice : (tensor<1x2x2xf32>) -> tensor<2x2xf32>
      return %jit28dynamic_slice_squeeze292Fsqueeze : tensor<2x2xf32>
    }
  }
  module @stage attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]> {stablehlo.mesh = {axes = [{name = "x", size = 1 : i64}]}}
    func.func public @main(%operands5B05D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %operands5B15D: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<2x2xf32> {jax.result_info = "result[0]"}, tensor<2x2xf32> {jax.result_info = "result[1]"}) {
      %jit28stage292Fdot_general = stablehlo.dot_general %operands5B15D, %operands5B05D, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %jit28stage292Ftanh = stablehlo.tanh %jit28stage292Fdot_general : tensor<2x2xf32>
      %jit28stage29 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %jit28stage292Fsub = stablehlo.broadcast_in_dim %jit28stage29, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      %jit28stage292Fsub_0 = stablehlo.subtract %jit28stage292Fsub, %jit28stage292Ftanh : tensor<2x2xf32>
      return %jit28stage292Ftanh, %jit28stage292Fsub_0 : tensor<2x2xf32>, tensor<2x2xf32>
    }
  }
  module @broadcast_in_dim attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    func.func public @main() -> (tensor<2x2xf32> {jax.result_info = "result[0]"}) {
      %jit28broadcast_in_dim29 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %jit28broadcast_in_dim292Ftranspose28jvp2829292Fbroadcast_in_dim = stablehlo.broadcast_in_dim %jit28broadcast_in_dim29, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      return %jit28broadcast_in_dim292Ftranspose28jvp2829292Fbroadcast_in_dim : tensor<2x2xf32>
    }
  }
  module @stage_1 attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]> {stablehlo.mesh = {axes = [{name = "x", size = 1 : i64}]}}
    func.func public @main(%operands5B05D: tensor<2x2xf32>, %operands5B15D: tensor<2x2xf32>, %operands5B25D: tensor<2x2xf32>, %operands5B35D: tensor<2x2xf32>, %operands5B45D: tensor<2x2xf32>) -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, tensor<2x2xf32> {jax.result_info = "result[1]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
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
    func.func public @main(%operands5B05D: tensor<2x2xf32>) -> (tensor<2x2xf32> {jax.result_info = "result[0]"}) {
      %jit28broadcast_in_dim_add29 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %jit28broadcast_in_dim_add292Fbroadcast_in_dim = stablehlo.broadcast_in_dim %jit28broadcast_in_dim_add29, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      %jit28broadcast_in_dim_add292Fadd = stablehlo.add %jit28broadcast_in_dim_add292Fbroadcast_in_dim, %operands5B05D : tensor<2x2xf32>
      return %jit28broadcast_in_dim_add292Fadd : tensor<2x2xf32>
    }
  }
  module @stage_2 attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]> {stablehlo.mesh = {axes = [{name = "x", size = 1 : i64}]}}
    func.func public @main(%operands5B05D: tensor<2x2xf32>, %operands5B15D: tensor<2x2xf32>, %operands5B25D: tensor<2x2xf32>, %operands5B35D: tensor<2x2xf32>) -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %jit28stage292Fmul = stablehlo.multiply %operands5B35D, %operands5B25D : tensor<2x2xf32>
      %jit28stage292Fmul_0 = stablehlo.multiply %jit28stage292Fmul, %operands5B15D : tensor<2x2xf32>
      %jit28stage292Fadd_any = stablehlo.add %jit28stage292Fmul, %jit28stage292Fmul_0 : tensor<2x2xf32>
      %jit28stage292Fdot_general = stablehlo.dot_general %jit28stage292Fadd_any, %operands5B05D, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %jit28stage292Ftranspose = stablehlo.transpose %jit28stage292Fdot_general, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
      return %jit28stage292Ftranspose : tensor<2x2xf32>
    }
  }
  module @add attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    func.func public @main(%operands5B05D: tensor<2x2xf32>, %operands5B15D: tensor<2x2xf32>) -> (tensor<2x2xf32> {jax.result_info = "result[0]"}) {
      %jit28add292Fadd = stablehlo.add %operands5B05D, %operands5B15D : tensor<2x2xf32>
      return %jit28add292Fadd : tensor<2x2xf32>
    }
  }
  func.func @step(%index_0: tensor<ui32> {pw.mesh = @m0, pw.name = "index 0", pw.value = "00000000"}, %index_1: tensor<ui32> {pw.mesh = @m0, pw.name = "index 1", pw.value = "01000000"}, %ws_0: tensor<2x2xf32> {pw.mesh = @m0, pw.name = "ws[0]"}, %ws_1: tensor<2x2xf32> {pw.mesh = @m1, pw.name = "ws[1]"}, %xs: tensor<2x2x2xf32> {pw.mesh = @m0, pw.name = "xs"}) -> (tensor<2x2xf32> {pw.name = "out[0]"}, tensor<2x2xf32> {pw.name = "out[1]"}) attributes {pw.program} {
    %dynamic_slice_squeeze = "pw.call"(%xs, %index_0) {action = "0F0", callee = @dynamic_slice_squeeze, gathered, mesh = @m0} : (tensor<2x2x2xf32>, tensor<ui32>) -> tensor<2x2xf32>
    %stage:2 = "pw.call"(%ws_0, %dynamic_slice_squeeze) {action = "0F0", callee = @stage, mesh = @m0} : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %stage_0:2 = "pw.call"(%ws_1, %stage#0) {action = "1F0", callee = @stage, mesh = @m1} : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %broadcast_in_dim = "pw.call"() {action = "1B0", callee = @broadcast_in_dim, gathered, mesh = @m1} : () -> tensor<2x2xf32>
    %stage_1:2 = "pw.call"(%ws_1, %stage#0, %stage_0#0, %stage_0#1, %broadcast_in_dim) {action = "1B0", callee = @stage_1, mesh = @m1} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %broadcast_in_dim_add = "pw.call"(%stage_1#0) {action = "1B0", callee = @broadcast_in_dim_add, gathered, mesh = @m1} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %stage_2 = "pw.call"(%dynamic_slice_squeeze, %stage#0, %stage#1, %stage_1#1) {action = "0B0", callee = @stage_2, mesh = @m0} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %broadcast_in_dim_add_3 = "pw.call"(%stage_2) {action = "0B0", callee = @broadcast_in_dim_add, gathered, mesh = @m0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %dynamic_slice_squeeze_4 = "pw.call"(%xs, %index_1) {action = "0F1", callee = @dynamic_slice_squeeze, gathered, mesh = @m0} : (tensor<2x2x2xf32>, tensor<ui32>) -> tensor<2x2xf32>
    %stage_5:2 = "pw.call"(%ws_0, %dynamic_slice_squeeze_4) {action = "0F1", callee = @stage, mesh = @m0} : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %stage_6:2 = "pw.call"(%ws_1, %stage_5#0) {action = "1F1", callee = @stage, mesh = @m1} : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %broadcast_in_dim_7 = "pw.call"() {action = "1B1", callee = @broadcast_in_dim, gathered, mesh = @m1} : () -> tensor<2x2xf32>
    %stage_8:2 = "pw.call"(%ws_1, %stage_5#0, %stage_6#0, %stage_6#1, %broadcast_in_dim_7) {action = "1B1", callee = @stage_1, mesh = @m1} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %add = "pw.call"(%broadcast_in_dim_add, %stage_8#0) {callee = @add, gathered, mesh = @m1} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %stage_9 = "pw.call"(%dynamic_slice_squeeze_4, %stage_5#0, %stage_5#1, %stage_8#1) {action = "0B1", callee = @stage_2, mesh = @m0} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %add_10 = "pw.call"(%broadcast_in_dim_add_3, %stage_9) {callee = @add, gathered, mesh = @m0} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    return %add_10, %add : tensor<2x2xf32>, tensor<2x2xf32>
  }
}

// EXPECTED exit 0
module attributes {pw.in_tree = "{\22kind\22:\22tuple\22,\22children\22:[{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]},\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "trace", pw.platform = "cpu"} {
  "pw.slice"() {devices = 1 : i64, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {devices = 1 : i64, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s1, sym_name = "m1"} : () -> ()
  module @dynamic_slice_squeeze attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    func.func public @main(%arg0: tensor<2x2x2xf32>, %arg1: tensor<ui32>) -> (tensor<2x2xf32> {jax.result_info = "result[0]"}) {
      %c = stablehlo.constant dense<0> : tensor<ui32>
      %c_0 = stablehlo.constant dense<0> : tensor<ui32>
      %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, sizes = [1, 2, 2] : (tensor<2x2x2xf32>, tensor<ui32>, tensor<ui32>, tensor<ui32>) -> tensor<1x2x2xf32>
      %1 = stablehlo.reshape %0 : (tensor<1x2x2xf32>) -> tensor<2x2xf32>
      return %1 : tensor<2x2xf32>
    }
  }
  module @stage attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]> {stablehlo.mesh = {axes = [{name = "x", size = 1 : i64}]}}
    func.func public @main(%arg0: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg1: tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<2x2xf32> {jax.result_info = "result[0]"}, tensor<2x2xf32> {jax.result_info = "result[1]"}) {
      %0 = stablehlo.dot_general %arg1, %arg0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %1 = stablehlo.tanh %0 : tensor<2x2xf32>
      %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      %3 = stablehlo.subtract %2, %1 : tensor<2x2xf32>
      return %1, %3 : tensor<2x2xf32>, tensor<2x2xf32>
    }
  }
  module @broadcast_in_dim attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    func.func public @main() -> (tensor<2x2xf32> {jax.result_info = "result[0]"}) {
      %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      return %0 : tensor<2x2xf32>
    }
  }
  module @stage_1_I attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]> {stablehlo.mesh = {axes = [{name = "x", size = 1 : i64}]}}
    func.func public @main(%arg0: tensor<2x2xf32>, %arg1: tensor<2x2xf32>, %arg2: tensor<2x2xf32>, %arg3: tensor<2x2xf32>) -> (tensor<2x2xf32> {jax.result_info = "result[1]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, tensor<2x2xf32>) {
      %0 = stablehlo.multiply %arg3, %arg2 : tensor<2x2xf32>
      %1 = stablehlo.multiply %0, %arg1 : tensor<2x2xf32>
      %2 = stablehlo.add %0, %1 : tensor<2x2xf32>
      %3 = stablehlo.dot_general %2, %arg0, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      return %3, %2 : tensor<2x2xf32>, tensor<2x2xf32>
    }
  }
  module @stage_1_W attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]> {stablehlo.mesh = {axes = [{name = "x", size = 1 : i64}]}}
    func.func public @main(%arg0: tensor<2x2xf32>, %arg1: tensor<2x2xf32>) -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %0 = stablehlo.dot_general %arg1, %arg0, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
      return %1 : tensor<2x2xf32>
    }
  }
  module @broadcast_in_dim_add attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    func.func public @main(%arg0: tensor<2x2xf32>) -> (tensor<2x2xf32> {jax.result_info = "result[0]"}) {
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      %1 = stablehlo.add %0, %arg0 : tensor<2x2xf32>
      return %1 : tensor<2x2xf32>
    }
  }
  module @stage_2 attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=1]> {stablehlo.mesh = {axes = [{name = "x", size = 1 : i64}]}}
    func.func public @main(%arg0: tensor<2x2xf32>, %arg1: tensor<2x2xf32>, %arg2: tensor<2x2xf32>, %arg3: tensor<2x2xf32>) -> (tensor<2x2xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %0 = stablehlo.multiply %arg3, %arg2 : tensor<2x2xf32>
      %1 = stablehlo.multiply %0, %arg1 : tensor<2x2xf32>
      %2 = stablehlo.add %0, %1 : tensor<2x2xf32>
      %3 = stablehlo.dot_general %2, %arg0, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      %4 = stablehlo.transpose %3, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
      return %4 : tensor<2x2xf32>
    }
  }
  module @add attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    func.func public @main(%arg0: tensor<2x2xf32>, %arg1: tensor<2x2xf32>) -> (tensor<2x2xf32> {jax.result_info = "result[0]"}) {
      %0 = stablehlo.add %arg0, %arg1 : tensor<2x2xf32>
      return %0 : tensor<2x2xf32>
    }
  }
  func.func @step(%arg0: tensor<ui32> {pw.mesh = @m0, pw.name = "index 0", pw.value = "00000000"}, %arg1: tensor<ui32> {pw.mesh = @m0, pw.name = "index 1", pw.value = "01000000"}, %arg2: tensor<2x2xf32> {pw.mesh = @m0, pw.name = "ws[0]"}, %arg3: tensor<2x2xf32> {pw.mesh = @m1, pw.name = "ws[1]"}, %arg4: tensor<2x2x2xf32> {pw.mesh = @m0, pw.name = "xs"}) -> (tensor<2x2xf32> {pw.name = "out[0]"}, tensor<2x2xf32> {pw.name = "out[1]"}) attributes {pw.program} {
    %0 = "pw.call"(%arg4, %arg0) {action = "0F0", callee = @dynamic_slice_squeeze, gathered, mesh = @m0} : (tensor<2x2x2xf32>, tensor<ui32>) -> tensor<2x2xf32>
    %1:2 = "pw.call"(%arg2, %0) {action = "0F0", callee = @stage, mesh = @m0} : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %2:2 = "pw.call"(%arg3, %1#0) {action = "1F0", callee = @stage, mesh = @m1} : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %3 = "pw.call"() {action = "1I0", callee = @broadcast_in_dim, gathered, mesh = @m1} : () -> tensor<2x2xf32>
    %4:2 = "pw.call"(%arg3, %2#0, %2#1, %3) {action = "1I0", callee = @stage_1_I, mesh = @m1} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %5 = "pw.call"(%1#0, %4#1) {action = "1W0", callee = @stage_1_W, mesh = @m1} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %6 = "pw.call"(%5) {action = "1W0", callee = @broadcast_in_dim_add, gathered, mesh = @m1} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %7 = "pw.call"(%0, %1#0, %1#1, %4#0) {action = "0W0", callee = @stage_2, mesh = @m0} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %8 = "pw.call"(%7) {action = "0W0", callee = @broadcast_in_dim_add, gathered, mesh = @m0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %9 = "pw.call"(%arg4, %arg1) {action = "0F1", callee = @dynamic_slice_squeeze, gathered, mesh = @m0} : (tensor<2x2x2xf32>, tensor<ui32>) -> tensor<2x2xf32>
    %10:2 = "pw.call"(%arg2, %9) {action = "0F1", callee = @stage, mesh = @m0} : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %11:2 = "pw.call"(%arg3, %10#0) {action = "1F1", callee = @stage, mesh = @m1} : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %12 = "pw.call"() {action = "1I1", callee = @broadcast_in_dim, gathered, mesh = @m1} : () -> tensor<2x2xf32>
    %13:2 = "pw.call"(%arg3, %11#0, %11#1, %12) {action = "1I1", callee = @stage_1_I, mesh = @m1} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
    %14 = "pw.call"(%10#0, %13#1) {action = "1W1", callee = @stage_1_W, mesh = @m1} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %15 = "pw.call"(%6, %14) {callee = @add, gathered, mesh = @m1} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %16 = "pw.call"(%9, %10#0, %10#1, %13#0) {action = "0W1", callee = @stage_2, mesh = @m0} : (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %17 = "pw.call"(%8, %16) {callee = @add, gathered, mesh = @m0} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    return %17, %15 : tensor<2x2xf32>, tensor<2x2xf32>
  }
}

