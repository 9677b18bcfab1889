// RUN: pwc opt - --no-debug-info --pass-pipeline=split-backward
// A backward call is cut in two, I hands W what both need, constants are made again; what no stage waits for is all W, a gathered call goes with its part.
!t = tensor<f32>
module attributes {pw.phase = "trace", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}",
  pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}"} {
  "pw.slice"() {sym_name = "s0", devices = 1 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 1 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f { func.func @main(%w: !t, %x: !t) -> !t { return %x : !t } }
  module @h {
    func.func @main(%w: !t, %x: !t, %y: !t, %d: !t) -> (!t {jax.result_info = "dw"}, !t {jax.result_info = "dx"}) {
      %k = stablehlo.constant dense<2.0> : !t
      %0 = stablehlo.multiply %y, %d : !t
      %1 = stablehlo.multiply %0, %k : !t
      %2 = stablehlo.multiply %1, %x : !t
      %3 = stablehlo.multiply %2, %k : !t
      %4 = stablehlo.multiply %1, %w : !t
      return %3, %4 : !t, !t
    }
  }
  module @b { func.func @main(%x: !t, %y: !t, %d: !t) -> !t { return %d : !t } }
  module @one { func.func @main() -> !t { %0 = stablehlo.constant dense<1.0> : !t return %0 : !t } }
  module @add { func.func @main(%x: !t, %y: !t) -> !t { return %x : !t } }
  func.func @p(%w: !t {pw.name = "w", pw.mesh = @m0}, %v: !t {pw.name = "v", pw.mesh = @m1}, %x: !t {pw.name = "x", pw.mesh = @m0})
      -> (!t, !t, !t) attributes {pw.program} {
    %f0 = "pw.call"(%w, %x) {callee = @f, mesh = @m0, action = "0F0"} : (!t, !t) -> !t
    %g0 = "pw.call"(%v, %f0) {callee = @f, mesh = @m1, action = "1F0"} : (!t, !t) -> !t
    %o0 = "pw.call"() {callee = @one, mesh = @m1, action = "1B0", gathered} : () -> !t
    %h0:2 = "pw.call"(%v, %f0, %g0, %o0) {callee = @h, mesh = @m1, action = "1B0"} : (!t, !t, !t, !t) -> (!t, !t)
    %s0 = "pw.call"(%h0#0, %h0#0) {callee = @add, mesh = @m1, action = "1B0", gathered} : (!t, !t) -> !t
    %b0 = "pw.call"(%f0, %x, %h0#1) {callee = @b, mesh = @m0, action = "0B0"} : (!t, !t, !t) -> !t
    %f1 = "pw.call"(%w, %x) {callee = @f, mesh = @m0, action = "0F1"} : (!t, !t) -> !t
    %g1 = "pw.call"(%v, %f1) {callee = @f, mesh = @m1, action = "1F1"} : (!t, !t) -> !t
    %h1:2 = "pw.call"(%v, %f1, %g1, %g1) {callee = @h, mesh = @m1, action = "1B1"} : (!t, !t, !t, !t) -> (!t, !t)
    %s1 = "pw.call"(%s0, %h1#0) {callee = @add, mesh = @m1, gathered} : (!t, !t) -> !t
    %b1 = "pw.call"(%f1, %x, %h1#1) {callee = @b, mesh = @m0, action = "0B1"} : (!t, !t, !t) -> !t
    return %s1, %b0, %b1 : !t, !t, !t
  }
}
// EXPECTED exit 0
module attributes {pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}", pw.phase = "trace", pw.platform = "cpu"} {
  "pw.slice"() {devices = 1 : i64, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {devices = 1 : i64, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s1, sym_name = "m1"} : () -> ()
  module @f {
    func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
      return %arg1 : tensor<f32>
    }
  }
  module @h_I {
    func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>, %arg2: tensor<f32>) -> (tensor<f32> {jax.result_info = "dx"}, tensor<f32>) {
      %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %0 = stablehlo.multiply %arg1, %arg2 : tensor<f32>
      %1 = stablehlo.multiply %0, %cst : tensor<f32>
      %2 = stablehlo.multiply %1, %arg0 : tensor<f32>
      return %2, %1 : tensor<f32>, tensor<f32>
    }
  }
  module @h_W {
    func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> (tensor<f32> {jax.result_info = "dw"}) {
      %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %0 = stablehlo.multiply %arg1, %arg0 : tensor<f32>
      %1 = stablehlo.multiply %0, %cst : tensor<f32>
      return %1 : tensor<f32>
    }
  }
  module @b {
    func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>, %arg2: tensor<f32>) -> tensor<f32> {
      return %arg2 : tensor<f32>
    }
  }
  module @one {
    func.func @main() -> tensor<f32> {
      %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      return %cst : tensor<f32>
    }
  }
  module @add {
    func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
      return %arg0 : tensor<f32>
    }
  }
  func.func @p(%arg0: tensor<f32> {pw.mesh = @m0, pw.name = "w"}, %arg1: tensor<f32> {pw.mesh = @m1, pw.name = "v"}, %arg2: tensor<f32> {pw.mesh = @m0, pw.name = "x"}) -> (tensor<f32>, tensor<f32>, tensor<f32>) attributes {pw.program} {
    %0 = "pw.call"(%arg0, %arg2) {action = "0F0", callee = @f, mesh = @m0} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %1 = "pw.call"(%arg1, %0) {action = "1F0", callee = @f, mesh = @m1} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %2 = "pw.call"() {action = "1I0", callee = @one, gathered, mesh = @m1} : () -> tensor<f32>
    %3:2 = "pw.call"(%arg1, %1, %2) {action = "1I0", callee = @h_I, mesh = @m1} : (tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    %4 = "pw.call"(%0, %3#1) {action = "1W0", callee = @h_W, mesh = @m1} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %5 = "pw.call"(%4, %4) {action = "1W0", callee = @add, gathered, mesh = @m1} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %6 = "pw.call"(%0, %arg2, %3#0) {action = "0W0", callee = @b, mesh = @m0} : (tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
    %7 = "pw.call"(%arg0, %arg2) {action = "0F1", callee = @f, mesh = @m0} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %8 = "pw.call"(%arg1, %7) {action = "1F1", callee = @f, mesh = @m1} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %9:2 = "pw.call"(%arg1, %8, %8) {action = "1I1", callee = @h_I, mesh = @m1} : (tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    %10 = "pw.call"(%7, %9#1) {action = "1W1", callee = @h_W, mesh = @m1} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %11 = "pw.call"(%5, %10) {callee = @add, gathered, mesh = @m1} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %12 = "pw.call"(%7, %arg2, %9#0) {action = "0W1", callee = @b, mesh = @m0} : (tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
    return %11, %6, %12 : tensor<f32>, tensor<f32>, tensor<f32>
  }
}

