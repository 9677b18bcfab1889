// RUN: pwc opt - --no-debug-info --pass-pipeline=propagate-shardings
// A constraint in a function that one branch of a conditional calls reaches argument and result of the computation; a number on no mesh stays whole.
#n = #sdy.sharding<@none, []>
!t = tensor<8xf32>
!i = tensor<i32>
module attributes {pw.phase = "trace", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "\22leaf\22"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  module @f { sdy.mesh @none = <[]> sdy.mesh @m0 = <["x"=2]>
    func.func @main(%i: !i {sdy.sharding = #n}, %x: !t) -> !t {
      %0 = "stablehlo.case"(%i) ({
        stablehlo.return %x : !t
      }, {
        %1 = func.call @g(%x) : (!t) -> !t
        stablehlo.return %1 : !t
      }) : (!i) -> !t
      return %0 : !t
    }
    func.func private @g(%x: !t) -> !t {
      %0 = sdy.sharding_constraint %x <@m0, [{"x"}]> : !t
      return %0 : !t
    }
  }
  func.func @p(%i: !i {pw.name = "i", pw.mesh = @m0}, %x: !t {pw.name = "x", pw.mesh = @m0}) -> !t attributes {pw.program} {
    %a = "pw.call"(%i, %x) {callee = @f, mesh = @m0} : (!i, !t) -> !t
    return %a : !t
  }
}
// EXPECTED exit 0
module attributes {pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "\22leaf\22", pw.phase = "shard", pw.platform = "cpu"} {
  "pw.slice"() {devices = 2 : i64, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @none = <[]>
    sdy.mesh @m0 = <["x"=2]>
    func.func @main(%arg0: tensor<i32> {sdy.sharding = #sdy.sharding<@m0, []>}, %arg1: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}]>}) {
      %0 = "stablehlo.case"(%arg0) ({
        stablehlo.return %arg1 : tensor<8xf32>
      }, {
        %1 = func.call @g(%arg1) : (tensor<8xf32>) -> tensor<8xf32>
        stablehlo.return %1 : tensor<8xf32>
      }) : (tensor<i32>) -> tensor<8xf32>
      return %0 : tensor<8xf32>
    }
    func.func private @g(%arg0: tensor<8xf32>) -> tensor<8xf32> {
      %0 = sdy.sharding_constraint %arg0 <@m0, [{"x"}]> : tensor<8xf32>
      return %0 : tensor<8xf32>
    }
  }
  func.func @p(%arg0: tensor<i32> {pw.mesh = @m0, pw.name = "i", pw.sharding = #sdy.sharding<@m0, []>}, %arg1: tensor<8xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> tensor<8xf32> attributes {pw.program} {
    %0 = "pw.call"(%arg0, %arg1) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, [{"x"}]>]>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<i32>, tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}

