// RUN: pwc opt - --no-debug-info --pass-pipeline=insert-transfers
// What another slice takes gets one transfer, right behind its producer, for all who take it; the user's own move gets route, bytes and source.
#sw = #sdy.sharding<@m0, [{}, {}]>
#sx = #sdy.sharding<@m0, [{"x"}, {}]>
#sy = #sdy.sharding<@m1, [{}, {"y"}]>
#x = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>
#wx = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{"x"}, {}]>]>
#y = #sdy.sharding_per_value<[<@m1, [{}, {"y"}]>]>
#u = #sdy.sharding_per_value<[<@m1, [{"y"}, {}]>]>
!t = tensor<8x4xf32>
module attributes {pw.dcn_gbps = 1.0, pw.phase = "place", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}",
  pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}"} {
  "pw.island"() {name = "i0", hosts = 1 : i64, devices = 2 : i64, kind = "any"} : () -> ()
  "pw.island"() {name = "i1", hosts = 1 : i64, devices = 4 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 2 : i64, island = @i0, device_ids = "0:2"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 4 : i64, island = @i1, device_ids = "0:4"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["y"=4]>, devices = "0:4"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @m0 = <["x"=2]>
    func.func @main(%w: !t {sdy.sharding = #sw}, %x: !t {sdy.sharding = #sx}) -> (!t {sdy.sharding = #sx}) { return %x : !t } }
  module @g attributes {mhlo.num_partitions = 4 : i32} { sdy.mesh @m1 = <["y"=4]>
    func.func @main(%x: !t {sdy.sharding = #sy}) -> (!t {sdy.sharding = #sy}) { return %x : !t } }
  func.func @p(%w: !t {pw.name = "w", pw.mesh = @m0, pw.sharding = #sw},
               %x: !t {pw.name = "x", pw.donate, pw.mesh = @m0, pw.sharding = #sx})
      -> (!t {pw.name = "c"}, !t {pw.name = "d"}, !t {pw.name = "u"}) attributes {pw.program} {
    %a = "pw.call"(%w, %x) {callee = @f, mesh = @m0, island = @i0, in_shardings = #wx, out_shardings = #x} : (!t, !t) -> !t
    %b = "pw.call"(%w, %a) {callee = @f, mesh = @m0, island = @i0, in_shardings = #wx, out_shardings = #x} : (!t, !t) -> !t
    %c = "pw.call"(%a) {callee = @g, mesh = @m1, island = @i1, in_shardings = #y, out_shardings = #y} : (!t) -> !t
    %d = "pw.call"(%a) {callee = @g, mesh = @m1, island = @i1, in_shardings = #y, out_shardings = #y} : (!t) -> !t
    %e = "pw.call"(%d) {callee = @g, gathered, mesh = @m1, island = @i1, in_shardings = #y, out_shardings = #y} : (!t) -> !t
    %u = "pw.transfer"(%b) {mesh = @m1, sharding = #u, user} : (!t) -> !t
    return %c, %e, %u : !t, !t, !t
  }
}
// EXPECTED exit 0
module attributes {pw.dcn_gbps = 1.000000e+00 : f64, pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}", pw.phase = "transfer", pw.platform = "cpu"} {
  "pw.island"() {devices = 2 : i64, hosts = 1 : i64, kind = "any", name = "i0"} : () -> ()
  "pw.island"() {devices = 4 : i64, hosts = 1 : i64, kind = "any", name = "i1"} : () -> ()
  "pw.slice"() {device_ids = "0:2", devices = 2 : i64, island = @i0, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=2]>, devices = "0:2", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {device_ids = "0:4", devices = 4 : i64, island = @i1, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["y"=4]>, devices = "0:4", slice = @s1, sym_name = "m1"} : () -> ()
  module @f attributes {mhlo.num_partitions = 2 : i32} {
    sdy.mesh @m0 = <["x"=2]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m0, [{}, {}]>}, %arg1: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}, {}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m0, [{"x"}, {}]>}) {
      return %arg1 : tensor<8x4xf32>
    }
  }
  module @g attributes {mhlo.num_partitions = 4 : i32} {
    sdy.mesh @m1 = <["y"=4]>
    func.func @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m1, [{}, {"y"}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m1, [{}, {"y"}]>}) {
      return %arg0 : tensor<8x4xf32>
    }
  }
  func.func @p(%arg0: tensor<8x4xf32> {pw.mesh = @m0, pw.name = "w", pw.sharding = #sdy.sharding<@m0, [{}, {}]>}, %arg1: tensor<8x4xf32> {pw.donate, pw.mesh = @m0, pw.name = "x", pw.sharding = #sdy.sharding<@m0, [{"x"}, {}]>}) -> (tensor<8x4xf32> {pw.name = "c"}, tensor<8x4xf32> {pw.name = "d"}, tensor<8x4xf32> {pw.name = "u"}) attributes {pw.program} {
    %0 = "pw.call"(%arg0, %arg1) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{"x"}, {}]>]>, island = @i0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    %1 = "pw.transfer"(%0) {bytes = 128 : i64, mesh = @m1, reason = "g runs on s1 and takes it, s0 holds it", route = "dcn", runner_up = "the whole array to every device: 512 bytes instead of 128", sharding = #sdy.sharding_per_value<[<@m1, [{}, {"y"}]>]>, source = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %2 = "pw.call"(%arg0, %0) {callee = @f, in_shardings = #sdy.sharding_per_value<[<@m0, [{}, {}]>, <@m0, [{"x"}, {}]>]>, island = @i0, mesh = @m0, out_shardings = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    %3 = "pw.call"(%1) {callee = @g, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"y"}]>]>, island = @i1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"y"}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %4 = "pw.call"(%1) {callee = @g, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"y"}]>]>, island = @i1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"y"}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %5 = "pw.call"(%4) {callee = @g, gathered, in_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"y"}]>]>, island = @i1, mesh = @m1, out_shardings = #sdy.sharding_per_value<[<@m1, [{}, {"y"}]>]>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %6 = "pw.transfer"(%2) {bytes = 128 : i64, mesh = @m1, reason = "the user wrote this move", route = "dcn", runner_up = "the whole array to every device: 512 bytes instead of 128", sharding = #sdy.sharding_per_value<[<@m1, [{"y"}, {}]>]>, source = #sdy.sharding_per_value<[<@m0, [{"x"}, {}]>]>, user} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %3, %5, %6 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>
  }
}

