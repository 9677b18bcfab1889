// RUN: pwc opt - --no-debug-info --pass-pipeline=propagate-shardings
// What the user says of arguments goes on through computations and back to the arguments of the program; what nothing on its own mesh determines is replicated.
#sx = #sdy.sharding<@m0, [{"x"}, {}]>
#sy = #sdy.sharding<@m1, [{}, {"y"}]>
#u = #sdy.sharding_per_value<[<@m1, [{"y"}, {}]>]>
!t = tensor<8x4xf32>
!w = tensor<4xf32>
!v = tensor<8xf32>
!s = tensor<f32>
module attributes {pw.phase = "trace", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}",
  pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 4 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["y"=4]>, devices = "0:4"} : () -> ()
  module @f { sdy.mesh @m0 = <["x"=2]>
    func.func @main(%w: !w, %x: !t {sdy.sharding = #sx}) -> (!t {jax.result_info = "r"}) {
      %0 = stablehlo.broadcast_in_dim %w, dims = [1] : (!w) -> !t
      %1 = stablehlo.multiply %x, %0 : !t return %1 : !t } }
  module @g { sdy.mesh @m1 = <["y"=4]>
    func.func @main(%x: !t {sdy.sharding = #sy}) -> !v { %0 = stablehlo.constant dense<0.0> : !s
      %1 = stablehlo.reduce(%x init: %0) applies stablehlo.add across dimensions = [1] : (!t, !s) -> !v return %1 : !v } }
  module @n { func.func @main(%x: !v) -> !v { %0 = stablehlo.negate %x : !v return %0 : !v } }
  func.func @p(%w: !w {pw.name = "w", pw.mesh = @m0}, %x: !t {pw.name = "x", pw.donate, pw.mesh = @m0}, %z: !t {pw.name = "z", pw.mesh = @m0})
      -> (!v, !t) attributes {pw.program} {
    %a = "pw.call"(%w, %x) {callee = @f, mesh = @m0} : (!w, !t) -> !t
    %b = "pw.call"(%a) {callee = @g, mesh = @m1} : (!t) -> !v
    %c = "pw.call"(%b) {callee = @n, gathered, mesh = @m1} : (!v) -> !v
    %d = "pw.call"(%z) {callee = @g, mesh = @m1} : (!t) -> !v
    %u = "pw.transfer"(%a) {mesh = @m1, sharding = #u, user} : (!t) -> !t
    return %c, %u : !v, !t
  }
}
// EXPECTED exit 0
module attributes {pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "shard", pw.platform = "cpu"} {
  "pw.slice"() {devices = 2 : i64, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {devices = 4 : i64, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["y"=4]>, devices = "0:4", slice = @s1, sym_name = "m1"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @m0 = <["x"=2]>
    func.func @main(%arg0: tensor<4xf32> {sdy.sharding = #sdy.sharding<@m0, [{}]>}, %arg1: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}, {}]>}) -> (tensor<8x4xf32> {jax.result_info = "r", sdy.sharding = #sdy.sharding<@m0, [{"x"}, {}]>}) {
      %0 = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<4xf32>) -> tensor<8x4xf32>
      %1 = stablehlo.multiply %arg1, %0 : tensor<8x4xf32>
      return %1 : tensor<8x4xf32>
    }
  }
  module @g attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @m1 = <["y"=4]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m1, [{}, {"y"}]>}) -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@m1, [{}]>}) {
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<8x4xf32>, tensor<f32>) -> tensor<8xf32>
      return %0 : tensor<8xf32>
    }
  }
  module @n attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["y"=4]>
    func.func @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<8xf32>
      return %0 : tensor<8xf32>
    }
  }
  func.func @p(%arg0: tensor<4xf32> {pw.mesh = @m0, pw.name = "w", pw.sharding = #sdy.sharding<@m0, [{}]>}, %arg1: tensor<8x4xf32> {pw.donate, pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}, {}]>}, %arg2: tensor<8x4xf32> {pw.mesh = @m0, pw.name = "z", pw.sharding = #sdy.sharding<@m0, [{}, {}]>}) -> (tensor<8xf32>, tensor<8x4xf32>) attributes {pw.program} {
    %0 = "pw.call"(%arg0, %arg1) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, [{}]>, <@m0, [{"x"}, {}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>} : (tensor<4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    %1 = "pw.call"(%0) {callee = @g, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"y"}]>]>, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}]>]>} : (tensor<8x4xf32>) -> tensor<8xf32>
    %2 = "pw.call"(%1) {callee = @n, gathered, in_shardings = #sdy.sharding_per_value<[<@m1, [{}]>]>, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    %3 = "pw.call"(%arg2) {callee = @g, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"y"}]>]>, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}]>]>} : (tensor<8x4xf32>) -> tensor<8xf32>
    %4 = "pw.transfer"(%0) {mesh = @m1, sharding = #sdy.sharding_per_value<[<@m1, [{"y"}, {}]>]>, user} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %2, %4 : tensor<8xf32>, tensor<8x4xf32>
  }
}

