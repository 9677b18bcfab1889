// Two stages on unequal meshes, two microbatches, a constant, a helper function, a donated argument, one that is unused.
#x = #sdy.sharding<@m0, [{"data"}, {}]>
#r = #sdy.sharding<@m0, [{}, {}]>
#y = #sdy.sharding<@m1, [{}, {}]>
#xr = #sdy.sharding_per_value<[<@m0, [{"data"}, {}]>, <@m0, [{}, {}]>]>
#xs = #sdy.sharding_per_value<[<@m0, [{"data"}, {}]>]>
#yy = #sdy.sharding_per_value<[<@m1, [{}, {}]>, <@m1, [{}, {}]>]>
#ys = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>
!t = tensor<2x4xf32>
module attributes {pw.dcn_gbps = 1.0, pw.phase = "transfer", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22,\22leaf\22]}",
  pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}"} {
  "pw.island"() {name = "i0", hosts = 1 : i64, devices = 2 : i64, kind = "any"} : () -> ()
  "pw.island"() {name = "i1", hosts = 1 : i64, devices = 1 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 2 : i64, island = @i0, device_ids = "0:2"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["data"=2]>, devices = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 1 : i64, island = @i1, device_ids = "0"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["one"=1]>, devices = "0"} : () -> ()
  module @first attributes {mhlo.num_partitions = 2 : i32} {
    sdy.mesh @m = <["data"=2]>
    func.func @main(%x: !t {sdy.sharding = #sdy.sharding<@m, [{"data"}, {}]>}, %w: !t {sdy.sharding = #sdy.sharding<@m, [{}, {}]>})
        -> (!t {jax.result_info = "y", sdy.sharding = #sdy.sharding<@m, [{"data"}, {}]>}) {
      %0 = call @helper(%x, %w) : (!t, !t) -> !t
      %1 = sdy.sharding_constraint %0 <@m, [{"data"}, {}]> : !t
      return %1 : !t
    }
    func.func private @helper(%x: !t, %w: !t) -> !t { %0 = stablehlo.multiply %x, %w : !t return %0 : !t }
  }
  module @last attributes {mhlo.num_partitions = 1 : i32} {
    sdy.mesh @m = <["one"=1]>
    func.func @main(%x: !t, %s: !t) -> !t { %0 = stablehlo.add %x, %s : !t return %0 : !t }
  }
  func.func @step(%c: !t {pw.name = "c", pw.mesh = @m0, pw.sharding = #r, pw.value = "0000803f00000040000000000000803f0000803f00000040000000000000803f"},
      %a: !t {pw.name = "xs[0]", pw.mesh = @m0, pw.sharding = #x, pw.donate}, %b: !t {pw.name = "xs[1]", pw.mesh = @m0, pw.sharding = #x},
      %z: !t {pw.name = "unused"}, %s: !t {pw.name = "total", pw.mesh = @m1, pw.sharding = #y, pw.donate})
      -> (!t {pw.name = "out[0]"}, !t {pw.name = "out[1]"}) attributes {pw.program} {
    %f0 = "pw.call"(%a, %c) {callee = @first, mesh = @m0, island = @i0, action = "0F0", in_shardings = #xr, out_shardings = #xs} : (!t, !t) -> !t
    %t0 = "pw.transfer"(%f0) {mesh = @m1, sharding = #ys, source = #xs, route = "dcn", bytes = 16 : i64} : (!t) -> !t
    %s0 = "pw.call"(%t0, %s) {callee = @last, mesh = @m1, island = @i1, action = "1F0", in_shardings = #yy, out_shardings = #ys} : (!t, !t) -> !t
    %f1 = "pw.call"(%b, %c) {callee = @first, mesh = @m0, island = @i0, action = "0F1", in_shardings = #xr, out_shardings = #xs} : (!t, !t) -> !t
    %t1 = "pw.transfer"(%f1) {mesh = @m1, sharding = #ys, source = #xs, route = "dcn", bytes = 16 : i64} : (!t) -> !t
    %s1 = "pw.call"(%t1, %s0) {callee = @last, mesh = @m1, island = @i1, action = "1F1", in_shardings = #yy, out_shardings = #ys} : (!t, !t) -> !t
    return %s1, %f1 : !t, !t
  }
}
