// RUN: pwc opt - --no-debug-info --pass-pipeline=order-calls
// A program without a loop keeps its order: every call and transfer gets a step, the user's move and gathered calls too.
#a = #sdy.sharding_per_value<[<@m0, []>]>
#aa = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>
#b = #sdy.sharding_per_value<[<@m1, []>]>
#bb = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.phase = "transfer", pw.platform = "cpu",
  pw.in_tree = "\22leaf\22", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}"} {
  "pw.island"() {name = "i", hosts = 1 : i64, devices = 2 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 1 : i64, island = @i, device_ids = "1"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%w: !t, %x: !t) -> !t { return %x : !t } }
  module @g attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>}) -> (!t, !t) attributes {pw.program} {
    %a = "pw.call"(%x, %x) {callee = @f, mesh = @m0, island = @i, in_shardings = #aa, out_shardings = #a} : (!t, !t) -> !t
    %t = "pw.transfer"(%a) {mesh = @m1, sharding = #b, source = #a, route = "ici", bytes = 4 : i64} : (!t) -> !t
    %b = "pw.call"(%t) {callee = @g, mesh = @m1, island = @i, in_shardings = #b, out_shardings = #b} : (!t) -> !t
    %c = "pw.call"(%b) {callee = @g, mesh = @m1, island = @i, gathered, in_shardings = #b, out_shardings = #b} : (!t) -> !t
    %u = "pw.transfer"(%a) {mesh = @m1, sharding = #b, source = #a, route = "ici", user, bytes = 4 : i64} : (!t) -> !t
    return %c, %u : !t, !t
  }
}
// EXPECTED exit 0
module attributes {pw.dcn_gbps = 1.000000e+00 : f64, pw.in_tree = "\22leaf\22", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "schedule", pw.platform = "cpu", pw.schedule = {bound = 0.000000e+00 : f64, bubble = 0.000000e+00 : f64, microbatches = 0 : i64, name = "program", note = "", slices = 0 : i64, stages = 0 : i64}} {
  "pw.island"() {devices = 2 : i64, hosts = 1 : i64, kind = "any", name = "i"} : () -> ()
  "pw.slice"() {device_ids = "0", devices = 1 : i64, island = @i, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {device_ids = "1", devices = 1 : i64, island = @i, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s1, sym_name = "m1"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} {
    sdy.mesh @m = <["x"=1]>
    func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
      return %arg1 : tensor<f32>
    }
  }
  module @g attributes {mhlo.num_partitions = 1 : i32} {
    sdy.mesh @m = <["x"=1]>
    func.func @main(%arg0: tensor<f32>) -> tensor<f32> {
      return %arg0 : tensor<f32>
    }
  }
  func.func @p(%arg0: tensor<f32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, []>}) -> (tensor<f32>, tensor<f32>) attributes {pw.program} {
    %0 = "pw.call"(%arg0, %arg0) {callee = @f, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, island = @i, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 0 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %1 = "pw.transfer"(%0) {bytes = 4 : i64, mesh = @m1, route = "ici", sharding = #sdy.sharding_per_value<[<@m1, []>]>, source = #sdy.sharding_per_value<[<@m0, []>]>, step = 1 : i64} : (tensor<f32>) -> tensor<f32>
    %2 = "pw.call"(%1) {callee = @g, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, []>]>, island = @i, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, []>]>, step = 2 : i64} : (tensor<f32>) -> tensor<f32>
    %3 = "pw.call"(%2) {callee = @g, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m1, []>]>, island = @i, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, []>]>, step = 3 : i64} : (tensor<f32>) -> tensor<f32>
    %4 = "pw.transfer"(%0) {bytes = 4 : i64, mesh = @m1, route = "ici", sharding = #sdy.sharding_per_value<[<@m1, []>]>, source = #sdy.sharding_per_value<[<@m0, []>]>, step = 4 : i64, user} : (tensor<f32>) -> tensor<f32>
    return %3, %4 : tensor<f32>, tensor<f32>
  }
}

