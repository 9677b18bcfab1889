// RUN: pwc opt - --no-debug-info --pass-pipeline=propagate-shardings
// A loop: shardings go into its bodies and come out of them; what a body makes on another slice is moved to where the loop carries it.
#s = #sdy.sharding<@m, [{"x"}]>
!i = tensor<i32>
!t = tensor<8xf32>
module attributes {pw.phase = "trace", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}",
  pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  module @lt { func.func @main(%i: !i, %n: !i) -> tensor<i1> { %0 = stablehlo.compare LT, %i, %n : (!i, !i) -> tensor<i1> return %0 : tensor<i1> } }
  module @add { func.func @main(%i: !i) -> !i { return %i : !i } }
  module @f { sdy.mesh @m = <["x"=2]> func.func @main(%x: !t {sdy.sharding = #s}) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  module @g { sdy.mesh @m = <["x"=2]> func.func @main(%x: !t) -> (!t {sdy.sharding = #s}) { %0 = stablehlo.negate %x : !t return %0 : !t } }
  module @h { func.func @main(%x: !t) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  func.func @test(%i: !i {pw.name = "i", pw.mesh = @m0}, %n: !i {pw.name = "n", pw.mesh = @m0}, %x: !t {pw.name = "x"}) -> tensor<i1> attributes {pw.body} {
    %a = "pw.call"(%i, %n) {callee = @lt, gathered, mesh = @m0} : (!i, !i) -> tensor<i1>
    return %a : tensor<i1>
  }
  func.func @step(%i: !i {pw.name = "i", pw.mesh = @m0}, %n: !i {pw.name = "n", pw.mesh = @m0}, %x: !t {pw.name = "x", pw.mesh = @m0})
      -> (!i, !i, !t) attributes {pw.body} {
    %a = "pw.call"(%i) {callee = @add, gathered, mesh = @m0} : (!i) -> !i
    %b = "pw.call"(%x) {callee = @f, mesh = @m0} : (!t) -> !t
    %c = "pw.call"(%b) {callee = @g, mesh = @m1} : (!t) -> !t
    return %a, %n, %c : !i, !i, !t
  }
  func.func @p(%k: !i {pw.name = "k", pw.mesh = @m0, pw.value = "00000000"}, %n: !i {pw.name = "n", pw.mesh = @m0}, %x: !t {pw.name = "x", pw.mesh = @m0})
      -> (!t, !t) attributes {pw.program} {
    %w:3 = "pw.while"(%k, %n, %x) {bodies = [@test, @step], meshes = [@m0, @m0, @m0]} : (!i, !i, !t) -> (!i, !i, !t)
    %y = "pw.call"(%w#2) {callee = @h, mesh = @m0} : (!t) -> !t
    return %w#2, %y : !t, !t
  }
}
// EXPECTED exit 0
module attributes {pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "shard", pw.platform = "cpu"} {
  "pw.slice"() {devices = 2 : i64, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {devices = 2 : i64, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s1, sym_name = "m1"} : () -> ()
  module @lt attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%arg0: tensor<i32> {sdy.sharding = #sdy.sharding<@mesh, []>}, %arg1: tensor<i32> {sdy.sharding = #sdy.sharding<@mesh, []>}) -> (tensor<i1> {sdy.sharding = #sdy.sharding<@mesh, []>}) {
      %0 = stablehlo.compare LT, %arg0, %arg1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      return %0 : tensor<i1>
    }
  }
  module @add attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%arg0: tensor<i32> {sdy.sharding = #sdy.sharding<@mesh, []>}) -> (tensor<i32> {sdy.sharding = #sdy.sharding<@mesh, []>}) {
      return %arg0 : tensor<i32>
    }
  }
  module @f attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @m = <["x"=2]>
    func.func @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<8xf32>
      return %0 : tensor<8xf32>
    }
  }
  module @g attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @m = <["x"=2]>
    func.func @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<8xf32>
      return %0 : tensor<8xf32>
    }
  }
  module @h attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<8xf32>
      return %0 : tensor<8xf32>
    }
  }
  func.func @test(%arg0: tensor<i32> {pw.mesh = @m0, pw.name = "i", pw.sharding = #sdy.sharding<@m0, []>}, %arg1: tensor<i32> {pw.mesh = @m0, pw.name = "n", pw.sharding = #sdy.sharding<@m0, []>}, %arg2: tensor<8xf32> {pw.name = "x"}) -> tensor<i1> attributes {pw.body} {
    %0 = "pw.call"(%arg0, %arg1) {callee = @lt, gathered, in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
    return %0 : tensor<i1>
  }
  func.func @step(%arg0: tensor<i32> {pw.mesh = @m0, pw.name = "i", pw.sharding = #sdy.sharding<@m0, []>}, %arg1: tensor<i32> {pw.mesh = @m0, pw.name = "n", pw.sharding = #sdy.sharding<@m0, []>}, %arg2: tensor<8xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> (tensor<i32>, tensor<i32>, tensor<8xf32>) attributes {pw.body} {
    %0 = "pw.call"(%arg0) {callee = @add, gathered, in_shardings = #sdy.sharding_per_value<[<@m0, []>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>} : (tensor<i32>) -> tensor<i32>
    %1 = "pw.call"(%arg2) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    %2 = "pw.call"(%1) {callee = @g, in_shardings = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    %moved = "pw.transfer"(%2) {mesh = @m0, reason = "all bodies return this result on the same mesh and sharding", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    return %0, %arg1, %moved : tensor<i32>, tensor<i32>, tensor<8xf32>
  }
  func.func @p(%arg0: tensor<i32> {pw.mesh = @m0, pw.name = "k", pw.sharding = #sdy.sharding<@m0, []>, pw.value = "00000000"}, %arg1: tensor<i32> {pw.mesh = @m0, pw.name = "n", pw.sharding = #sdy.sharding<@m0, []>}, %arg2: tensor<8xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> (tensor<8xf32>, tensor<8xf32>) attributes {pw.program} {
    %0:3 = "pw.while"(%arg0, %arg1, %arg2) {bodies = [@test, @step], in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>, <@m0, [{"x"}]>]>, meshes = [@m0, @m0, @m0], out_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>, <@m0, [{"x"}]>]>} : (tensor<i32>, tensor<i32>, tensor<8xf32>) -> (tensor<i32>, tensor<i32>, tensor<8xf32>)
    %1 = "pw.call"(%0#2) {callee = @h, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    return %0#2, %1 : tensor<8xf32>, tensor<8xf32>
  }
}

