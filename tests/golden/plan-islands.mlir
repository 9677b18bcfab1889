// RUN: pwc opt - --no-debug-info --pass-pipeline=plan-islands
// Two islands: buffers with birth and last use, a donated input, one value sent twice, what one call alone takes is overwritten, what is returned kept.
#sw = #sdy.sharding<@m0, [{}, {}]>
#sr = #sdy.sharding<@m1, [{}]>
#sx = #sdy.sharding<@m0, [{"x"}, {}]>
#sy = #sdy.sharding<@m1, [{}, {"y"}]>
#wx = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{"x"}, {}]>]>
#x = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>
#y = #sdy.sharding_per_value<[<@m1, [{}, {"y"}]>]>
#u = #sdy.sharding_per_value<[<@m1, [{"y"}, {}]>]>
#r = #sdy.sharding_per_value<[<@m1, [{}]>]>
!t = tensor<8x4xf32>
!v = tensor<8xf32>
module attributes {pw.dcn_gbps = 1.0, pw.phase = "schedule", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}",
  pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}"} {
  "pw.island"() {name = "i0", hosts = 1 : i64, devices = 2 : i64, kind = "any"} : () -> ()
  "pw.island"() {name = "i1", hosts = 1 : i64, devices = 4 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 2 : i64, island = @i0, device_ids = "0:2"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 4 : i64, island = @i1, device_ids = "0:4"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["y"=4]>, devices = "0:4"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @m0 = <["x"=2]>
    func.func @main(%w: !t {jax.buffer_donor = true, sdy.sharding = #sw}, %x: !t {sdy.sharding = #sx}) -> (!t {sdy.sharding = #sx}) { return %x : !t } }
  module @g attributes {mhlo.num_partitions = 4 : i32} { sdy.mesh @m1 = <["y"=4]>
    func.func @main(%x: !t {sdy.sharding = #sy}) -> (!v {sdy.sharding = #sr}) { %0 = stablehlo.constant dense<0.0> : !v return %0 : !v } }
  module @h attributes {mhlo.num_partitions = 4 : i32} { sdy.mesh @m1 = <["y"=4]>
    func.func @main(%x: !v {sdy.sharding = #sr}) -> (!v {sdy.sharding = #sr}) { return %x : !v } }
  func.func @p(%w: !t {pw.name = "w", pw.mesh = @m0, pw.sharding = #sw},
               %x: !t {pw.name = "x", pw.donate, pw.mesh = @m0, pw.sharding = #sx}) -> (!v, !t) attributes {pw.program} {
    %a = "pw.call"(%w, %x) {callee = @f, mesh = @m0, island = @i0, in_shardings = #wx, out_shardings = #x, step = 0 : i64} : (!t, !t) -> !t
    %t = "pw.transfer"(%a) {mesh = @m1, sharding = #y, source = #x, route = "dcn", bytes = 128 : i64, step = 1 : i64} : (!t) -> !t
    %b = "pw.call"(%t) {callee = @g, mesh = @m1, island = @i1, in_shardings = #y, out_shardings = #r, step = 2 : i64} : (!t) -> !v
    %c = "pw.call"(%b) {callee = @h, gathered, mesh = @m1, island = @i1, in_shardings = #r, out_shardings = #r, step = 3 : i64} : (!v) -> !v
    %u = "pw.transfer"(%a) {mesh = @m1, sharding = #u, source = #x, user, route = "dcn", bytes = 128 : i64, step = 4 : i64} : (!t) -> !t
    return %c, %u : !v, !t
  }
}
// EXPECTED exit 0
module attributes {pw.dcn_gbps = 1.000000e+00 : f64, pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "plan", pw.platform = "cpu", pw.temporaries = "estimated"} {
  "pw.island"() {devices = 2 : i64, hosts = 1 : i64, kind = "any", name = "i0"} : () -> ()
  "pw.island"() {devices = 4 : i64, hosts = 1 : i64, kind = "any", name = "i1"} : () -> ()
  "pw.slice"() {device_ids = "0:2", devices = 2 : i64, island = @i0, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {device_ids = "0:4", devices = 4 : i64, island = @i1, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["y"=4]>, devices = "0:4", slice = @s1, sym_name = "m1"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32} {
    sdy.mesh @m0 = <["x"=2]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m0, [{}, {}]>}, %arg1: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}, {}]>, tf.aliasing_output = 0 : i32}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}, {}]>}) {
      return %arg1 : tensor<8x4xf32>
    }
  }
  module @g attributes {mhlo.num_partitions = 4 : i32} {
    sdy.mesh @m1 = <["y"=4]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m1, [{}, {"y"}]>}) -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@m1, [{}]>}) {
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<8xf32>
      return %cst : tensor<8xf32>
    }
  }
  module @h attributes {mhlo.num_partitions = 4 : i32} {
    sdy.mesh @m1 = <["y"=4]>
    func.func @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m1, [{}]>, tf.aliasing_output = 0 : i32}) -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@m1, [{}]>}) {
      return %arg0 : tensor<8xf32>
    }
  }
  func.func @p(%arg0: tensor<8x4xf32> {pw.mesh = @m0, pw.name = "w", pw.sharding = #sdy.sharding<@m0, [{}, {}]>}, %arg1: tensor<8x4xf32> {pw.donate, pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}, {}]>}) -> (tensor<8xf32>, tensor<8x4xf32>) attributes {pw.program} {
    %0 = "pw.call"(%arg0, %arg1) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{"x"}, {}]>]>, island = @i0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>, step = 0 : i64} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    %1 = "pw.transfer"(%0) {bytes = 128 : i64, mesh = @m1, route = "dcn", sharding = #sdy.sharding_per_value<[<@m1, [{}, {"y"}]>]>, source = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>, step = 1 : i64} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %2 = "pw.call"(%1) {callee = @g, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"y"}]>]>, island = @i1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}]>]>, step = 2 : i64} : (tensor<8x4xf32>) -> tensor<8xf32>
    %3 = "pw.call"(%2) {callee = @h, gathered, in_shardings = #sdy.sharding_per_value<[<@m1, [{}]>]>, island = @i1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}]>]>, step = 3 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    %4 = "pw.transfer"(%0) {bytes = 128 : i64, mesh = @m1, route = "dcn", sharding = #sdy.sharding_per_value<[<@m1, [{"y"}, {}]>]>, source = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>, step = 4 : i64, user} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %3, %4 : tensor<8xf32>, tensor<8x4xf32>
  }
  "pw.plan"() ({
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 128>, deaths = array<i64: 0>, name = "w", owner = "w", role = "input", sharding = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>, shards = [tensor<8x4xf32>], slot = 0 : i64, types = [tensor<8x4xf32>]} : () -> ()
    "pw.buffers"() {birth = -1 : i64, bytes = array<i64: 64>, deaths = array<i64: 0>, name = "x", owner = "x", role = "input", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>, shards = [tensor<4x4xf32>], slot = 1 : i64, types = [tensor<8x4xf32>]} : () -> ()
    "pw.buffers"() {birth = 0 : i64, bytes = array<i64: 64>, deaths = array<i64: 4>, name = "f", owner = "f", role = "value", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>, shards = [tensor<4x4xf32>], slot = 2 : i64, types = [tensor<8x4xf32>]} : () -> ()
    "pw.run"() {callee = @f, donated = array<i64: 1>, inputs = array<i64: 0, 1>, mesh = @m0, outputs = array<i64: 2>, step = 0 : i64} : () -> ()
    "pw.free"() {slots = array<i64: 0>, step = 0 : i64} : () -> ()
    "pw.send"() {channel = 1 : i64, slot = 2 : i64, step = 1 : i64, to = @i1} : () -> ()
    "pw.send"() {channel = 4 : i64, slot = 2 : i64, step = 4 : i64, to = @i1} : () -> ()
    "pw.free"() {slots = array<i64: 2>, step = 4 : i64} : () -> ()
  }) {island = @i0, peak_bytes = 192 : i64} : () -> ()
  "pw.plan"() ({
    "pw.buffers"() {birth = 1 : i64, bytes = array<i64: 32>, deaths = array<i64: 2>, name = "f moved", owner = "transfer buffers", role = "copy", sharding = #sdy.sharding_per_value<[<@m1, [{}, {"y"}]>]>, shards = [tensor<8x1xf32>], slot = 0 : i64, types = [tensor<8x4xf32>]} : () -> ()
    "pw.recv"() {channel = 1 : i64, slot = 0 : i64, source = @i0, step = 1 : i64} : () -> ()
    "pw.buffers"() {birth = 2 : i64, bytes = array<i64: 32>, deaths = array<i64: 3>, name = "g", owner = "g", role = "value", sharding = #sdy.sharding_per_value<[<@m1, [{}]>]>, shards = [tensor<8xf32>], slot = 1 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.run"() {callee = @g, donated = array<i64>, inputs = array<i64: 0>, mesh = @m1, outputs = array<i64: 1>, step = 2 : i64} : () -> ()
    "pw.free"() {slots = array<i64: 0>, step = 2 : i64} : () -> ()
    "pw.buffers"() {birth = 3 : i64, bytes = array<i64: 32>, deaths = array<i64: -1>, name = "h", owner = "results", role = "value", sharding = #sdy.sharding_per_value<[<@m1, [{}]>]>, shards = [tensor<8xf32>], slot = 2 : i64, types = [tensor<8xf32>]} : () -> ()
    "pw.run"() {callee = @h, donated = array<i64: 0>, inputs = array<i64: 1>, mesh = @m1, outputs = array<i64: 2>, step = 3 : i64} : () -> ()
    "pw.buffers"() {birth = 4 : i64, bytes = array<i64: 32>, deaths = array<i64: -1>, name = "f moved", owner = "results", role = "copy", sharding = #sdy.sharding_per_value<[<@m1, [{"y"}, {}]>]>, shards = [tensor<2x4xf32>], slot = 3 : i64, types = [tensor<8x4xf32>]} : () -> ()
    "pw.recv"() {channel = 4 : i64, slot = 3 : i64, source = @i0, step = 4 : i64} : () -> ()
  }) {island = @i1, peak_bytes = 64 : i64} : () -> ()
}

