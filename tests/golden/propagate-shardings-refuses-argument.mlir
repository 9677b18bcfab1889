// RUN: pwc opt - --no-debug-info --pass-pipeline=propagate-shardings
// Arguments are split over their own meshes, along axes that these have, into equal parts; all that is wrong is told at once.
!t = tensor<8x5xf32>
module attributes {pw.phase = "trace", pw.platform = "cpu", pw.out_tree = "{\22kind\22:\22list\22,\22children\22:[]}",
  pw.in_tree = "{\22kind\22:\22list\22,\22children\22:[\22leaf\22,\22leaf\22,\22leaf\22,\22leaf\22]}"} {
  "pw.slice"() {sym_name = "s0", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m0", slice = @s0, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  "pw.slice"() {sym_name = "s1", devices = 2 : i64} : () -> ()
  "pw.mesh"() {sym_name = "m1", slice = @s1, axes = #sdy.mesh<["x"=2]>, devices = "0:2"} : () -> ()
  func.func @p(%a: !t {pw.name = "rank", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, [{"x"}]>},
      %b: !t {pw.name = "axis", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, [{"y"}, {}]>},
      %c: !t {pw.name = "parts", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m0, [{}, {"x"}]>},
      %d: !t {pw.name = "mesh", pw.mesh = @m0, pw.sharding = #sdy.sharding<@m1, [{"x"}, {}]>}) attributes {pw.program} {
    return
  }
}
// EXPECTED exit 3
error[PWC0701]: the IR is invalid: func.func splits rank of shape [8, 5] as (('x',),)
  --> -:9
  have:  func.func @p(%arg0: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "rank", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}, %arg1: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "axis", pw.sharding = #sdy.sharding<@m0, [{"y"}, {}]>}, %arg2: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "parts", pw.sharding = #sdy.sharding<@m0, [{}, {"x"}]>}, %arg3: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "mesh", pw.sharding = #sdy...
  need:  one entry per dimension, axes of x=2
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
error[PWC0701]: the IR is invalid: func.func splits axis of shape [8, 5] as (('y',), ())
  --> -:9
  have:  func.func @p(%arg0: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "rank", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}, %arg1: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "axis", pw.sharding = #sdy.sharding<@m0, [{"y"}, {}]>}, %arg2: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "parts", pw.sharding = #sdy.sharding<@m0, [{}, {"x"}]>}, %arg3: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "mesh", pw.sharding = #sdy...
  need:  one entry per dimension, axes of x=2
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
error[PWC0701]: the IR is invalid: func.func splits dimension 1 of parts (5) in 2
  --> -:9
  have:  func.func @p(%arg0: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "rank", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}, %arg1: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "axis", pw.sharding = #sdy.sharding<@m0, [{"y"}, {}]>}, %arg2: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "parts", pw.sharding = #sdy.sharding<@m0, [{}, {"x"}]>}, %arg3: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "mesh", pw.sharding = #sdy...
  need:  parts of equal size
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
error[PWC0701]: the IR is invalid: func.func splits mesh over @m1
  --> -:9
  have:  func.func @p(%arg0: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "rank", pw.sharding = #sdy.sharding<@m0, [{"x"}]>}, %arg1: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "axis", pw.sharding = #sdy.sharding<@m0, [{"y"}, {}]>}, %arg2: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "parts", pw.sharding = #sdy.sharding<@m0, [{}, {"x"}]>}, %arg3: tensor<8x5xf32> {pw.mesh = @m0, pw.name = "mesh", pw.sharding = #sdy...
  need:  its own mesh, @m0
  try:   find the op in the dump of the phase before, or run again with --print-ir-after-all
