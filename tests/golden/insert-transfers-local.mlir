// RUN: pwc opt - --no-debug-info --pass-pipeline=insert-transfers
// On one island: two reshards, an argument moved where it is first needed, a move that moves nothing and goes, a constant put elsewhere from the start.
#sx = #sdy.sharding<@m0, [{"x"}]>
#sr = #sdy.sharding<@m0, [{}]>
#sy = #sdy.sharding<@m1, [{"y"}]>
#x = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>
#r = #sdy.sharding_per_value<[<@m0, [{}]>]>
#y = #sdy.sharding_per_value<[<@m1, [{"y"}]>]>
#yy = #sdy.sharding_per_value<[<@m1, [{"y"}]>, <@m1, [{"y"}]>]>
!t = tensor<2xf32>
module attributes {pw.dcn_gbps = 1.0, pw.phase = "place", pw.platform = "cpu",
  pw.in_tree = "\22leaf\22", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}"} {
  "pw.island"() {name = "i0", hosts = 1 : i64, devices = 4 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 2 : i64, island = @i0, device_ids = "0:2"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 2 : i64, island = @i0, device_ids = "2:4"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["y"=2]>, devices = "0:2"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @m0 = <["x"=2]>
    func.func @main(%x: !t {sdy.sharding = #sx}) -> (!t {sdy.sharding = #sr}) { return %x : !t } }
  module @h attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @m0 = <["x"=2]>
    func.func @main(%x: !t {sdy.sharding = #sx}) -> (!t {sdy.sharding = #sx}) { return %x : !t } }
  module @e attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @m0 = <["x"=2]>
    func.func @main(%x: !t {sdy.sharding = #sr}) -> (!t {sdy.sharding = #sx}) { return %x : !t } }
  module @g attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @m1 = <["y"=2]>
    func.func @main(%x: !t {sdy.sharding = #sy}, %y: !t {sdy.sharding = #sy}) -> (!t {sdy.sharding = #sy}) { return %x : !t } }
  func.func @p(%k: !t {pw.name = "k", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, [{}]>, pw.value = "0000000000000000"},
               %x: !t {pw.name = "x", pw.mesh = @m0, pw.sharding = #sx}) -> (!t, !t) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0, island = @i0, in_shardings = #x, out_shardings = #r} : (!t) -> !t
    %b = "pw.call"(%a) {callee = @h, mesh = @m0, island = @i0, in_shardings = #x, out_shardings = #x} : (!t) -> !t
    %n = "pw.transfer"(%b) {mesh = @m0, sharding = #x, user} : (!t) -> !t
    %c = "pw.call"(%k, %x) {callee = @g, mesh = @m1, island = @i0, in_shardings = #yy, out_shardings = #y} : (!t, !t) -> !t
    %d = "pw.call"(%n) {callee = @e, mesh = @m0, island = @i0, in_shardings = #r, out_shardings = #x} : (!t) -> !t
    return %c, %d : !t, !t
  }
}
// EXPECTED exit 0
module attributes {pw.dcn_gbps = 1.000000e+00 : f64, pw.in_tree = "\22leaf\22", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "transfer", pw.platform = "cpu"} {
  "pw.island"() {devices = 4 : i64, hosts = 1 : i64, kind = "any", name = "i0"} : () -> ()
  "pw.slice"() {device_ids = "0:2", devices = 2 : i64, island = @i0, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {device_ids = "2:4", devices = 2 : i64, island = @i0, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["y"=2]>, devices = "0:2", slice = @s1, sym_name = "m1"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32} {
    sdy.mesh @m0 = <["x"=2]>
    func.func @main(%arg0: tensor<2xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> (tensor<2xf32> {sdy.sharding = #sdy.sharding<@m0, [{}]>}) {
      return %arg0 : tensor<2xf32>
    }
  }
  module @h attributes {mhlo.num_partitions = 2 : i32} {
    sdy.mesh @m0 = <["x"=2]>
    func.func @main(%arg0: tensor<2xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}]>}) -> (tensor<2xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}]>}) {
      return %arg0 : tensor<2xf32>
    }
  }
  module @e attributes {mhlo.num_partitions = 2 : i32} {
    sdy.mesh @m0 = <["x"=2]>
    func.func @main(%arg0: tensor<2xf32> {sdy.sharding = #sdy.sharding<@m0, [{}]>}) -> (tensor<2xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}]>}) {
      return %arg0 : tensor<2xf32>
    }
  }
  module @g attributes {mhlo.num_partitions = 2 : i32} {
    sdy.mesh @m1 = <["y"=2]>
    func.func @main(%arg0: tensor<2xf32> {sdy.sharding = #sdy.sharding<@m1, [{"y"}]>}, %arg1: tensor<2xf32> {sdy.sharding = #sdy.sharding<@m1, [{"y"}]>}) -> (tensor<2xf32> {sdy.sharding = #sdy.sharding<@m1, [{"y"}]>}) {
      return %arg0 : tensor<2xf32>
    }
  }
  func.func @p(%arg0: tensor<2xf32> {pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}, %k: tensor<2xf32> {pw.mesh = @m1, pw.name = "k", pw.sharding = #sdy.sharding<@m1, [{"y"}]>, pw.value = "0000000000000000"}) -> (tensor<2xf32>, tensor<2xf32>) attributes {pw.program} {
    %0 = "pw.call"(%arg0) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, island = @i0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{}]>]>} : (tensor<2xf32>) -> tensor<2xf32>
    %1 = "pw.transfer"(%0) {bytes = 0 : i64, mesh = @m0, reason = "h takes it as (x) on x=2, it is (-) on x=2", route = "local", runner_up = "the whole array to every device: 16 bytes instead of 0", sharding = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, source = #sdy.sharding_per_value<[<@m0, [{}]>]>} : (tensor<2xf32>) -> tensor<2xf32>
    %2 = "pw.call"(%1) {callee = @h, in_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>, island = @i0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<2xf32>) -> tensor<2xf32>
    %3 = "pw.transfer"(%2) {bytes = 8 : i64, mesh = @m0, reason = "e takes it as (-) on x=2, it is (x) on x=2", route = "ici", runner_up = "the whole array to every device: 16 bytes instead of 8", sharding = #sdy.sharding_per_value<[<@m0, [{}]>]>, source = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<2xf32>) -> tensor<2xf32>
    %4 = "pw.transfer"(%arg0) {bytes = 8 : i64, mesh = @m1, reason = "g runs on s1 and takes it, s0 holds it", route = "ici", runner_up = "the whole array to every device: 16 bytes instead of 8", sharding = #sdy.sharding_per_value<[<@m1, [{"y"}]>]>, source = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<2xf32>) -> tensor<2xf32>
    %5 = "pw.call"(%k, %4) {callee = @g, in_shardings = #sdy.sharding_per_value<[<@m1, [{"y"}]>, <@m1, [{"y"}]>]>, island = @i0, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{"y"}]>]>} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %6 = "pw.call"(%3) {callee = @e, in_shardings = #sdy.sharding_per_value<[<@m0, [{}]>]>, island = @i0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}]>]>} : (tensor<2xf32>) -> tensor<2xf32>
    return %5, %6 : tensor<2xf32>, tensor<2xf32>
  }
}

