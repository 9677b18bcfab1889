// RUN: pwc opt - --no-debug-info --pass-pipeline=merge-calls
// Calls of a slice become one where nobody waits in between; behind a call that a transfer reads, only a loose call without work joins.
#p = #sdy.sharding<@m0, []>
#m = #sdy.sharding<@m, []>
#q = #sdy.sharding<@m1, []>
#a = #sdy.sharding_per_value<[<@m0, []>]>
#aa = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>
#b = #sdy.sharding_per_value<[<@m1, []>]>
#bb = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.phase = "schedule", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}",
  pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}"} {
  "pw.island"() {name = "i", hosts = 1 : i64, devices = 2 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 1 : i64, island = @i, device_ids = "1"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%w: !t, %x: !t) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  module @h attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]>
    func.func @main(%x: !t, %y: !t) -> (!t, !t) { return %x, %y : !t, !t } }
  module @b attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t, %d: !t) -> (!t {sdy.sharding = #m}) { return %d : !t } }
  module @add attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t, %y: !t) -> !t { %0 = stablehlo.negate %y : !t return %0 : !t } }
  func.func @p(%i: !t {pw.name = "i", pw.mesh = @m0, pw.sharding = #p, pw.value = "00000000"}, %w: !t {pw.name = "w", pw.mesh = @m0, pw.sharding = #p},
               %v: !t {pw.name = "v", pw.mesh = @m1, pw.sharding = #q}) -> (!t, !t, !t) attributes {pw.program} {
    %c0 = "pw.call"(%i, %i) {callee = @add, mesh = @m0, island = @i, action = "0F0", gathered, in_shardings = #aa, out_shardings = #a, step = 0 : i64} : (!t, !t) -> !t
    %f0 = "pw.call"(%w, %c0) {callee = @f, mesh = @m0, island = @i, action = "0F0", in_shardings = #aa, out_shardings = #a, step = 1 : i64} : (!t, !t) -> !t
    %u0 = "pw.transfer"(%f0) {mesh = @m1, sharding = #b, source = #a, route = "ici", bytes = 4 : i64, step = 2 : i64} : (!t) -> !t
    %g0 = "pw.call"(%v, %u0) {callee = @f, mesh = @m1, island = @i, action = "1F0", in_shardings = #bb, out_shardings = #b, step = 3 : i64} : (!t, !t) -> !t
    %c1 = "pw.call"(%i, %i) {callee = @add, mesh = @m0, island = @i, action = "0F1", gathered, in_shardings = #aa, out_shardings = #a, step = 4 : i64} : (!t, !t) -> !t
    %f1 = "pw.call"(%w, %c1) {callee = @f, mesh = @m0, island = @i, action = "0F1", in_shardings = #aa, out_shardings = #a, step = 5 : i64} : (!t, !t) -> !t
    %u1 = "pw.transfer"(%f1) {mesh = @m1, sharding = #b, source = #a, route = "ici", bytes = 4 : i64, step = 6 : i64} : (!t) -> !t
    %h0:2 = "pw.call"(%g0, %g0) {callee = @h, mesh = @m1, island = @i, action = "1B0", in_shardings = #bb, out_shardings = #bb, step = 7 : i64} : (!t, !t) -> (!t, !t)
    %d0 = "pw.transfer"(%h0#1) {mesh = @m0, sharding = #a, source = #b, route = "ici", bytes = 4 : i64, step = 8 : i64} : (!t) -> !t
    %b0 = "pw.call"(%c0, %d0) {callee = @b, mesh = @m0, island = @i, action = "0B0", in_shardings = #aa, out_shardings = #a, step = 9 : i64} : (!t, !t) -> !t
    %g1 = "pw.call"(%v, %u1) {callee = @f, mesh = @m1, island = @i, action = "1F1", in_shardings = #bb, out_shardings = #b, step = 10 : i64} : (!t, !t) -> !t
    %h1:2 = "pw.call"(%u1, %g1) {callee = @h, mesh = @m1, island = @i, action = "1B1", in_shardings = #bb, out_shardings = #bb, step = 11 : i64} : (!t, !t) -> (!t, !t)
    %d1 = "pw.transfer"(%h1#1) {mesh = @m0, sharding = #a, source = #b, route = "ici", bytes = 4 : i64, step = 12 : i64} : (!t) -> !t
    %r = "pw.call"(%h1#0, %h1#1) {callee = @b, mesh = @m1, island = @i, gathered, in_shardings = #bb, out_shardings = #b, step = 13 : i64} : (!t, !t) -> !t
    %s = "pw.call"(%h0#0, %h1#0) {callee = @add, mesh = @m1, island = @i, gathered, in_shardings = #bb, out_shardings = #b, step = 14 : i64} : (!t, !t) -> !t
    %b1 = "pw.call"(%c1, %d1) {callee = @b, mesh = @m0, island = @i, action = "0B1", in_shardings = #aa, out_shardings = #a, step = 15 : i64} : (!t, !t) -> !t
    %t = "pw.call"(%b0, %b1) {callee = @add, mesh = @m0, island = @i, gathered, in_shardings = #aa, out_shardings = #a, step = 16 : i64} : (!t, !t) -> !t
    return %r, %s, %t : !t, !t, !t
  }
}
// EXPECTED exit 0
module attributes {pw.dcn_gbps = 1.000000e+00 : f64, pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.merged, pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}", pw.phase = "schedule", pw.platform = "cpu"} {
  "pw.island"() {devices = 2 : i64, hosts = 1 : i64, kind = "any", name = "i"} : () -> ()
  "pw.slice"() {device_ids = "0", devices = 1 : i64, island = @i, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {device_ids = "1", devices = 1 : i64, island = @i, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s1, sym_name = "m1"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} {
    sdy.mesh @m = <["x"=1]>
    func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.negate %arg1 : tensor<f32>
      return %0 : tensor<f32>
    }
  }
  module @b attributes {mhlo.num_partitions = 1 : i32} {
    sdy.mesh @m = <["x"=1]>
    func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> (tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}) {
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
  module @add_f attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @m = <["x"=1]>
    func.func private @part0_main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.negate %arg1 : tensor<f32>
      return %0 : tensor<f32>
    }
    func.func private @part1_main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.negate %arg1 : tensor<f32>
      return %0 : tensor<f32>
    }
    func.func public @main(%arg0: tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}, %arg1: tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}) -> (tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}, tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}) {
      %0 = call @part0_main(%arg0, %arg0) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      %1 = call @part1_main(%arg1, %0) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      return %0, %1 : tensor<f32>, tensor<f32>
    }
  }
  module @f_h attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @m = <["x"=1]>
    func.func private @part0_main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.negate %arg1 : tensor<f32>
      return %0 : tensor<f32>
    }
    func.func private @part1_main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
      return %arg0, %arg1 : tensor<f32>, tensor<f32>
    }
    func.func public @main(%arg0: tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}, %arg1: tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}) -> (tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}, tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}) {
      %0 = call @part0_main(%arg0, %arg1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      %1:2 = call @part1_main(%0, %0) : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
      return %1#0, %1#1 : tensor<f32>, tensor<f32>
    }
  }
  module @h_b attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @m = <["x"=1]>
    func.func private @part0_main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
      return %arg0, %arg1 : tensor<f32>, tensor<f32>
    }
    func.func private @part1_main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
      return %arg1 : tensor<f32>
    }
    func.func public @main(%arg0: tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}, %arg1: tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}) -> (tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}, tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}, tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}) {
      %0:2 = call @part0_main(%arg0, %arg1) : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
      %1 = call @part1_main(%0#0, %0#1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      return %0#0, %0#1, %1 : tensor<f32>, tensor<f32>, tensor<f32>
    }
  }
  module @b_add attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @m = <["x"=1]>
    func.func private @part0_main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
      return %arg1 : tensor<f32>
    }
    func.func private @part1_main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.negate %arg1 : tensor<f32>
      return %0 : tensor<f32>
    }
    func.func public @main(%arg0: tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}, %arg1: tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}, %arg2: tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}) -> (tensor<f32> {sdy.sharding = #sdy.sharding<@m, []>}) {
      %0 = call @part0_main(%arg0, %arg1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      %1 = call @part1_main(%arg2, %0) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      return %1 : tensor<f32>
    }
  }
  func.func @p(%arg0: tensor<f32> {pw.mesh = @m0, pw.name = "i", pw.sharding = #sdy.sharding<@m0, []>, pw.value = "00000000"}, %arg1: tensor<f32> {pw.mesh = @m0, pw.name = "w", pw.sharding = #sdy.sharding<@m0, []>}, %arg2: tensor<f32> {pw.mesh = @m1, pw.name = "v", pw.sharding = #sdy.sharding<@m1, []>}) -> (tensor<f32>, tensor<f32>, tensor<f32>) attributes {pw.program} {
    %add2Bf:2 = "pw.call"(%arg0, %arg1) {action = "0F0", callee = @add_f, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, island = @i, made_by = array<i64: 0, 1>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, parts = ["0F0 add -:25", "0F0 f -:26"], step = 0 : i64} : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    %0 = "pw.transfer"(%add2Bf#1) {bytes = 4 : i64, mesh = @m1, route = "ici", sharding = #sdy.sharding_per_value<[<@m1, []>]>, source = #sdy.sharding_per_value<[<@m0, []>]>, step = 1 : i64} : (tensor<f32>) -> tensor<f32>
    %f2Bh:2 = "pw.call"(%arg2, %0) {action = "1B0", callee = @f_h, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>]>, island = @i, made_by = array<i64: 1, 1>, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>]>, parts = ["1F0 f -:28", "1B0 h -:32"], step = 2 : i64} : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    %add2Bf_0:2 = "pw.call"(%arg0, %arg1) {action = "0F1", callee = @add_f, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, island = @i, made_by = array<i64: 0, 1>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, parts = ["0F1 add -:29", "0F1 f -:30"], step = 3 : i64} : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    %1 = "pw.transfer"(%add2Bf_0#1) {bytes = 4 : i64, mesh = @m1, route = "ici", sharding = #sdy.sharding_per_value<[<@m1, []>]>, source = #sdy.sharding_per_value<[<@m0, []>]>, step = 4 : i64} : (tensor<f32>) -> tensor<f32>
    %2 = "pw.transfer"(%f2Bh#1) {bytes = 4 : i64, mesh = @m0, route = "ici", sharding = #sdy.sharding_per_value<[<@m0, []>]>, source = #sdy.sharding_per_value<[<@m1, []>]>, step = 5 : i64} : (tensor<f32>) -> tensor<f32>
    %3 = "pw.call"(%add2Bf#0, %2) {action = "0B0", callee = @b, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, island = @i, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 6 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %4 = "pw.call"(%arg2, %1) {action = "1F1", callee = @f, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>]>, island = @i, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, []>]>, step = 7 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %h2Bb:3 = "pw.call"(%1, %4) {action = "1B1", callee = @h_b, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>]>, island = @i, made_by = array<i64: 0, 0, 1>, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>, <@m1, []>]>, parts = ["1B1 h -:36", "- b -:38"], step = 8 : i64} : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<f32>)
    %5 = "pw.transfer"(%h2Bb#1) {bytes = 4 : i64, mesh = @m0, route = "ici", sharding = #sdy.sharding_per_value<[<@m0, []>]>, source = #sdy.sharding_per_value<[<@m1, []>]>, step = 9 : i64} : (tensor<f32>) -> tensor<f32>
    %6 = "pw.call"(%f2Bh#0, %h2Bb#0) {callee = @add, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m1, []>, <@m1, []>]>, island = @i, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, []>]>, step = 10 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %b2Badd = "pw.call"(%add2Bf_0#0, %5, %3) {action = "0B1", callee = @b_add, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>, <@m0, []>]>, island = @i, made_by = array<i64: 1>, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, parts = ["0B1 b -:40", "- add -:41"], step = 11 : i64} : (tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
    return %h2Bb#2, %6, %b2Badd : tensor<f32>, tensor<f32>, tensor<f32>
  }
}

