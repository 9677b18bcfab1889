// RUN: pwc opt - --no-debug-info --pass-pipeline='propagate-shardings,place{policy=spread},insert-transfers,order-calls,merge-calls,plan-islands' --topology islands=2,devices=2
// A branch: both bodies take and leave the value at one place, and each island does its part of the one that is chosen.
!i = tensor<i32>
!t = tensor<8xf32>
module attributes {pw.phase = "trace", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "\22leaf\22"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  module @f { sdy.mesh @m = <["x"=2]> func.func @main(%x: !t {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  func.func @no(%x: !t {pw.name = "x", pw.mesh = @m0}) -> !t attributes {pw.body} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0} : (!t) -> !t
    return %a : !t
  }
  module @g { func.func @main(%x: !t) -> !t { %0 = stablehlo.negate %x : !t return %0 : !t } }
  func.func @yes(%x: !t {pw.name = "x", pw.mesh = @m0}) -> !t attributes {pw.body} {
    %a = "pw.call"(%x) {callee = @g, mesh = @m1} : (!t) -> !t
    return %a : !t
  }
  func.func @p(%i: !i {pw.name = "i", pw.mesh = @m0}, %x: !t {pw.name = "x", pw.mesh = @m0}) -> !t attributes {pw.program} {
    %c = "pw.cond"(%i, %x) {bodies = [@no, @yes], meshes = [@m0]} : (!i, !t) -> !t
    return %c : !t
  }
}
// EXPECTED exit 0
module attributes {pw.dcn_gbps = 1.250000e+01 : f64, pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "\22leaf\22", pw.phase = "plan", pw.placement = "spread: about 5.12 ns a run, 64 bytes between islands; assumed: 1e+12 flop/s a device, 50% of the flop/s", pw.platform = "cpu", pw.schedule = {bound = 0.000000e+00 : f64, bubble = 0.000000e+00 : f64, microbatches = 0 : i64, name = "program", note = "", slices = 0 : i64, stages = 0 : i64}, pw.temporaries = "estimated"} {
  "pw.island"() {devices = 2 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "any", name = "island0"} : () -> ()
  "pw.island"() {devices = 2 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "any", name = "island1"} : () -> ()
  "pw.slice"() {device_ids = "0:2", devices = 2 : i64, island = @island0, reason = "least loaded of 2 islands (0%)", runner_up = "island1, in exchange for s1: 5.13 ns a run (the same)", sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {device_ids = "0:2", devices = 2 : i64, island = @island1, reason = "the only island with room for it", runner_up = "island0, in exchange for s0: 5.13 ns a run (the same)", sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s1, sym_name = "m1"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @m = <["x"=2]>
    func.func @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<8xf32>
      return %0 : tensor<8xf32>
    }
  }
  func.func @no(%arg0: tensor<8xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> tensor<8xf32> attributes {pw.body} {
    %0 = "pw.call"(%arg0) {callee = @f, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, step = 0 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
  module @g attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>, tf.aliasing_output = 0 : i32}) -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
      %0 = stablehlo.negate %arg0 : tensor<8xf32>
      return %0 : tensor<8xf32>
    }
  }
  func.func @yes(%arg0: tensor<8xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> tensor<8xf32> attributes {pw.body} {
    %0 = "pw.transfer"(%arg0) {bytes = 32 : i64, mesh = @m1, reason = "g runs on s1 and takes it, s0 holds it", route = "dcn", runner_up = "the whole array to every device: 64 bytes instead of 32", sharding = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, source = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, step = 0 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    %1 = "pw.call"(%0) {callee = @g, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, step = 1 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    %moved = "pw.transfer"(%1) {bytes = 32 : i64, mesh = @m0, reason = "all bodies return this result on the same mesh and sharding", route = "dcn", runner_up = "the whole array to every device: 64 bytes instead of 32", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, source = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, step = 2 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    return %moved : tensor<8xf32>
  }
  func.func @p(%arg0: tensor<i32> {pw.mesh = @m0, pw.name = "i", pw.sharding = #sdy.sharding<@m0, []>}, %arg1: tensor<8xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> tensor<8xf32> attributes {pw.program} {
    %0 = "pw.cond"(%arg0, %arg1) {bodies = [@no, @yes], dispatch = "sequential", in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, [{"x"}]>]>, meshes = [@m0], out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, step = 0 : i64} : (tensor<i32>, tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
  "pw.plan"() ({
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 16>, deaths = array<i64: 0>, name = "x", owner = "x", role = "input", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 0 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 16>, deaths = array<i64: -1>, name = "f", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 1 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.run"() {callee = @f, donated = array<i64>, inputs = array<i64: 0>, mesh = @m0, outputs = array<i64: 1>, step = 0 : i64} : () -> ()
    "pw.free"() {slots = array<i64: 0>, step = 0 : i64} : () -> ()
  }) {body = @no, island = @island0, peak_bytes = 32 : i64} : () -> ()
  "pw.plan"() ({
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 16>, deaths = array<i64: 0>, name = "x", owner = "x", role = "input", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 0 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.send"() {channel = 0 : i64, slot = 0 : i64, step = 0 : i64, to = @island1} : () -> ()
    "pw.free"() {slots = array<i64: 0>, step = 0 : i64} : () -> ()
    "pw.buffers"() {birth = 2 : i64, bytes = array<i64: 16>, deaths = array<i64: -1>, name = "g moved", owner = "results", role = "copy", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 1 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.recv"() {channel = 2 : i64, slot = 1 : i64, source = @island1, step = 2 : i64} : () -> ()
  }) {body = @yes, island = @island0, peak_bytes = 32 : i64} : () -> ()
  "pw.plan"() ({
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 16>, deaths = array<i64: 1>, name = "x moved", owner = "transfer buffers", role = "copy", sharding = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 0 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.recv"() {channel = 0 : i64, slot = 0 : i64, source = @island0, step = 0 : i64} : () -> ()
    "pw.buffers"() {birth = 1 : i64, bytes = array<i64: 16>, deaths = array<i64: 2>, name = "g", owner = "g", role = "value", sharding = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 1 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.run"() {callee = @g, donated = array<i64: 0>, inputs = array<i64: 0>, mesh = @m1, outputs = array<i64: 1>, step = 1 : i64} : () -> ()
    "pw.send"() {channel = 2 : i64, slot = 1 : i64, step = 2 : i64, to = @island0} : () -> ()
    "pw.free"() {slots = array<i64: 1>, step = 2 : i64} : () -> ()
  }) {body = @yes, island = @island1, peak_bytes = 16 : i64} : () -> ()
  "pw.plan"() ({
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: 0>, name = "i", owner = "i", role = "input", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 0 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 16>, deaths = array<i64: 0>, name = "x", owner = "x", role = "input", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 1 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 16>, deaths = array<i64: -1>, name = "pw.cond", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 2 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.branch"() {bodies = [@no, @yes], donated = array<i64>, inputs = array<i64: 0, 1>, kind = "cond", made = array<i64: 0>, meshes = [@m0], outputs = array<i64: 2>, step = 0 : i64, taken = array<i64: 0, 1>} : () -> ()
    "pw.free"() {slots = array<i64: 0, 1>, step = 0 : i64} : () -> ()
  }) {island = @island0, peak_bytes = 36 : i64} : () -> ()
  "pw.plan"() ({
    "pw.branch"() {bodies = [@no, @yes], donated = array<i64>, inputs = array<i64>, kind = "cond", made = array<i64>, meshes = [@m1], outputs = array<i64>, step = 0 : i64, taken = array<i64>, temporaries = 16 : i64} : () -> ()
  }) {island = @island1, peak_bytes = 16 : i64} : () -> ()
}

