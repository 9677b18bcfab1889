// RUN: pwc opt - --no-debug-info --pass-pipeline=propagate-shardings
// On slices of equal axes a value is taken as it was made (%a to @n and the bare move), what nothing determines is made as it is taken (%z), and what the user states or the mesh itself determines stays (%y to @columns, %d to @add). Other axes, @m2, know nothing of it.
#x = #sdy.sharding<@m, [{"x"}, {}]>
#y = #sdy.sharding<@m, [{}, {"x"}]>
!t = tensor<8x4xf32>
module attributes {pw.phase = "trace", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}",
  pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22,\22leaf\22,\22leaf\22,\22leaf\22]}"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s2", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m2", slice = @s2, axes = #sdy.mesh<["w"=2]>, devices = "0:2"} : () -> ()
  module @rows { sdy.mesh @m = <["x"=2]> func.func @main(%x: !t {sdy.sharding = #x}) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  module @columns { sdy.mesh @m = <["x"=2]> func.func @main(%x: !t {sdy.sharding = #y}) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  module @n { func.func @main(%x: !t) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  module @add { func.func @main(%x: !t, %y: !t) -> !t { %0 = stablehlo.add %x, %y : !t return %0 : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0}, %y: !t {pw.name = "y", pw.mesh = @m0}, %z: !t {pw.name = "z", pw.mesh = @m0})
      -> (!t, !t, !t, !t, !t, !t) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @rows, mesh = @m0} : (!t) -> !t
    %b = "pw.call"(%a) {callee = @n, mesh = @m1} : (!t) -> !t
    %t = "pw.transfer"(%a) {mesh = @m1, user} : (!t) -> !t
    %c = "pw.call"(%y) {callee = @columns, mesh = @m1} : (!t) -> !t
    %d = "pw.call"(%y) {callee = @rows, mesh = @m0} : (!t) -> !t
    %e = "pw.call"(%z) {callee = @n, mesh = @m0} : (!t) -> !t
    %f = "pw.call"(%e) {callee = @columns, mesh = @m1} : (!t) -> !t
    %g = "pw.call"(%b, %f) {callee = @add, mesh = @m2} : (!t, !t) -> !t
    %h = "pw.call"(%d, %c) {callee = @add, mesh = @m1} : (!t, !t) -> !t
    return %b, %t, %d, %f, %g, %h : !t, !t, !t, !t, !t, !t
  }
}
// EXPECTED exit 0
module attributes {pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22,\22leaf\22,\22leaf\22,\22leaf\22]}", pw.phase = "shard", pw.platform = "cpu"} {
  "pw.slice"() {devices = 2 : i64, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {devices = 2 : i64, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s1, sym_name = "m1"} : () -> ()
  "pw.slice"() {devices = 2 : i64, sym_name = "s2"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["w"=2]>, devices = "0:2", slice = @s2, sym_name = "m2"} : () -> ()
  module @rows attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @m = <["x"=2]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<8x4xf32>
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
  module @n_1 attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<8x4xf32>
      return %0 : tensor<8x4xf32>
    }
  }
  module @n attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<8x4xf32>
      return %0 : tensor<8x4xf32>
    }
  }
  module @add_1 attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}, %arg1: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) {
      %0 = stablehlo.add %arg0, %arg1 : tensor<8x4xf32>
      return %0 : tensor<8x4xf32>
    }
  }
  module @add attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["w"=2]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg1: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %0 = stablehlo.add %arg0, %arg1 : tensor<8x4xf32>
      return %0 : tensor<8x4xf32>
    }
  }
  func.func @p(%arg0: tensor<8x4xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}, {}]>}, %arg1: tensor<8x4xf32> {pw.mesh = @m0, pw.name = "y", pw.sharding = #sdy.sharding<@m0, [{"x"}, {}]>}, %arg2: tensor<8x4xf32> {pw.mesh = @m0, pw.name = "z", pw.sharding = #sdy.sharding<@m0, [{}, {"x"}]>}) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) attributes {pw.program} {
    %0 = "pw.call"(%arg0) {callee = @rows, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %1 = "pw.call"(%0) {callee = @n, in_shardings = #sdy.sharding_per_value<[<@m1, [{"x"}, {}]>]>, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{"x"}, {}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %2 = "pw.transfer"(%0) {mesh = @m1, sharding = #sdy.sharding_per_value<[<@m1, [{"x"}, {}]>]>, user} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %3 = "pw.call"(%arg1) {callee = @columns, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"x"}]>]>, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"x"}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %4 = "pw.call"(%arg1) {callee = @rows, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %5 = "pw.call"(%arg2) {callee = @n_1, in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {"x"}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {"x"}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %6 = "pw.call"(%5) {callee = @columns, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"x"}]>]>, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"x"}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %7 = "pw.call"(%1, %6) {callee = @add, in_shardings = #sdy.sharding_per_value<[<@m2, [{}, {}]>, <@m2, [{}, {}]>]>, mesh = @m2, out_shardings = #sdy.sharding_per_value<[<@m2, [{}, {}]>]>} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    %8 = "pw.call"(%4, %3) {callee = @add_1, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"x"}]>, <@m1, [{}, {"x"}]>]>, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"x"}]>]>} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    return %1, %2, %4, %6, %7, %8 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>
  }
}

