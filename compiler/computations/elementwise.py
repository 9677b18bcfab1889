"""Lists the elementwise operations of StableHLO, and of CHLO, JAX's own dialect. Analyses of this folder look
operations up in it.
"""

_STABLEHLO = """
abs add and atan2 cbrt ceil clamp compare complex convert cosine count_leading_zeros divide exponential
exponential_minus_one floor imag is_finite log log_plus_one logistic maximum minimum multiply negate not or popcnt power
real reduce_precision remainder round_nearest_afz round_nearest_even rsqrt select shift_left shift_right_arithmetic
shift_right_logical sign sine sqrt subtract tan tanh xor
"""
_CHLO = """
acos acosh asin asinh atan atanh bessel_i1e conj cosh digamma erf erf_inv erfc is_inf is_neg_inf is_pos_inf lgamma
next_after polygamma sinh square tan zeta
"""
ELEMENTWISE = frozenset(
    {f"stablehlo.{name}" for name in _STABLEHLO.split()} | {f"chlo.{name}" for name in _CHLO.split()}
)
