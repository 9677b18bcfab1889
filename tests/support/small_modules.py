"""Complete modules of phase `plan`, each about a screen of IR. Tests change one place to make a module invalid."""

STRAIGHT = """
module attributes {pw.dcn_gbps = 1.0 : f64, pw.in_tree = "\\22leaf\\22", pw.out_tree = "\\22leaf\\22",
                   pw.phase = "plan", pw.platform = "cpu"} {
  "pw.island"() {name = "left", hosts = 1 : i64, devices = 4 : i64, kind = "any"} : () -> ()
  "pw.island"() {name = "right", hosts = 1 : i64, devices = 2 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 2 : i64, island = @left, device_ids = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 2 : i64, island = @right, device_ids = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s2", devices = 2 : i64, island = @left, device_ids = "2:4"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["y"=2]>, devices = "0:2"} : () -> ()
  module @double attributes {mhlo.num_partitions = 2 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func public @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
        -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
      %b = stablehlo.add %a, %a : tensor<8xf32>
      return %b : tensor<8xf32>
    }
  }
  module @twice attributes {mhlo.num_partitions = 2 : i32} {
    sdy.mesh @mesh = <["y"=2]>
    func.func public @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>})
        -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
      %b = stablehlo.add %a, %a : tensor<8xf32>
      return %b : tensor<8xf32>
    }
  }
  func.func @step(%x: tensor<8xf32> {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, [{"x"}]>},
                  %n: tensor<i32> {pw.name = "n", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>,
                                   pw.value = "07000000"},
                  %z: tensor<i32> {pw.name = "z"}) -> tensor<8xf32> attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @double, mesh = @m0, island = @left, action = "0F0", step = 0 : i64,
      in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>,
      out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    %b = "pw.transfer"(%a) {mesh = @m1, sharding = #sdy.sharding_per_value<[<@m1, [{}]>]>,
      source = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, route = "dcn", bytes = 64 : i64, step = 1 : i64
      } : (tensor<8xf32>) -> tensor<8xf32>
    %c = "pw.call"(%b) {callee = @twice, mesh = @m1, island = @right, action = "1F0", step = 2 : i64,
      in_shardings = #sdy.sharding_per_value<[<@m1, [{}]>]>,
      out_shardings = #sdy.sharding_per_value<[<@m1, [{}]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    return %c : tensor<8xf32>
  }
  "pw.plan"() ({
    "pw.buffers"() {slot = 0 : i64, name = "x", role = "input", owner = "x", birth = -1 : i64, bytes = array<i64: 16>,
      types = [tensor<8xf32>], shards = [tensor<4xf32>], deaths = array<i64: 0>,
      sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : () -> ()
    "pw.buffers"() {slot = 1 : i64, name = "n", role = "constant", owner = "constants", birth = -1 : i64,
      bytes = array<i64: 4>, types = [tensor<i32>], shards = [tensor<i32>], deaths = array<i64: -1>,
      sharding = #sdy.sharding_per_value<[<@m0, []>]>} : () -> ()
    "pw.buffers"() {slot = 2 : i64, name = "a", role = "value", owner = "a", birth = 0 : i64, bytes = array<i64: 16>,
      types = [tensor<8xf32>], shards = [tensor<4xf32>], deaths = array<i64: 1>,
      sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : () -> ()
    "pw.run"() {step = 0 : i64, callee = @double, mesh = @m0, inputs = array<i64: 0>, outputs = array<i64: 2>,
      donated = array<i64>} : () -> ()
    "pw.send"() {step = 1 : i64, channel = 1 : i64, slot = 2 : i64, to = @right} : () -> ()
    "pw.free"() {step = 1 : i64, slots = array<i64: 2>} : () -> ()
  }) {island = @left, peak_bytes = 36 : i64} : () -> ()
  "pw.plan"() ({
    "pw.buffers"() {slot = 0 : i64, name = "b", role = "copy", owner = "b", birth = 1 : i64, bytes = array<i64: 32, 32>,
      types = [tensor<8xf32>, tensor<8xf32>], shards = [tensor<8xf32>, tensor<8xf32>], deaths = array<i64: 2, -1>,
      sharding = #sdy.sharding_per_value<[<@m1, [{}]>, <@m1, [{}]>]>} : () -> ()
    "pw.recv"() {step = 1 : i64, channel = 1 : i64, slot = 0 : i64, source = @left} : () -> ()
    "pw.run"() {step = 2 : i64, callee = @twice, mesh = @m1, inputs = array<i64: 0>, outputs = array<i64: 1>,
      donated = array<i64: 0>} : () -> ()
  }) {island = @right, peak_bytes = 32 : i64} : () -> ()
}
"""
"""A call, a transfer to another island, and a call on that island."""

BRANCHING = """
module attributes {pw.dcn_gbps = 1.0 : f64, pw.in_tree = "\\22leaf\\22", pw.out_tree = "\\22leaf\\22",
                   pw.phase = "plan", pw.platform = "cpu"} {
  "pw.island"() {name = "left", hosts = 1 : i64, devices = 4 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 2 : i64, island = @left, device_ids = "0:2"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s0, axes = #sdy.mesh<["y"=2]>, devices = "1,0"} : () -> ()
  module @less attributes {mhlo.num_partitions = 2 : i32} {
    sdy.mesh @mesh = <["x"=2]>
    func.func public @main(%a: tensor<i32> {sdy.sharding = #sdy.sharding<@mesh, []>})
        -> (tensor<i1> {sdy.sharding = #sdy.sharding<@mesh, []>}) {
      %b = stablehlo.compare LT, %a, %a, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      return %b : tensor<i1>
    }
  }
  func.func @test(%i: tensor<i32> {pw.name = "i", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>},
                  %v: tensor<8xf32> {pw.name = "v"}) -> tensor<i1> attributes {pw.body} {
    %t = "pw.call"(%i) {callee = @less, mesh = @m0, island = @left, step = 0 : i64,
      in_shardings = #sdy.sharding_per_value<[<@m0, []>]>,
      out_shardings = #sdy.sharding_per_value<[<@m0, []>]>} : (tensor<i32>) -> tensor<i1>
    return %t : tensor<i1>
  }
  func.func @turn(%i: tensor<i32> {pw.name = "i", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>},
                  %v: tensor<8xf32> {pw.name = "v", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, [{"x"}]>})
                  -> tensor<8xf32> attributes {pw.body} {
    return %v : tensor<8xf32>
  }
  func.func @step(%i: tensor<i32> {pw.name = "i", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, []>},
                  %x: tensor<8xf32> {pw.name = "x", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, [{"x"}]>})
                  -> tensor<8xf32> attributes {pw.program} {
    %w = "pw.while"(%i, %x) {bodies = [@test, @turn], meshes = [@m0], step = 0 : i64,
      in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, [{"x"}]>]>,
      out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<i32>, tensor<8xf32>) -> tensor<8xf32>
    %c = "pw.cond"(%i, %i, %w) {bodies = [@turn, @turn], meshes = [@m0], step = 1 : i64,
      in_shardings = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>, <@m0, [{"x"}]>]>,
      out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>
      } : (tensor<i32>, tensor<i32>, tensor<8xf32>) -> tensor<8xf32>
    return %c : tensor<8xf32>
  }
  "pw.plan"() ({
    "pw.buffers"() {slot = 0 : i64, name = "t", role = "value", owner = "t", birth = -1 : i64,
      bytes = array<i64: 4, 1>, types = [tensor<i32>, tensor<i1>], shards = [tensor<i32>, tensor<i1>],
      deaths = array<i64: 0, -1>, sharding = #sdy.sharding_per_value<[<@m0, []>, <@m0, []>]>} : () -> ()
  }) {island = @left, peak_bytes = 5 : i64, body = @test} : () -> ()
  "pw.plan"() ({
    "pw.buffers"() {slot = 0 : i64, name = "i", role = "input", owner = "i", birth = -1 : i64,
      bytes = array<i64: 4, 16>, types = [tensor<i32>, tensor<8xf32>], shards = [tensor<i32>, tensor<4xf32>],
      deaths = array<i64: -1, -1>, sharding = #sdy.sharding_per_value<[<@m0, []>, <@m0, [{"x"}]>]>} : () -> ()
  }) {island = @left, peak_bytes = 20 : i64, body = @turn} : () -> ()
  "pw.plan"() ({
    "pw.buffers"() {slot = 0 : i64, name = "i", role = "input", owner = "i", birth = -1 : i64,
      bytes = array<i64: 4, 16>, types = [tensor<i32>, tensor<8xf32>], shards = [tensor<i32>, tensor<4xf32>],
      deaths = array<i64: 1, 0>,
      sharding = #sdy.sharding_per_value<[<@m0, []>, <@m0, [{"x"}]>]>} : () -> ()
    "pw.buffers"() {slot = 2 : i64, name = "w", role = "value", owner = "w", birth = 0 : i64, bytes = array<i64: 16>,
      types = [tensor<8xf32>], shards = [tensor<4xf32>], deaths = array<i64: 1>,
      sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : () -> ()
    "pw.buffers"() {slot = 3 : i64, name = "c", role = "value", owner = "c", birth = 1 : i64, bytes = array<i64: 16>,
      types = [tensor<8xf32>], shards = [tensor<4xf32>], deaths = array<i64: -1>,
      sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : () -> ()
    "pw.branch"() {step = 0 : i64, kind = "while", bodies = [@test, @turn], inputs = array<i64: 0, 1>, meshes = [@m0],
      taken = array<i64: 0, 1>, outputs = array<i64: 2>, made = array<i64: 0>, donated = array<i64>} : () -> ()
    "pw.copy"() {step = 1 : i64, source = 2 : i64, target = 1 : i64} : () -> ()
  }) {island = @left, peak_bytes = 36 : i64} : () -> ()
}
"""
"""A loop, then a branch; their bodies are functions."""
