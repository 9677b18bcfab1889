// RUN: pwc opt - --no-debug-info --pass-pipeline=propagate-shardings
// What the program states of its arguments (%w, and %x, which a call takes otherwise) stays, and goes on from there: through @f, and to @m1.
#x = #sdy.sharding<@m0, [{"x"}, {}]>
#y = #sdy.sharding<@m0, [{}, {"x"}]>
!t = tensor<8x4xf32>
module attributes {pw.phase = "trace", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}",
  pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  module @f { func.func @main(%x: !t) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  module @g { sdy.mesh @m0 = <["x"=2]> func.func @main(%x: !t {sdy.sharding = #y}) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  func.func @p(%w: !t {pw.name = "w", pw.mesh = @m0, pw.sharding = #y}, %x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #x})
      -> (!t, !t) attributes {pw.program} {
    %a = "pw.call"(%w) {callee = @f, mesh = @m0} : (!t) -> !t
    %b = "pw.call"(%a) {callee = @f, mesh = @m1} : (!t) -> !t
    %c = "pw.call"(%x) {callee = @g, mesh = @m0} : (!t) -> !t
    return %b, %c : !t, !t
  }
}
// EXPECTED exit 0
module attributes {pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "shard", pw.platform = "cpu"} {
  "pw.slice"() {devices = 2 : i64, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {devices = 2 : i64, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s1, sym_name = "m1"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<8x4xf32>
      return %0 : tensor<8x4xf32>
    }
  }
  module @g attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @m0 = <["x"=2]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m0, [{}, {"x"}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m0, [{}, {"x"}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<8x4xf32>
      return %0 : tensor<8x4xf32>
    }
  }
  func.func @p(%arg0: tensor<8x4xf32> {pw.mesh = @m0, pw.name = "w", pw.sharding = #sdy.sharding<@m0, [{}, {"x"}]>}, %arg1: tensor<8x4xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}, {}]>}) -> (tensor<8x4xf32>, tensor<8x4xf32>) attributes {pw.program} {
    %0 = "pw.call"(%arg0) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {"x"}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {"x"}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %1 = "pw.call"(%0) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"x"}]>]>, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"x"}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %2 = "pw.call"(%arg1) {callee = @g, in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {"x"}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}, {"x"}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %1, %2 : tensor<8x4xf32>, tensor<8x4xf32>
  }
}

