// RUN: pwc opt - --no-debug-info --pass-pipeline='order-calls{schedule=1f1b}'
// Two stages, two microbatches, forward and backward: slices in the order of the table, transfers at once, a microbatch cut right before it is needed.
#p = #sdy.sharding<@m0, []>
#q = #sdy.sharding<@m1, []>
#a = #sdy.sharding_per_value<[<@m0, []>]>
#aa = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>
#b = #sdy.sharding_per_value<[<@m1, []>]>
#bb = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.phase = "transfer", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}",
  pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}"} {
  "pw.island"() {name = "i0", hosts = 1 : i64, devices = 1 : i64, kind = "any"} : () -> ()
  "pw.island"() {name = "i1", hosts = 1 : i64, devices = 1 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i0, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 1 : i64, island = @i1, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%w: !t, %x: !t) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  module @h attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]>
    func.func @main(%x: !t, %y: !t) -> (!t, !t) { return %x, %y : !t, !t } }
  module @b attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t, %d: !t) -> !t { return %d : !t } }
  module @add attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t, %y: !t) -> !t { %0 = stablehlo.negate %y : !t return %0 : !t } }
  func.func @p(%i: !t {pw.name = "i", pw.mesh = @m0, pw.sharding = #p, pw.value = "00000000"}, %w: !t {pw.name = "w", pw.mesh = @m0, pw.sharding = #p},
               %v: !t {pw.name = "v", pw.mesh = @m1, pw.sharding = #q}) -> (!t, !t) attributes {pw.program} {
    %c0 = "pw.call"(%i, %i) {callee = @add, mesh = @m0, island = @i0, action = "0F0", gathered, in_shardings = #aa, out_shardings = #a} : (!t, !t) -> !t
    %c1 = "pw.call"(%i, %i) {callee = @add, mesh = @m0, island = @i0, action = "0F1", gathered, in_shardings = #aa, out_shardings = #a} : (!t, !t) -> !t
    %f0 = "pw.call"(%w, %c0) {callee = @f, mesh = @m0, island = @i0, action = "0F0", in_shardings = #aa, out_shardings = #a} : (!t, !t) -> !t
    %u0 = "pw.transfer"(%f0) {mesh = @m1, sharding = #b, source = #a, route = "dcn", bytes = 4 : i64} : (!t) -> !t
    %g0 = "pw.call"(%v, %u0) {callee = @f, mesh = @m1, island = @i1, action = "1F0", in_shardings = #bb, out_shardings = #b} : (!t, !t) -> !t
    %h0:2 = "pw.call"(%u0, %g0) {callee = @h, mesh = @m1, island = @i1, action = "1B0", in_shardings = #bb, out_shardings = #bb} : (!t, !t) -> (!t, !t)
    %d0 = "pw.transfer"(%h0#1) {mesh = @m0, sharding = #a, source = #b, route = "dcn", bytes = 4 : i64} : (!t) -> !t
    %b0 = "pw.call"(%f0, %d0) {callee = @b, mesh = @m0, island = @i0, action = "0B0", in_shardings = #aa, out_shardings = #a} : (!t, !t) -> !t
    %f1 = "pw.call"(%w, %c1) {callee = @f, mesh = @m0, island = @i0, action = "0F1", in_shardings = #aa, out_shardings = #a} : (!t, !t) -> !t
    %u1 = "pw.transfer"(%f1) {mesh = @m1, sharding = #b, source = #a, route = "dcn", bytes = 4 : i64} : (!t) -> !t
    %g1 = "pw.call"(%v, %u1) {callee = @f, mesh = @m1, island = @i1, action = "1F1", in_shardings = #bb, out_shardings = #b} : (!t, !t) -> !t
    %h1:2 = "pw.call"(%u1, %g1) {callee = @h, mesh = @m1, island = @i1, action = "1B1", in_shardings = #bb, out_shardings = #bb} : (!t, !t) -> (!t, !t)
    %d1 = "pw.transfer"(%h1#1) {mesh = @m0, sharding = #a, source = #b, route = "dcn", bytes = 4 : i64} : (!t) -> !t
    %b1 = "pw.call"(%f1, %d1) {callee = @b, mesh = @m0, island = @i0, action = "0B1", in_shardings = #aa, out_shardings = #a} : (!t, !t) -> !t
    %s = "pw.call"(%h0#0, %h1#0) {callee = @add, mesh = @m1, island = @i1, gathered, in_shardings = #bb, out_shardings = #b} : (!t, !t) -> !t
    %t = "pw.call"(%b0, %b1) {callee = @add, mesh = @m0, island = @i0, gathered, in_shardings = #aa, out_shardings = #a} : (!t, !t) -> !t
    return %s, %t : !t, !t
  }
}
// EXPECTED exit 0
module attributes {pw.dcn_gbps = 1.000000e+00 : f64, pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "schedule", pw.platform = "cpu", pw.schedule = {bound = 0.33333333333333337 : f64, bubble = 0.33333333333333337 : f64, microbatches = 2 : i64, name = "1f1b", note = "", slices = 2 : i64, stages = 2 : i64}} {
  "pw.island"() {devices = 1 : i64, hosts = 1 : i64, kind = "any", name = "i0"} : () -> ()
  "pw.island"() {devices = 1 : i64, hosts = 1 : i64, kind = "any", name = "i1"} : () -> ()
  "pw.slice"() {device_ids = "0", devices = 1 : i64, island = @i0, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {device_ids = "0", devices = 1 : i64, island = @i1, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s1, sym_name = "m1"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} {
    sdy.mesh @m = <["x"=1]>
    func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.negate %arg1 : tensor<f32>
      return %0 : tensor<f32>
    }
  }
  module @h attributes {mhlo.num_partitions = 1 : i32} {
    sdy.mesh @m = <["x"=1]>
    func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
      return %arg0, %arg1 : tensor<f32>, tensor<f32>
    }
  }
  module @b attributes {mhlo.num_partitions = 1 : i32} {
    sdy.mesh @m = <["x"=1]>
    func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
      return %arg1 : tensor<f32>
    }
  }
  module @add attributes {mhlo.num_partitions = 1 : i32} {
    sdy.mesh @m = <["x"=1]>
    func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.negate %arg1 : tensor<f32>
      return %0 : tensor<f32>
    }
  }
  func.func @p(%arg0: tensor<f32> {pw.mesh = @m0, pw.name = "i", pw.sharding = #sdy.sharding<@m0, []>, pw.value = "00000000"}, %arg1: tensor<f32> {pw.mesh = @m0, pw.name = "w", pw.sharding = #sdy.sharding<@m0, []>}, %arg2: tensor<f32> {pw.mesh = @m1, pw.name = "v", pw.sharding = #sdy.sharding<@m1, []>}) -> (tensor<f32>, tensor<f32>) attributes {pw.program} {
    %0 = "pw.call"(%arg0, %arg0) {action = "0F0", callee = @add, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, island = @i0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 0 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %1 = "pw.call"(%arg1, %0) {action = "0F0", callee = @f, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, island = @i0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 1 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %2 = "pw.call"(%arg0, %arg0) {action = "0F1", callee = @add, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, island = @i0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 2 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %3 = "pw.transfer"(%1) {bytes = 4 : i64, mesh = @m1, route = "dcn", sharding = #sdy.sharding_per_value<[<@m1, []>]>, source = #sdy.sharding_per_value<[<@m0, []>]>, step = 3 : i64} : (tensor<f32>) -> tensor<f32>
    %4 = "pw.call"(%arg2, %3) {action = "1F0", callee = @f, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>]>, island = @i1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, []>]>, step = 4 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %5 = "pw.call"(%arg1, %2) {action = "0F1", callee = @f, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, island = @i0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 5 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %6:2 = "pw.call"(%3, %4) {action = "1B0", callee = @h, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>]>, island = @i1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>]>, step = 6 : i64} : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    %7 = "pw.transfer"(%5) {bytes = 4 : i64, mesh = @m1, route = "dcn", sharding = #sdy.sharding_per_value<[<@m1, []>]>, source = #sdy.sharding_per_value<[<@m0, []>]>, step = 7 : i64} : (tensor<f32>) -> tensor<f32>
    %8 = "pw.transfer"(%6#1) {bytes = 4 : i64, mesh = @m0, route = "dcn", sharding = #sdy.sharding_per_value<[<@m0, []>]>, source = #sdy.sharding_per_value<[<@m1, []>]>, step = 8 : i64} : (tensor<f32>) -> tensor<f32>
    %9 = "pw.call"(%1, %8) {action = "0B0", callee = @b, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, island = @i0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 9 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %10 = "pw.call"(%arg2, %7) {action = "1F1", callee = @f, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>]>, island = @i1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, []>]>, step = 10 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %11:2 = "pw.call"(%7, %10) {action = "1B1", callee = @h, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>]>, island = @i1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>]>, step = 11 : i64} : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    %12 = "pw.transfer"(%11#1) {bytes = 4 : i64, mesh = @m0, route = "dcn", sharding = #sdy.sharding_per_value<[<@m0, []>]>, source = #sdy.sharding_per_value<[<@m1, []>]>, step = 12 : i64} : (tensor<f32>) -> tensor<f32>
    %13 = "pw.call"(%5, %12) {action = "0B1", callee = @b, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, island = @i0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 13 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %14 = "pw.call"(%6#0, %11#0) {callee = @add, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>]>, island = @i1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, []>]>, step = 14 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %15 = "pw.call"(%9, %13) {callee = @add, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, island = @i0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 15 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    return %14, %15 : tensor<f32>, tensor<f32>
  }
}

