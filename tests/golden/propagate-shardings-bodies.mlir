// RUN: pwc opt - --no-debug-info --pass-pipeline=propagate-shardings
// A body takes a value of another slice as it was made there (@open), unless a call in a body says more (@says); what only bodies take is made as they take it (%y), after they are decided.
#x = #sdy.sharding<@m, [{"x"}, {}]>
#y = #sdy.sharding<@m, [{}, {"x"}]>
!i = tensor<i32>
!t = tensor<8x4xf32>
module attributes {pw.phase = "trace", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}",
  pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  module @rows { sdy.mesh @m = <["x"=2]> func.func @main(%x: !t {sdy.sharding = #x}) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  module @n { func.func @main(%x: !t) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  module @o { func.func @main(%x: !t) -> !t { %0 = stablehlo.abs %x : !t return %0 : !t } }
  module @columns { sdy.mesh @m = <["x"=2]> func.func @main(%x: !t {sdy.sharding = #y}) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  func.func @open(%x: !t {pw.name = "x", pw.mesh = @m1}) -> !t attributes {pw.body} {
    %a = "pw.call"(%x) {callee = @o, mesh = @m1} : (!t) -> !t
    return %a : !t
  }
  func.func @says(%x: !t {pw.name = "x", pw.mesh = @m1}) -> !t attributes {pw.body} {
    %a = "pw.call"(%x) {callee = @columns, mesh = @m1} : (!t) -> !t
    return %a : !t
  }
  func.func @p(%i: !i {pw.name = "i", pw.mesh = @m0}, %x: !t {pw.name = "x", pw.mesh = @m0}, %y: !t {pw.name = "y", pw.mesh = @m0})
      -> (!t, !t, !t) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @rows, mesh = @m0} : (!t) -> !t
    %b = "pw.cond"(%i, %a) {bodies = [@open], meshes = [@m1]} : (!i, !t) -> !t
    %c = "pw.call"(%x) {callee = @rows, mesh = @m0} : (!t) -> !t
    %d = "pw.cond"(%i, %c) {bodies = [@says], meshes = [@m1]} : (!i, !t) -> !t
    %e = "pw.call"(%y) {callee = @n, mesh = @m0} : (!t) -> !t
    %f = "pw.cond"(%i, %e) {bodies = [@says], meshes = [@m1]} : (!i, !t) -> !t
    return %b, %d, %f : !t, !t, !t
  }
}
// EXPECTED exit 0
module attributes {pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}", pw.phase = "shard", pw.platform = "cpu"} {
  "pw.slice"() {devices = 2 : i64, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {devices = 2 : i64, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s1, sym_name = "m1"} : () -> ()
  module @rows attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @m = <["x"=2]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<8x4xf32>
      return %0 : tensor<8x4xf32>
    }
  }
  module @n attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<8x4xf32>
      return %0 : tensor<8x4xf32>
    }
  }
  module @o attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
      %0 = stablehlo.abs %arg0 : tensor<8x4xf32>
      return %0 : tensor<8x4xf32>
    }
  }
  module @columns attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @m = <["x"=2]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m, [{}, {"x"}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m, [{}, {"x"}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<8x4xf32>
      return %0 : tensor<8x4xf32>
    }
  }
  func.func @open(%arg0: tensor<8x4xf32> {pw.mesh = @m1, pw.name = "x", pw.sharding = #sdy.sharding<@m1, [{"x"}, {}]>}) -> tensor<8x4xf32> attributes {pw.body} {
    %0 = "pw.call"(%arg0) {callee = @o, in_shardings = #sdy.sharding_per_value<[<@m1, [{"x"}, {}]>]>, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{"x"}, {}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %0 : tensor<8x4xf32>
  }
  func.func @says(%arg0: tensor<8x4xf32> {pw.mesh = @m1, pw.name = "x", pw.sharding = #sdy.sharding<@m1, [{}, {"x"}]>}) -> tensor<8x4xf32> attributes {pw.body} {
    %0 = "pw.call"(%arg0) {callee = @columns, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"x"}]>]>, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"x"}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %0 : tensor<8x4xf32>
  }
  func.func @p(%arg0: tensor<i32> {pw.mesh = @m0, pw.name = "i", pw.sharding = #sdy.sharding<@m0, []>}, %arg1: tensor<8x4xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}, {}]>}, %arg2: tensor<8x4xf32> {pw.mesh = @m0, pw.name = "y", pw.sharding = #sdy.sharding<@m0, [{}, {"x"}]>}) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) attributes {pw.program} {
    %0 = "pw.call"(%arg1) {callee = @rows, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %1 = "pw.cond"(%arg0, %0) {bodies = [@open], in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m1, [{"x"}, {}]>]>, meshes = [@m1], out_shardings = #sdy.sharding_per_value<[<@m1, [{"x"}, {}]>]>} : (tensor<i32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    %2 = "pw.call"(%arg1) {callee = @rows, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %3 = "pw.cond"(%arg0, %2) {bodies = [@says], in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m1, [{}, {"x"}]>]>, meshes = [@m1], out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"x"}]>]>} : (tensor<i32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    %4 = "pw.call"(%arg2) {callee = @n, in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {"x"}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {"x"}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %5 = "pw.cond"(%arg0, %4) {bodies = [@says], in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m1, [{}, {"x"}]>]>, meshes = [@m1], out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"x"}]>]>} : (tensor<i32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    return %1, %3, %5 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>
  }
}

