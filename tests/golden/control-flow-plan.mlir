// RUN: pwc opt - --no-debug-info --pass-pipeline='propagate-shardings,place{policy=spread},insert-transfers,order-calls,merge-calls,plan-islands' --topology islands=2,devices=2
// A loop over two islands to the end: bodies have streams of their own, each island its branch with the memory that bodies need beside it.
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
module attributes {pw.dcn_gbps = 1.250000e+01 : f64, pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "plan", pw.placement = "spread: about 5.14 ns a run, 64 bytes between islands; assumed: 1e+12 flop/s a device, 50% of the flop/s", pw.platform = "cpu", pw.schedule = {bound = 0.000000e+00 : f64, bubble = 0.000000e+00 : f64, microbatches = 0 : i64, name = "program", note = "", slices = 0 : i64, stages = 0 : i64}, pw.temporaries = "estimated"} {
  "pw.island"() {devices = 2 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "any", name = "island0"} : () -> ()
  "pw.island"() {devices = 2 : i64, hosts = 1 : i64, ici_gbps = 1.000000e+02 : f64, kind = "any", name = "island1"} : () -> ()
  "pw.slice"() {device_ids = "0:2", devices = 2 : i64, island = @island0, reason = "least loaded of 2 islands (0%)", runner_up = "island1, in exchange for s1: 5.15 ns a run (the same)", sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {device_ids = "0:2", devices = 2 : i64, island = @island1, reason = "the only island with room for it", runner_up = "island0, in exchange for s0: 5.15 ns a run (the same)", sym_name = "s1"} : () -> ()
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
    func.func @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>, tf.aliasing_output = 0 : i32}) -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) {
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
    %0 = "pw.call"(%arg0, %arg1) {callee = @lt, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 0 : i64} : (tensor<i32>, tensor<i32>) -> tensor<i1>
    return %0 : tensor<i1>
  }
  func.func @step(%arg0: tensor<i32> {pw.mesh = @m0, pw.name = "i", pw.sharding = #sdy.sharding<@m0, []>}, %arg1: tensor<i32> {pw.mesh = @m0, pw.name = "n", pw.sharding = #sdy.sharding<@m0, []>}, %arg2: tensor<8xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> (tensor<i32>, tensor<i32>, tensor<8xf32>) attributes {pw.body} {
    %0 = "pw.call"(%arg0) {callee = @add, dispatch = "parallel", gathered, in_shardings = #sdy.sharding_per_value<[<@m0, []>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, []>]>, step = 0 : i64} : (tensor<i32>) -> tensor<i32>
    %1 = "pw.call"(%arg2) {callee = @f, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, step = 1 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    %2 = "pw.transfer"(%1) {bytes = 32 : i64, mesh = @m1, reason = "g runs on s1 and takes it, s0 holds it", route = "dcn", runner_up = "the whole array to every device: 64 bytes instead of 32", sharding = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, source = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, step = 2 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    %3 = "pw.call"(%2) {callee = @g, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, island = @island1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, step = 3 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    %moved = "pw.transfer"(%3) {bytes = 32 : i64, mesh = @m0, reason = "all bodies return this result on the same mesh and sharding", route = "dcn", runner_up = "the whole array to every device: 64 bytes instead of 32", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, source = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, step = 4 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    return %0, %arg1, %moved : tensor<i32>, tensor<i32>, tensor<8xf32>
  }
  func.func @p(%arg0: tensor<i32> {pw.mesh = @m0, pw.name = "k", pw.sharding = #sdy.sharding<@m0, []>, pw.value = "00000000"}, %arg1: tensor<i32> {pw.mesh = @m0, pw.name = "n", pw.sharding = #sdy.sharding<@m0, []>}, %arg2: tensor<8xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> (tensor<8xf32>, tensor<8xf32>) attributes {pw.program} {
    %0:3 = "pw.while"(%arg0, %arg1, %arg2) {bodies = [@test, @step], dispatch = "sequential", in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>, <@m0, [{"x"}]>]>, meshes = [@m0, @m0, @m0], out_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>, <@m0, [{"x"}]>]>, step = 0 : i64} : (tensor<i32>, tensor<i32>, tensor<8xf32>) -> (tensor<i32>, tensor<i32>, tensor<8xf32>)
    %1 = "pw.call"(%0#2) {callee = @h, dispatch = "parallel", in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, island = @island0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, step = 1 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    return %0#2, %1 : tensor<8xf32>, tensor<8xf32>
  }
  "pw.plan"() ({
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: 0>, name = "i", owner = "i", role = "input", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 0 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: 0>, name = "n", owner = "n", role = "input", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 1 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 1>, deaths = array<i64: -1>, name = "lt", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i1>], slot = 2 : i64, types = [tensor<i1>]} : () -> ()
    "pw.run"() {callee = @lt, donated = array<i64>, inputs = array<i64: 0, 1>, mesh = @m0, outputs = array<i64: 2>, step = 0 : i64} : () -> ()
    "pw.free"() {slots = array<i64: 0, 1>, step = 0 : i64} : () -> ()
  }) {body = @test, island = @island0, peak_bytes = 9 : i64} : () -> ()
  "pw.plan"() ({
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: 0>, name = "i", owner = "i", role = "input", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 0 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: -1>, name = "n", owner = "n", role = "input", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 1 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 16>, deaths = array<i64: 1>, name = "x", owner = "x", role = "input", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 2 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 4>, deaths = array<i64: -1>, name = "add", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 3 : i64, types = [tensor<i32>]} : () -> ()
    "pw.run"() {callee = @add, donated = array<i64>, inputs = array<i64: 0>, mesh = @m0, outputs = array<i64: 3>, step = 0 : i64} : () -> ()
    "pw.free"() {slots = array<i64: 0>, step = 0 : i64} : () -> ()
    "pw.buffers"() {birth = 1 : i64, bytes = array<i64: 16>, deaths = array<i64: 2>, name = "f", owner = "f", role = "value", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 4 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.run"() {callee = @f, donated = array<i64>, inputs = array<i64: 2>, mesh = @m0, outputs = array<i64: 4>, step = 1 : i64} : () -> ()
    "pw.free"() {slots = array<i64: 2>, step = 1 : i64} : () -> ()
    "pw.send"() {channel = 2 : i64, slot = 4 : i64, step = 2 : i64, to = @island1} : () -> ()
    "pw.free"() {slots = array<i64: 4>, step = 2 : i64} : () -> ()
    "pw.buffers"() {birth = 4 : i64, bytes = array<i64: 16>, deaths = array<i64: -1>, name = "g moved", owner = "results", role = "copy", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 5 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.recv"() {channel = 4 : i64, slot = 5 : i64, source = @island1, step = 4 : i64} : () -> ()
  }) {body = @step, island = @island0, peak_bytes = 44 : i64} : () -> ()
  "pw.plan"() ({
    "pw.buffers"() {birth = 2 : i64, bytes = array<i64: 16>, deaths = array<i64: 3>, name = "f moved", owner = "transfer buffers", role = "copy", sharding = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 0 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.recv"() {channel = 2 : i64, slot = 0 : i64, source = @island0, step = 2 : i64} : () -> ()
    "pw.buffers"() {birth = 3 : i64, bytes = array<i64: 16>, deaths = array<i64: 4>, name = "g", owner = "g", role = "value", sharding = #sdy.sharding_per_value<[<@m1, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 1 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.run"() {callee = @g, donated = array<i64: 0>, inputs = array<i64: 0>, mesh = @m1, outputs = array<i64: 1>, step = 3 : i64} : () -> ()
    "pw.send"() {channel = 4 : i64, slot = 1 : i64, step = 4 : i64, to = @island0} : () -> ()
    "pw.free"() {slots = array<i64: 1>, step = 4 : i64} : () -> ()
  }) {body = @step, island = @island1, peak_bytes = 16 : i64} : () -> ()
  "pw.plan"() ({
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: -1>, name = "k", owner = "constants", role = "constant", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 0 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 4>, deaths = array<i64: 0>, name = "n", owner = "n", role = "input", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 1 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 16>, deaths = array<i64: 0>, name = "x", owner = "x", role = "input", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 2 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 4>, deaths = array<i64: 0>, name = "pw.while#0", owner = "pw.while", role = "value", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 3 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 4>, deaths = array<i64: 0>, name = "pw.while#1", owner = "pw.while", role = "value", sharding = #sdy.sharding_per_value<[<@m0, []>]>, shards = [tensor<i32>], slot = 4 : i64, types = [tensor<i32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 16>, deaths = array<i64: -1>, name = "pw.while#2", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 5 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.branch"() {bodies = [@test, @step], donated = array<i64>, inputs = array<i64: 0, 1, 2>, kind = "while", made = array<i64: 0, 1, 2>, meshes = [@m0], outputs = array<i64: 3, 4, 5>, step = 0 : i64, taken = array<i64: 0, 1, 2>, temporaries = 20 : i64} : () -> ()
    "pw.free"() {slots = array<i64: 1, 2, 3, 4>, step = 0 : i64} : () -> ()
    "pw.buffers"() {birth = 1 : i64, bytes = array<i64: 16>, deaths = array<i64: -1>, name = "h", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, shards = [tensor<4xf32>], slot = 6 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.run"() {callee = @h, donated = array<i64>, inputs = array<i64: 5>, mesh = @m0, outputs = array<i64: 6>, step = 1 : i64} : () -> ()
  }) {island = @island0, peak_bytes = 68 : i64} : () -> ()
  "pw.plan"() ({
    "pw.branch"() {bodies = [@test, @step], donated = array<i64>, inputs = array<i64>, kind = "while", made = array<i64>, meshes = [@m1], outputs = array<i64>, step = 0 : i64, taken = array<i64>, temporaries = 16 : i64} : () -> ()
  }) {island = @island1, peak_bytes = 16 : i64} : () -> ()
}

