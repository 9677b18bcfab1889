// RUN: pwc opt - --no-debug-info --pass-pipeline=propagate-shardings
// A computation used with two shardings becomes two; a value that two calls take otherwise lies where least bytes move; a bare move keeps a sharding.
#s = #sdy.sharding<@m0, [{"x"}]>
!t = tensor<4xf32>
module attributes {pw.phase = "trace", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}",
  pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  module @f { sdy.mesh @m0 = <["x"=2]> func.func @main(%x: !t {sdy.sharding = #s}) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  module @n { func.func @main(%x: !t) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  module @q { sdy.mesh @m0 = <["x"=2]> func.func @main(%x: !t {sdy.sharding = #sdy.sharding<@m0, [{}]>}) -> !t { return %x : !t } }
  module @one { func.func @main() -> !t { %0 = stablehlo.constant dense<1.0> : !t return %0 : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0}, %y: !t {pw.name = "y", pw.mesh = @m0}, %z: !t {pw.name = "z", pw.mesh = @m0})
      -> (!t, !t, !t) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @n, mesh = @m0} : (!t) -> !t
    %t = "pw.transfer"(%a) {mesh = @m0, user} : (!t) -> !t
    %b = "pw.call"(%t) {callee = @f, mesh = @m0} : (!t) -> !t
    %c = "pw.call"(%y) {callee = @n, mesh = @m0} : (!t) -> !t
    %d = "pw.call"(%b) {callee = @n, mesh = @m0} : (!t) -> !t
    %e = "pw.call"(%z) {callee = @f, mesh = @m0} : (!t) -> !t
    %q = "pw.call"(%z) {callee = @q, mesh = @m0} : (!t) -> !t
    %o = "pw.call"() {callee = @one, gathered, mesh = @m0} : () -> !t
    return %c, %d, %o : !t, !t, !t
  }
}
// EXPECTED exit 0
module attributes {pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}", pw.phase = "shard", pw.platform = "cpu"} {
  "pw.slice"() {devices = 2 : i64, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @m0 = <["x"=2]>
    func.func @main(%arg0: tensor<4xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }
  module @n_1 attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%arg0: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }
  module @n attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%arg0: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }
  module @q attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @m0 = <["x"=2]>
    func.func @main(%arg0: tensor<4xf32> {sdy.sharding = #sdy.sharding<@m0, [{}]>}) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@m0, [{}]>}) {
      return %arg0 : tensor<4xf32>
    }
  }
  module @one attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func @main() -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
      %cst = stablehlo.constant dense<1.000000e+00> : tensor<4xf32>
      return %cst : tensor<4xf32>
    }
  }
  func.func @p(%arg0: tensor<4xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}, %arg1: tensor<4xf32> {pw.mesh = @m0, pw.name = "y", pw.sharding = #sdy.sharding<@m0, [{}]>}, %arg2: tensor<4xf32> {pw.mesh = @m0, pw.name = "z", pw.sharding = #sdy.sharding<@m0, [{}]>}) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) attributes {pw.program} {
    %0 = "pw.call"(%arg0) {callee = @n, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "pw.transfer"(%0) {mesh = @m0, sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, user} : (tensor<4xf32>) -> tensor<4xf32>
    %2 = "pw.call"(%1) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<4xf32>) -> tensor<4xf32>
    %3 = "pw.call"(%arg1) {callee = @n_1, in_shardings = #sdy.sharding_per_value<[<@m0, [{}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}]>]>} : (tensor<4xf32>) -> tensor<4xf32>
    %4 = "pw.call"(%2) {callee = @n, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<4xf32>) -> tensor<4xf32>
    %5 = "pw.call"(%arg2) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<4xf32>) -> tensor<4xf32>
    %6 = "pw.call"(%arg2) {callee = @q, in_shardings = #sdy.sharding_per_value<[<@m0, [{}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}]>]>} : (tensor<4xf32>) -> tensor<4xf32>
    %7 = "pw.call"() {callee = @one, gathered, in_shardings = #sdy.sharding_per_value<[]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}]>]>} : () -> tensor<4xf32>
    return %3, %4, %7 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }
}

