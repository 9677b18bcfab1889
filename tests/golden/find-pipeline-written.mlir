// RUN: pwc opt - --no-debug-info --pass-pipeline=find-pipeline
// Where one call has an action, all calls stay as they are, though calls of a loop are there.
!t = tensor<f32>
module attributes {pw.phase = "trace", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[]}"} {
  "pw.slice"() {sym_name = "s0", devices = 1 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 1 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f { func.func @main(%w: !t, %x: !t) -> !t { return %x : !t } }
  func.func @p(%w: !t {pw.name = "w", pw.mesh = @m0}, %v: !t {pw.name = "v", pw.mesh = @m1}, %x: !t {pw.name = "x", pw.mesh = @m0}) attributes {pw.program} {
    %f0 = "pw.call"(%w, %x) {callee = @f, mesh = @m0, action = "0F0"} : (!t, !t) -> !t
    %g0 = "pw.call"(%v, %f0) {callee = @f, mesh = @m1} : (!t, !t) -> !t
    %f1 = "pw.call"(%w, %x) {callee = @f, mesh = @m0, action = "0F1"} : (!t, !t) -> !t
    %g1 = "pw.call"(%v, %f1) {callee = @f, mesh = @m1} : (!t, !t) -> !t
    return
  }
}
// EXPECTED exit 0
module attributes {pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[]}", pw.phase = "trace", pw.platform = "cpu"} {
  "pw.slice"() {devices = 1 : i64, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {devices = 1 : i64, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s1, sym_name = "m1"} : () -> ()
  module @f {
    func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
      return %arg1 : tensor<f32>
    }
  }
  func.func @p(%arg0: tensor<f32> {pw.mesh = @m0, pw.name = "w"}, %arg1: tensor<f32> {pw.mesh = @m1, pw.name = "v"}, %arg2: tensor<f32> {pw.mesh = @m0, pw.name = "x"}) attributes {pw.program} {
    %0 = "pw.call"(%arg0, %arg2) {action = "0F0", callee = @f, mesh = @m0} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %1 = "pw.call"(%arg1, %0) {callee = @f, mesh = @m1} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %2 = "pw.call"(%arg0, %arg2) {action = "0F1", callee = @f, mesh = @m0} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %3 = "pw.call"(%arg1, %2) {callee = @f, mesh = @m1} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    return
  }
}

