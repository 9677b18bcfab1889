// RUN: pwc opt - --no-debug-info --pass-pipeline=plan-islands
// One island: a copy between slices, a constant, owners by microbatch, an argument that is returned, no donation where another call of the computation may not.
#a = #sdy.sharding_per_value<[<@m0, []>]>
#aa = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>
#b = #sdy.sharding_per_value<[<@m1, []>]>
!t = tensor<f32>
module attributes {pw.dcn_gbps = 1.0, pw.phase = "schedule", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}",
  pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}"} {
  "pw.island"() {name = "i", hosts = 1 : i64, devices = 2 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 1 : i64, island = @i, device_ids = "1"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%k: !t, %x: !t) -> !t { return %x : !t } }
  module @g attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m = <["x"=1]> func.func @main(%x: !t) -> !t { return %x : !t } }
  func.func @p(%k: !t {pw.name = "k", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>, pw.value = "00000000"},
               %x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>},
               %y: !t {pw.name = "y", pw.mesh = @m1, pw.sharding = #sdy.sharding<@m1, []>}) -> (!t, !t, !t) attributes {pw.program} {
    %a = "pw.call"(%k, %x) {callee = @f, mesh = @m0, island = @i, action = "0F0", in_shardings = #aa, out_shardings = #a, step = 0 : i64} : (!t, !t) -> !t
    %t = "pw.transfer"(%a) {mesh = @m1, sharding = #b, source = #a, route = "ici", bytes = 4 : i64, step = 1 : i64} : (!t) -> !t
    %b = "pw.call"(%t) {callee = @g, mesh = @m1, island = @i, action = "1B0", in_shardings = #b, out_shardings = #b, step = 2 : i64} : (!t) -> !t
    %c = "pw.call"(%a) {callee = @g, mesh = @m0, island = @i, action = "0B0", in_shardings = #a, out_shardings = #a, step = 3 : i64} : (!t) -> !t
    %d = "pw.call"(%k, %c) {callee = @f, mesh = @m0, island = @i, again, action = "0B0", in_shardings = #aa, out_shardings = #a, step = 4 : i64} : (!t, !t) -> !t
    return %b, %d, %y : !t, !t, !t
  }
}
// EXPECTED exit 0
module attributes {pw.dcn_gbps = 1.000000e+00 : f64, pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}", pw.phase = "plan", pw.platform = "cpu", pw.temporaries = "estimated"} {
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
    func.func @main(%arg0: tensor<f32> {tf.aliasing_output = 0 : i32}) -> tensor<f32> {
      return %arg0 : tensor<f32>
    }
  }
  func.func @p(%arg0: tensor<f32> {pw.mesh = @m0, pw.name = "k", pw.sharding = #sdy.sharding<@m0, []>, pw.value = "00000000"}, %arg1: tensor<f32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, []>}, %arg2: tensor<f32> {pw.mesh = @m1, pw.name = "y", pw.sharding = #sdy.sharding<@m1, []>}) -> (tensor<f32>, tensor<f32>, tensor<f32>) attributes {pw.program} {
    %0 = "pw.call"(%arg0, %arg1) {action = "0F0", callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, island = @i, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 0 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %1 = "pw.transfer"(%0) {bytes = 4 : i64, mesh = @m1, route = "ici", sharding = #sdy.sharding_per_value<[<@m1, []>]>, source = #sdy.sharding_per_value<[<@m0, []>]>, step = 1 : i64} : (tensor<f32>) -> tensor<f32>
    %2 = "pw.call"(%1) {action = "1B0", callee = @g, in_shardings = #sdy.sharding_per_value<[<@m1, []>]>, island = @i, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, []>]>, step = 2 : i64} : (tensor<f32>) -> tensor<f32>
    %3 = "pw.call"(%0) {action = "0B0", callee = @g, in_shardings = #sdy.sharding_per_value<[<@m0, []>]>, island = @i, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 3 : i64} : (tensor<f32>) -> tensor<f32>
    %4 = "pw.call"(%arg0, %3) {action = "0B0", again, callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, island = @i, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 4 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    return %2, %4, %arg2 : tensor<f32>, tensor<f32>, tensor<f32>
  }
  "pw.plan"() ({
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: -1>, name = "k", owner = "constants", role = "constant", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<f32>], slot = 0 : i64, types = [tensor<f32>]} : () -> ()
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: 0>, name = "x", owner = "x", role = "input", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<f32>], slot = 1 : i64, types = [tensor<f32>]} : () -> ()
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: -1>, name = "y", owner = "y", role = "input", sharding = #sdy.sharding_per_value<[<@m1, []>]>, shards = [tensor<f32>], slot = 2 : i64, types = [tensor<f32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 4>, deaths = array<i64: 3>, name = "f", owner = "activations of microbatch 0", role = "value", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<f32>], slot = 3 : i64, types = [tensor<f32>]} : () -> ()
    "pw.run"() {action = "0F0", callee = @f, donated = array<i64>, inputs = array<i64: 0, 1>, mesh = @m0, outputs = array<i64: 3>, step = 0 : i64} : () -> ()
    "pw.free"() {slots = array<i64: 1>, step = 0 : i64} : () -> ()
    "pw.buffers"() {birth = 1 : i64, bytes = array<i64: 4>, deaths = array<i64: 2>, name = "f moved", owner = "transfer buffers", role = "copy", sharding = #sdy.sharding_per_value<[<@m1, []>]>, shards = [tensor<f32>], slot = 4 : i64, types = [tensor<f32>]} : () -> ()
    "pw.copy"() {source = 3 : i64, step = 1 : i64, target = 4 : i64} : () -> ()
    "pw.buffers"() {birth = 2 : i64, bytes = array<i64: 4>, deaths = array<i64: -1>, name = "g", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m1, []>]>, shards = [tensor<f32>], slot = 5 : i64, types = [tensor<f32>]} : () -> ()
    "pw.run"() {action = "1B0", callee = @g, donated = array<i64: 0>, inputs = array<i64: 4>, mesh = @m1, outputs = array<i64: 5>, step = 2 : i64} : () -> ()
    "pw.buffers"() {birth = 3 : i64, bytes = array<i64: 4>, deaths = array<i64: 4>, name = "g", owner = "gradients of microbatch 0", role = "value", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<f32>], slot = 6 : i64, types = [tensor<f32>]} : () -> ()
    "pw.run"() {action = "0B0", callee = @g, donated = array<i64: 0>, inputs = array<i64: 3>, mesh = @m0, outputs = array<i64: 6>, step = 3 : i64} : () -> ()
    "pw.buffers"() {birth = 4 : i64, bytes = array<i64: 4>, deaths = array<i64: -1>, name = "f", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<f32>], slot = 7 : i64, types = [tensor<f32>]} : () -> ()
    "pw.run"() {action = "0B0", callee = @f, donated = array<i64>, inputs = array<i64: 0, 6>, mesh = @m0, outputs = array<i64: 7>, step = 4 : i64} : () -> ()
    "pw.free"() {slots = array<i64: 6>, step = 4 : i64} : () -> ()
  }) {island = @i, peak_bytes = 16 : i64} : () -> ()
}

