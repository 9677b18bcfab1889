// RUN: pwc opt - --no-debug-info --pass-pipeline=plan-islands
// Pieces that leave a part of their array out: refused where the plan is made.
#s0 = #sdy.sharding<@m0, [{}, {}]>
#s1 = #sdy.sharding<@m1, [{}, {}]>
#v0 = #sdy.sharding_per_value<[<@m0, [{}, {}]>]>
#v1 = #sdy.sharding_per_value<[<@m1, [{}, {}]>]>
!a = tensor<1x4xf32>
!b = tensor<3x4xf32>
module attributes {pw.dcn_gbps = 1.0, pw.phase = "schedule", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22]}"} {
  "pw.island"() {name = "i0", hosts = 1 : i64, devices = 1 : i64, kind = "any"} : () -> ()
  "pw.island"() {name = "i1", hosts = 1 : i64, devices = 1 : i64, kind = "any"} : () -> ()
  "pw.slice"() {sym_name = "s0", devices = 1 : i64, island = @i0, device_ids = "0:1"} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0:1"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 1 : i64, island = @i1, device_ids = "0:1"} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=1]>, devices = "0:1"} : () -> ()
  module @f attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m0 = <["x"=1]>
    func.func @main(%w: !a {sdy.sharding = #s0}) -> (!a {sdy.sharding = #s0}) { return %w : !a } }
  module @g attributes {mhlo.num_partitions = 1 : i32} { sdy.mesh @m1 = <["x"=1]>
    func.func @main(%w: !b {sdy.sharding = #s1}) -> (!b {sdy.sharding = #s1}) { return %w : !b } }
  func.func @p(%w0: !a {pw.name = "w[0:1]", pw.piece = "[\22w\22,0,0,5]", pw.mesh = @m0, pw.sharding = #s0},
               %w1: !b {pw.name = "w[1:4]", pw.piece = "[\22w\22,0,2,5]", pw.mesh = @m1, pw.sharding = #s1})
      -> (!a {pw.name = "out[0:1]", pw.piece = "[\22out\22,0,0,4]"}, !b {pw.name = "out[1:4]", pw.piece = "[\22out\22,0,1,4]"})
      attributes {pw.program} {
    %a = "pw.call"(%w0) {callee = @f, mesh = @m0, island = @i0, in_shardings = #v0, out_shardings = #v0, step = 0 : i64} : (!a) -> !a
    %b = "pw.call"(%w1) {callee = @g, mesh = @m1, island = @i1, in_shardings = #v1, out_shardings = #v1, step = 1 : i64} : (!b) -> !b
    return %a, %b : !a, !b
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: func.func has pieces of w that are not consecutive
  --> -:20
  have:  func.func @p(%arg0: tensor<1x4xf32> {pw.mesh = @m0, pw.name = "w[0:1]", pw.piece = "[\22w\22,0,0,5]", pw.sharding = #sdy.sharding<@m0, [{}, {}]>}, %arg1: tensor<3x4xf32> {pw.mesh = @m1, pw.name = "w[1:4]", pw.piece = "[\22w\22,0,2,5]", pw.sharding = #sdy.sharding<@m1, [{}, {}]>}) -> (tensor<1x4xf32> {pw.name = "out[0:1]", pw.piece = "[\22out\22,0,0,4]"}, tensor<3x4xf32> {pw.name = "out[1:4]", pw.p...
  need:  consecutive pieces of one array
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
