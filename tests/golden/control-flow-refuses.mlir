// RUN: pwc opt - --no-debug-info --pass-pipeline='propagate-shardings'
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
    %while:3 = "pw.while"(%TypedInt_0_dtype_int32, %n, %x) {bodies = [@work_while_cond, @work_while_body], meshes = [@m0, @m0]} : (tensor<i32>, tensor<i32>, tensor<8xf32>) -> (tensor<i32>, tensor<i32>, tensor<8xf32>)
    %slice_to_convert_element_type = "pw.call"(%while#2) {callee = @slice_to_convert_element_type, gathered, mesh = @m0} : (tensor<8xf32>) -> tensor<i32>
    %cond = "pw.call"(%slice_to_convert_element_type, %while#2) {callee = @cond, mesh = @m0} : (tensor<i32>, tensor<8xf32>) -> tensor<8xf32>
    return %while#2, %cond : tensor<8xf32>, tensor<8xf32>
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is not valid: pw.while names 2 meshes
  --> -:84
  have:  %0:3 = "pw.while"(%arg0, %arg2, %arg1) {bodies = [@work_while_cond, @work_while_body], meshes = [@m0, @m0]} : (tensor<i32>, tensor<i32>, tensor<8xf32>) -> (tensor<i32>, tensor<i32>, tensor<8xf32>)
  need:  one for each result
  try:   look at the op in the dump of the phase before, or rerun with --print-ir-after-all
