// RUN: pwc opt - --no-debug-info --pass-pipeline=propagate-shardings
// The test of a loop makes a number where it should say yes or no.
!t = tensor<f32>
!b = tensor<i1>
module attributes {pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "trace", pw.platform = "cpu"} {
  "pw.slice"() {sym_name = "s0", devices = 1 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  func.func @test(%b: !t {pw.name = "b", pw.mesh = @m0}) -> !t attributes {pw.body} { return %b : !t }
  func.func @step(%b: !t {pw.name = "b", pw.mesh = @m0}) -> !t attributes {pw.body} { return %b : !t }
  func.func @p(%b: !t {pw.name = "b", pw.mesh = @m0}) attributes {pw.program} {
    %w = "pw.while"(%b) {bodies = [@test, @step], meshes = [@m0]} : (!t) -> !t
    return
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: pw.while runs @test, which takes or makes other types
  --> -:10
  have:  %0 = "pw.while"(%arg0) {bodies = [@test, @step], meshes = [@m0]} : (tensor<f32>) -> tensor<f32>
  need:  ['float32[]'] -> ['bool[]']
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
