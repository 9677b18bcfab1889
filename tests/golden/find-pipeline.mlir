// RUN: pwc opt - --no-debug-info --pass-pipeline=find-pipeline
// Two stages, two microbatches: calls that are alike get actions, gathered ones go with their microbatch; what adds up over microbatches has none.
!t = tensor<f32>
module attributes {pw.phase = "trace", pw.platform = "cpu",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}",
  pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}"} {
  "pw.slice"() {sym_name = "s0", devices = 1 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 1 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=1]>, devices = "0"} : () -> ()
  module @f { func.func @main(%w: !t, %x: !t) -> !t { return %x : !t } }
  module @h { func.func @main(%w: !t, %x: !t, %y: !t, %d: !t) -> (!t, !t) { return %x, %d : !t, !t } }
  module @b { func.func @main(%x: !t, %y: !t, %d: !t) -> !t { return %d : !t } }
  module @one { func.func @main() -> !t { %0 = stablehlo.constant dense<1.0> : !t return %0 : !t } }
  module @add { func.func @main(%x: !t, %y: !t) -> !t { return %x : !t } }
  func.func @p(%i: !t {pw.name = "i", pw.mesh = @m0, pw.value = "00000000"}, %j: !t {pw.name = "j", pw.mesh = @m0, pw.value = "01000000"},
               %w: !t {pw.name = "w", pw.mesh = @m0}, %v: !t {pw.name = "v", pw.mesh = @m1}, %x: !t {pw.name = "x", pw.mesh = @m0})
      -> (!t, !t) attributes {pw.program} {
    %c0 = "pw.call"(%x, %i) {callee = @add, mesh = @m0, gathered} : (!t, !t) -> !t
    %f0 = "pw.call"(%w, %c0) {callee = @f, mesh = @m0} : (!t, !t) -> !t
    %g0 = "pw.call"(%v, %f0) {callee = @f, mesh = @m1} : (!t, !t) -> !t
    %o0 = "pw.call"() {callee = @one, mesh = @m1, gathered} : () -> !t
    %h0:2 = "pw.call"(%v, %f0, %g0, %o0) {callee = @h, mesh = @m1} : (!t, !t, !t, !t) -> (!t, !t)
    %s0 = "pw.call"(%h0#0, %h0#0) {callee = @add, mesh = @m1, gathered} : (!t, !t) -> !t
    %b0 = "pw.call"(%c0, %f0, %h0#1) {callee = @b, mesh = @m0} : (!t, !t, !t) -> !t
    %t0 = "pw.call"(%b0, %b0) {callee = @add, mesh = @m0, gathered} : (!t, !t) -> !t
    %c1 = "pw.call"(%x, %j) {callee = @add, mesh = @m0, gathered} : (!t, !t) -> !t
    %f1 = "pw.call"(%w, %c1) {callee = @f, mesh = @m0} : (!t, !t) -> !t
    %g1 = "pw.call"(%v, %f1) {callee = @f, mesh = @m1} : (!t, !t) -> !t
    %o1 = "pw.call"() {callee = @one, mesh = @m1, gathered} : () -> !t
    %h1:2 = "pw.call"(%v, %f1, %g1, %o1) {callee = @h, mesh = @m1} : (!t, !t, !t, !t) -> (!t, !t)
    %s1 = "pw.call"(%s0, %h1#0) {callee = @add, mesh = @m1, gathered} : (!t, !t) -> !t
    %b1 = "pw.call"(%c1, %f1, %h1#1) {callee = @b, mesh = @m0} : (!t, !t, !t) -> !t
    %t1 = "pw.call"(%t0, %b1) {callee = @add, mesh = @m0, gathered} : (!t, !t) -> !t
    return %s1, %t1 : !t, !t
  }
}
// EXPECTED exit 0
module attributes {pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22]}", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22]}", pw.phase = "trace", pw.platform = "cpu"} {
  "pw.slice"() {devices = 1 : i64, sym_name = "s0"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s0, sym_name = "m0"} : () -> ()
  "pw.slice"() {devices = 1 : i64, sym_name = "s1"} : () -> ()
  "pw.mesh"() {axes = #sdy.mesh<["x"=1]>, devices = "0", slice = @s1, sym_name = "m1"} : () -> ()
  module @f {
    func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
      return %arg1 : tensor<f32>
    }
  }
  module @h {
    func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>, %arg2: tensor<f32>, %arg3: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
      return %arg1, %arg3 : tensor<f32>, tensor<f32>
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
  func.func @p(%arg0: tensor<f32> {pw.mesh = @m0, pw.name = "i", pw.value = "00000000"}, %arg1: tensor<f32> {pw.mesh = @m0, pw.name = "j", pw.value = "01000000"}, %arg2: tensor<f32> {pw.mesh = @m0, pw.name = "w"}, %arg3: tensor<f32> {pw.mesh = @m1, pw.name = "v"}, %arg4: tensor<f32> {pw.mesh = @m0, pw.name = "x"}) -> (tensor<f32>, tensor<f32>) attributes {pw.program} {
    %0 = "pw.call"(%arg4, %arg0) {action = "0F0", callee = @add, gathered, mesh = @m0} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %1 = "pw.call"(%arg2, %0) {action = "0F0", callee = @f, mesh = @m0} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %2 = "pw.call"(%arg3, %1) {action = "1F0", callee = @f, mesh = @m1} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %3 = "pw.call"() {action = "1B0", callee = @one, gathered, mesh = @m1} : () -> tensor<f32>
    %4:2 = "pw.call"(%arg3, %1, %2, %3) {action = "1B0", callee = @h, mesh = @m1} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    %5 = "pw.call"(%4#0, %4#0) {action = "1B0", callee = @add, gathered, mesh = @m1} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %6 = "pw.call"(%0, %1, %4#1) {action = "0B0", callee = @b, mesh = @m0} : (tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
    %7 = "pw.call"(%6, %6) {action = "0B0", callee = @add, gathered, mesh = @m0} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %8 = "pw.call"(%arg4, %arg1) {action = "0F1", callee = @add, gathered, mesh = @m0} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %9 = "pw.call"(%arg2, %8) {action = "0F1", callee = @f, mesh = @m0} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %10 = "pw.call"(%arg3, %9) {action = "1F1", callee = @f, mesh = @m1} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %11 = "pw.call"() {action = "1B1", callee = @one, gathered, mesh = @m1} : () -> tensor<f32>
    %12:2 = "pw.call"(%arg3, %9, %10, %11) {action = "1B1", callee = @h, mesh = @m1} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    %13 = "pw.call"(%5, %12#0) {callee = @add, gathered, mesh = @m1} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %14 = "pw.call"(%8, %9, %12#1) {action = "0B1", callee = @b, mesh = @m0} : (tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
    %15 = "pw.call"(%7, %14) {callee = @add, gathered, mesh = @m0} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    return %13, %15 : tensor<f32>, tensor<f32>
  }
}

