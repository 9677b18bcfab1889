// RUN: pwc opt - --no-debug-info --pass-pipeline=propagate-shardings
// A loop names two meshes for its one result.
!t = tensor<f32>
!b = tensor<i1>
module attributes {pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "trace", pw.platform = "cpu"} {
  "pw.slice"() {sym_name = "s0", devices = 1 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  func.func @test(%b: !b {pw.name = "b", pw.mesh = @m0}) -> !b attributes {pw.body} { return %b : !b }
  func.func @step(%b: !b {pw.name = "b", pw.mesh = @m0}) -> !b attributes {pw.body} { return %b : !b }
  func.func @p(%b: !b {pw.name = "b", pw.mesh = @m0}) attributes {pw.program} {
    %w = "pw.while"(%b) {bodies = [@test, @step], meshes = [@m0, @m0]} : (!b) -> !b
    return
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: pw.while names 2 meshes
  --> -:10
  have:  %0 = "pw.while"(%arg0) {bodies = [@test, @step], meshes = [@m0, @m0]} : (tensor<i1>) -> tensor<i1>
  need:  one for each result
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
