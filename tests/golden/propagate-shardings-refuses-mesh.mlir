// RUN: pwc opt - --no-debug-info --pass-pipeline=propagate-shardings
// An argument of a computation is split over another mesh than the one that it runs on.
!t = tensor<8xf32>
module attributes {pw.in_tree = "\22leaf\22", pw.out_tree = "\22leaf\22", pw.phase = "trace", pw.platform = "cpu"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  module @f { sdy.mesh @other = <["y"=4]>
    func.func @main(%x: !t {sdy.sharding = #sdy.sharding<@other, [{"y"}]>}) -> !t { return %x : !t }
  }
  func.func @p(%x: !t {pw.name = "x", pw.mesh = @m0}) attributes {pw.program} {
    %a = "pw.call"(%x) {callee = @f, mesh = @m0} : (!t) -> !t
    return
  }
}
// EXPECTED exit 3
error[PWC0102]: a computation with shardings on two meshes is not supported in a program
  --> -:10
  have:  meshes (('y', 4),) and (('x', 2),)
  need:  one mesh per computation
  try:   use the same mesh in all shardings of one jit
