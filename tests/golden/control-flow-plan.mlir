// RUN: pwc opt - --no-debug-info --pass-pipeline='propagate-shardings,place{policy=spread},insert-transfers,order-calls,merge-calls,plan-islands' --topology islands=2,devices=2
module attributes {pw.in_tree = "{\22kind\22:\22tuple\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22tuple\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "trace", pw.platform = "cpu"} {
  "pw.slice"() {devices = 2 : i64, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  func.func @work_while_cond(%operand_0: tensor<i32> {pw.mesh = @m0, pw.name = "operand 0"}, %operand_1: tensor<i32> {pw.mesh = @m0, pw.name = "operand 1"}, %operand_2: tensor<8xf32> {pw.name = "operand 2"}) -> (tensor<i1> {pw.name = "result 0"}) attributes {pw.body} {
    %lt = "pw.call"(%operand_0, %operand_1) {callee = @lt, gathered, mesh = @m0} : (tensor<i32>, tensor<i32>) -> tensor<i1>
    return %lt : tensor<i1>
  }
  "pw.slice"() {devices = 2 : i64, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s1, sym_name = "m1"} : () -> ()
  func.func @work_while_body(%operand_0: tensor<i32> {pw.mesh = @m0, pw.name = "operand 0"}, %operand_1: tensor<i32> {pw.mesh = @m0, pw.name = "operand 1"}, %operand_2: tensor<8xf32> {pw.mesh = @m0, pw.name = "operand 2"}) -> (tensor<i32> {pw.name = "result 0"}, tensor<i32> {pw.name = "result 1"}, tensor<8xf32> {pw.name = "result 2"}) attributes {pw.body} {
    %add = "pw.call"(%operand_0) {callee = @add, gathered, mesh = @m0} : (tensor<i32>) -> tensor<i32>
    %double = "pw.call"(%operand_2) {callee = @double, mesh = @m0} : (tensor<8xf32>) -> tensor<8xf32>
    %less = "pw.call"(%double) {callee = @less, mesh = @m1} : (tensor<8xf32>) -> tensor<8xf32>
    return %add, %operand_1, %less : tensor<i32>, tensor<i32>, tensor<8xf32>
  }
  module @lt attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    func.func public @main(%operands5B05D: tensor<i32>, %operands5B15D: tensor<i32>) -> (tensor<i1> {jax.result_info = "result[0]"}) {
      %jit28lt292Flt = stablehlo.compare LT, %operands5B05D, %operands5B15D, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      return %jit28lt292Flt : tensor<i1>
    }
  }
  module @add attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    func.func public @main(%operands5B05D: tensor<i32>) -> (tensor<i32> {jax.result_info = "result[0]"}) {
      %jit28add29 = stablehlo.constant dense<1> : tensor<i32>
      %jit28add292Fadd = stablehlo.add %operands5B05D, %jit28add29 : tensor<i32>
      return %jit28add292Fadd : tensor<i32>
    }
  }
  module @double attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]> {stablehlo.mesh = {axes = [{name = "x", size = 2 : i64}]}}
    func.func public @main(%operands5B05D: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<8xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
      %jit28double29 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %jit28double292Fmul = stablehlo.broadcast_in_dim %jit28double29, dims = [] : (tensor<f32>) -> tensor<8xf32>
      %jit28double292Fmul_0 = stablehlo.multiply %jit28double292Fmul, %operands5B05D : tensor<8xf32>
      return %jit28double292Fmul_0 : tensor<8xf32>
    }
  }
  module @less attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]> {stablehlo.mesh = {axes = [{name = "x", size = 2 : i64}]}}
    func.func public @main(%operands5B05D: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<8xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
      %jit28less29 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %jit28less292Fsub = stablehlo.broadcast_in_dim %jit28less29, dims = [] : (tensor<f32>) -> tensor<8xf32>
      %jit28less292Fsub_0 = stablehlo.subtract %operands5B05D, %jit28less292Fsub : tensor<8xf32>
      return %jit28less292Fsub_0 : tensor<8xf32>
    }
  }
  module @slice_to_convert_element_type attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    func.func public @main(%operands5B05D: tensor<8xf32>) -> (tensor<i32> {jax.result_info = "result[0]"}) {
      %jit28slice_to_convert_element_type292Fslice = stablehlo.slice %operands5B05D [0:1] : (tensor<8xf32>) -> tensor<1xf32>
      %jit28slice_to_convert_element_type292Fsqueeze = stablehlo.reshape %jit28slice_to_convert_element_type292Fslice : (tensor<1xf32>) -> tensor<f32>
      %jit28slice_to_convert_element_type29 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %jit28slice_to_convert_element_type292Fgt = stablehlo.compare GT, %jit28slice_to_convert_element_type292Fsqueeze, %jit28slice_to_convert_element_type29, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %jit28slice_to_convert_element_type292Fconvert_element_type = stablehlo.convert %jit28slice_to_convert_element_type292Fgt : (tensor<i1>) -> tensor<i32>
      return %jit28slice_to_convert_element_type292Fconvert_element_type : tensor<i32>
    }
  }
  module @cond attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @empty_mesh = <[]> {stablehlo.mesh = {axes = []}}
    sdy.mesh @mesh = <["x"=2]> {stablehlo.mesh = {axes = [{name = "x", size = 2 : i64}]}}
    func.func public @main(%operands5B05D: tensor<i32> {sdy.sharding = #sdy.sharding<@empty_mesh, []>}, %operands5B15D: tensor<8xf32>) -> (tensor<8xf32> {jax.result_info = "result[0]"}) {
      %jit28cond292Fcond = "stablehlo.case"(%operands5B05D) ({
        %jit28cond292Fcond_0 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
        %jit28cond292Fcond2Fbranch_0_fun2Fmul = stablehlo.broadcast_in_dim %jit28cond292Fcond_0, dims = [] : (tensor<f32>) -> tensor<8xf32>
        %jit28cond292Fcond2Fbranch_0_fun2Fmul_1 = stablehlo.multiply %operands5B15D, %jit28cond292Fcond2Fbranch_0_fun2Fmul : tensor<8xf32>
        %jit28cond292Fcond2Fbranch_0_fun2Foptimization_barrier = stablehlo.optimization_barrier %jit28cond292Fcond2Fbranch_0_fun2Fmul_1 : tensor<8xf32>
        stablehlo.return %jit28cond292Fcond2Fbranch_0_fun2Foptimization_barrier : tensor<8xf32>
      }, {
        %jit28cond292Fcond2Fbranch_1_fun2Fjit28double29 = func.call @double(%operands5B15D) : (tensor<8xf32>) -> tensor<8xf32>
        %jit28cond292Fcond2Fbranch_1_fun2Foptimization_barrier = stablehlo.optimization_barrier %jit28cond292Fcond2Fbranch_1_fun2Fjit28double29 : tensor<8xf32>
        stablehlo.return %jit28cond292Fcond2Fbranch_1_fun2Foptimization_barrier : tensor<8xf32>
      }) : (tensor<i32>) -> tensor<8xf32>
      return %jit28cond292Fcond : tensor<8xf32>
    }
    func.func private @double(%arg0: tensor<8xf32>) -> tensor<8xf32> {
      %0 = sdy.sharding_constraint %arg0 <@mesh, [{"x"}]> : tensor<8xf32>
      %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %mul = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8xf32>
      %mul_0 = stablehlo.multiply %mul, %0 : tensor<8xf32>
      %1 = sdy.sharding_constraint %mul_0 <@mesh, [{"x"}]> : tensor<8xf32>
      return %1 : tensor<8xf32>
    }
  }
  func.func @work(%TypedInt_0_dtype_int32: tensor<i32> {pw.mesh = @m0, pw.name = "TypedInt(0, dtype=int32)", pw.value = "00000000"}, %x: tensor<8xf32> {pw.mesh = @m0, pw.name = "x"}, %n: tensor<i32> {pw.mesh = @m0, pw.name = "n"}) -> (tensor<8xf32> {pw.name = "out[0]"}, tensor<8xf32> {pw.name = "out[1]"}) attributes {pw.program} {
    %while:3 = "pw.while"(%TypedInt_0_dtype_int32, %n, %x) {bodies = [@work_while_cond, @work_while_body], meshes = [@m0, @m0, @m0]} : (tensor<i32>, tensor<i32>, tensor<8xf32>) -> (tensor<i32>, tensor<i32>, tensor<8xf32>)
    %slice_to_convert_element_type = "pw.call"(%while#2) {callee = @slice_to_convert_element_type, gathered, mesh = @m0} : (tensor<8xf32>) -> tensor<i32>
    %cond = "pw.call"(%slice_to_convert_element_type, %while#2) {callee = @cond, mesh = @m0} : (tensor<i32>, tensor<8xf32>) -> tensor<8xf32>
    return %while#2, %cond : tensor<8xf32>, tensor<8xf32>
  }
}
// EXPECTED exit 0
module attributes {pw.dcn_gbps = 1.250000e+01 : f64, pw.in_tree = "{\22kind\22:\22tuple\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22tuple\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "plan", pw.placement = "spread: about 5.13 ns a run, 64 bytes between islands; 1e+12 flop/s assumed where none are stated", pw.platform = "cpu", pw.schedule = {bound = 0.000000e+00 : f64, bubble = 0.000000e+00 : f64, estimated_bound = 0.000000e+00 : f64, estimated_bubble = 0.000000e+00 : f64, estimated_seconds = 0.000000e+00 : f64, microbatches = 0 : i64, name = "program", note = "", slices = 0 : i64, stages = 0 : i64}, pw.temporaries = "estimated"} {
  "pw.island"() {devices = 2 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "any", name = "island0"} : () -> ()
  "pw.island"() {devices = 2 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "any", name = "island1"} : () -> ()
  "pw.slice"() {device_ids = "0:2", devices = 2 : i64, island = @island0, reason = "least taken of 2 islands (0%)", runner_up = "island1, in exchange for s1: 5.14 ns a run (the same)", sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  func.func @work_while_cond(%arg0: tensor<i32> {pw.mesh = @m0, pw.name = "operand 0", pw.sharding = #sdy.sharding<@m0, []>}, %arg1: tensor<i32> {pw.mesh = @m0, pw.name = "operand 1", pw.sharding = #sdy.sharding<@m0, []>}, %arg2: tensor<8xf32> {pw.name = "operand 2"}) -> (tensor<i1> {pw.name = "result 0"}) attributes {pw.body} {
    %0 = "pw.call"(%arg0, %arg1) {callee = @lt, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 0 : i64} : (tensor<i32>, tensor<i32>) -> tensor<i1>
    return %0 : tensor<i1>
  }
  "pw.slice"() {device_ids = "0:2", devices = 2 : i64, island = @island1, reason = "the only island with room for it", runner_up = "island0, in exchange for s0: 5.14 ns a run (the same)", sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s1, sym_name = "m1"} : () -> ()
  func.func @work_while_body(%arg0: tensor<i32> {pw.mesh = @m0, pw.name = "operand 0", pw.sharding = #sdy.sharding<@m0, []>}, %arg1: tensor<i32> {pw.mesh = @m0, pw.name = "operand 1", pw.sharding = #sdy.sharding<@m0, []>}, %arg2: tensor<8xf32> {pw.mesh = @m0, pw.name = "operand 2", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> (tensor<i32> {pw.name = "result 0"}, tensor<i32> {pw.name = "result 1"}, tensor<8xf32> {pw.name = "result 2"}) attributes {pw.body} {
    %0 = "pw.call"(%arg0) {callee = @add, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m0, []>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 0 : i64} : (tensor<i32>) -> tensor<i32>
    %1 = "pw.call"(%arg2) {callee = @double, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, step = 1 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    %2 = "pw.transfer"(%1) {bytes = 32 : i64, mesh = @m1, reason = "less runs on s1 and takes it, s0 holds it", route = "dcn", runner_up = "the whole array to every device: 64 bytes instead of 32", sharding = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, source = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, step = 2 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    %3 = "pw.call"(%2) {callee = @less, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, step = 3 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    %moved = "pw.transfer"(%3) {bytes = 32 : i64, mesh = @m0, reason = "all bodies leave this result at one place", route = "dcn", runner_up = "the whole array to every device: 64 bytes instead of 32", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, source = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, step = 4 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    return %0, %arg1, %moved : tensor<i32>, tensor<i32>, tensor<8xf32>
  }
  module @lt attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func public @main(%arg0: tensor<i32> {sdy.sharding = #sdy.sharding<@mesh, []>}, %arg1: tensor<i32> {sdy.sharding = #sdy.sharding<@mesh, []>}) -> (tensor<i1> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, []>}) {
      %0 = stablehlo.compare LT, %arg0, %arg1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      return %0 : tensor<i1>
    }
  }
  module @add attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func public @main(%arg0: tensor<i32> {sdy.sharding = #sdy.sharding<@mesh, []>}) -> (tensor<i32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, []>}) {
      %c = stablehlo.constant dense<1> : tensor<i32>
      %0 = stablehlo.add %arg0, %c : tensor<i32>
      return %0 : tensor<i32>
    }
  }
  module @double attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]> {stablehlo.mesh = {axes = [{name = "x", size = 2 : i64}]}}
    func.func public @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<8xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
      %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8xf32>
      %1 = stablehlo.multiply %0, %arg0 : tensor<8xf32>
      return %1 : tensor<8xf32>
    }
  }
  module @less attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]> {stablehlo.mesh = {axes = [{name = "x", size = 2 : i64}]}}
    func.func public @main(%arg0: tensor<8xf32> {jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<8xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
      %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8xf32>
      %1 = stablehlo.subtract %arg0, %0 : tensor<8xf32>
      return %1 : tensor<8xf32>
    }
  }
  module @slice_to_convert_element_type attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func public @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<i32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, []>}) {
      %0 = stablehlo.slice %arg0 [0:1] : (tensor<8xf32>) -> tensor<1xf32>
      %1 = stablehlo.reshape %0 : (tensor<1xf32>) -> tensor<f32>
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %2 = stablehlo.compare GT, %1, %cst, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %3 = stablehlo.convert %2 : (tensor<i1>) -> tensor<i32>
      return %3 : tensor<i32>
    }
  }
  module @cond attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @empty_mesh = <[]> {stablehlo.mesh = {axes = []}}
    sdy.mesh @mesh = <["x"=2]> {stablehlo.mesh = {axes = [{name = "x", size = 2 : i64}]}}
    func.func public @main(%arg0: tensor<i32> {sdy.sharding = #sdy.sharding<@mesh, []>}, %arg1: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<8xf32> {jax.result_info = "result[0]", sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
      %0 = "stablehlo.case"(%arg0) ({
        %cst = stablehlo.constant dense<3.000000e+00> : tensor<f32>
        %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8xf32>
        %2 = stablehlo.multiply %arg1, %1 : tensor<8xf32>
        %3 = stablehlo.optimization_barrier %2 : tensor<8xf32>
        stablehlo.return %3 : tensor<8xf32>
      }, {
        %1 = func.call @double(%arg1) : (tensor<8xf32>) -> tensor<8xf32>
        %2 = stablehlo.optimization_barrier %1 : tensor<8xf32>
        stablehlo.return %2 : tensor<8xf32>
      }) : (tensor<i32>) -> tensor<8xf32>
      return %0 : tensor<8xf32>
    }
    func.func private @double(%arg0: tensor<8xf32>) -> tensor<8xf32> {
      %0 = sdy.sharding_constraint %arg0 <@mesh, [{"x"}]> : tensor<8xf32>
      %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8xf32>
      %2 = stablehlo.multiply %1, %0 : tensor<8xf32>
      %3 = sdy.sharding_constraint %2 <@mesh, [{"x"}]> : tensor<8xf32>
      return %3 : tensor<8xf32>
    }
  }
  func.func @work(%arg0: tensor<i32> {pw.mesh = @m0, pw.name = "TypedInt(0, dtype=int32)", pw.sharding = #sdy.sharding<@m0, []>, pw.value = "00000000"}, %arg1: tensor<8xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}, %arg2: tensor<i32> {pw.mesh = @m0, pw.name = "n", pw.sharding = #sdy.sharding<@m0, []>}) -> (tensor<8xf32> {pw.name = "out[0]"}, tensor<8xf32> {pw.name = "out[1]"}) attributes {pw.program} {
    %0:3 = "pw.while"(%arg0, %arg2, %arg1) {bodies = [@work_while_cond, @work_while_body], dispatch = "sequential", in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>, <@m0, [{"x"}]>]>, meshes = [@m0, @m0, @m0], out_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>, <@m0, [{"x"}]>]>, step = 0 : i64} : (tensor<i32>, tensor<i32>, tensor<8xf32>) -> (tensor<i32>, tensor<i32>, tensor<8xf32>)
    %1 = "pw.call"(%0#2) {callee = @slice_to_convert_element_type, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 1 : i64} : (tensor<8xf32>) -> tensor<i32>
    %2 = "pw.call"(%1, %0#2) {callee = @cond, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, [{"x"}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, step = 2 : i64} : (tensor<i32>, tensor<8xf32>) -> tensor<8xf32>
    return %0#2, %2 : tensor<8xf32>, tensor<8xf32>
  }
  "pw.plan"() ({
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: 0>, name = "operand 0", owner = "operand", role = "input", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 0 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: 0>, name = "operand 1", owner = "operand", role = "input", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 1 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 1>, deaths = array<i64: -1>, name = "", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i1>], slot = 2 : i64, types = [tensor<i1>]} : () -> ()
    "pw.run"() {callee = @lt, donated = array<i64>, inputs = array<i64: 0, 1>, mesh = @m0, outputs = array<i64: 2>, step = 0 : i64} : () -> ()
    "pw.free"() {slots = array<i64: 0, 1>, step = 0 : i64} : () -> ()
  }) {body = @work_while_cond, island = @island0, peak_bytes = 9 : i64} : () -> ()
  "pw.plan"() ({
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: 0>, name = "operand 0", owner = "operand", role = "input", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 0 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: -1>, name = "operand 1", owner = "operand", role = "input", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 1 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 16>, deaths = array<i64: 1>, name = "operand 2", owner = "operand", role = "input", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 2 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 4>, deaths = array<i64: -1>, name = "", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 3 : i64, types = [tensor<i32>]} : () -> ()
    "pw.run"() {callee = @add, donated = array<i64>, inputs = array<i64: 0>, mesh = @m0, outputs = array<i64: 3>, step = 0 : i64} : () -> ()
    "pw.free"() {slots = array<i64: 0>, step = 0 : i64} : () -> ()
    "pw.buffers"() {birth = 1 : i64, bytes = array<i64: 16>, deaths = array<i64: 2>, name = "", owner = "double", role = "value", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 4 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.run"() {callee = @double, donated = array<i64>, inputs = array<i64: 2>, mesh = @m0, outputs = array<i64: 4>, step = 1 : i64} : () -> ()
    "pw.free"() {slots = array<i64: 2>, step = 1 : i64} : () -> ()
    "pw.send"() {channel = 2 : i64, slot = 4 : i64, step = 2 : i64, to = @island1} : () -> ()
    "pw.free"() {slots = array<i64: 4>, step = 2 : i64} : () -> ()
    "pw.buffers"() {birth = 4 : i64, bytes = array<i64: 16>, deaths = array<i64: -1>, name = " moved", owner = "results", role = "copy", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 5 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.recv"() {channel = 4 : i64, slot = 5 : i64, source = @island1, step = 4 : i64} : () -> ()
  }) {body = @work_while_body, island = @island0, peak_bytes = 44 : i64} : () -> ()
  "pw.plan"() ({
    "pw.buffers"() {birth = 2 : i64, bytes = array<i64: 16>, deaths = array<i64: 3>, name = " moved", owner = "transfer buffers", role = "copy", sharding = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 0 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.recv"() {channel = 2 : i64, slot = 0 : i64, source = @island0, step = 2 : i64} : () -> ()
    "pw.buffers"() {birth = 3 : i64, bytes = array<i64: 16>, deaths = array<i64: 4>, name = "", owner = "less", role = "value", sharding = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 1 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.run"() {callee = @less, donated = array<i64: 0>, inputs = array<i64: 0>, mesh = @m1, outputs = array<i64: 1>, step = 3 : i64} : () -> ()
    "pw.send"() {channel = 4 : i64, slot = 1 : i64, step = 4 : i64, to = @island0} : () -> ()
    "pw.free"() {slots = array<i64: 1>, step = 4 : i64} : () -> ()
  }) {body = @work_while_body, island = @island1, peak_bytes = 16 : i64} : () -> ()
  "pw.plan"() ({
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: -1>, name = "TypedInt(0, dtype=int32)", owner = "constants", role = "constant", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 0 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 16>, deaths = array<i64: 0>, name = "x", owner = "x", role = "input", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 1 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: 0>, name = "n", owner = "n", role = "input", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 2 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 4>, deaths = array<i64: 0>, name = "#0", owner = "pw.while", role = "value", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 3 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 4>, deaths = array<i64: 0>, name = "#1", owner = "pw.while", role = "value", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 4 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 16>, deaths = array<i64: -1>, name = "#2", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 5 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.branch"() {bodies = [@work_while_cond, @work_while_body], donated = array<i64>, inputs = array<i64: 0, 2, 1>, kind = "while", made = array<i64: 0, 1, 2>, meshes = [@m0], outputs = array<i64: 3, 4, 5>, step = 0 : i64, taken = array<i64: 0, 1, 2>, temporaries = 20 : i64} : () -> ()
    "pw.free"() {slots = array<i64: 2, 1, 3, 4>, step = 0 : i64} : () -> ()
    "pw.buffers"() {birth = 1 : i64, bytes = array<i64: 4>, deaths = array<i64: 2>, name = "", owner = "slice_to_convert_element_type", role = "value", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 6 : i64, types = [tensor<i32>]} : () -> ()
    "pw.run"() {callee = @slice_to_convert_element_type, donated = array<i64>, inputs = array<i64: 5>, mesh = @m0, outputs = array<i64: 6>, step = 1 : i64} : () -> ()
    "pw.buffers"() {birth = 2 : i64, bytes = array<i64: 16>, deaths = array<i64: -1>, name = "", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 7 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.run"() {callee = @cond, donated = array<i64>, inputs = array<i64: 6, 5>, mesh = @m0, outputs = array<i64: 7>, step = 2 : i64} : () -> ()
    "pw.free"() {slots = array<i64: 6>, step = 2 : i64} : () -> ()
  }) {island = @island0, peak_bytes = 68 : i64} : () -> ()
  "pw.plan"() ({
    "pw.branch"() {bodies = [@work_while_cond, @work_while_body], donated = array<i64>, inputs = array<i64>, kind = "while", made = array<i64>, meshes = [@m1], outputs = array<i64>, step = 0 : i64, taken = array<i64>, temporaries = 16 : i64} : () -> ()
  }) {island = @island1, peak_bytes = 16 : i64} : () -> ()
}

