// Programs that several tests run.
#pragma once

namespace qx::tile {

inline constexpr char kSoftmax[] =
    "tile 1\n"
    "axes 2\n"
    "input float32 [0, 1]\n"
    "output float32 [0, 1]\n"
    "%0 = load float32 0\n"
    "%1 = reduce_max float32 %0\n"
    "%2 = sub float32 %0 %1\n"
    "%3 = exp float32 %2\n"
    "%4 = reduce_sum float32 %3\n"
    "%5 = div float32 %3 %4\n"
    "%6 = store float32 %5 0\n";

// x * rsqrt(mean(x^2) + 1e-6) * weight, and the mean itself; x and weight in bfloat16.
inline constexpr char kRmsNorm[] =
    "tile 1\n"
    "axes 2\n"
    "input bfloat16 [0, 1]\n"
    "input float32 [1]\n"
    "output float32 [0, 1]\n"
    "output float32 [0]\n"
    "%0 = load bfloat16 0\n"
    "%1 = cast float32 %0\n"
    "%2 = mul float32 %1 %1\n"
    "%3 = reduce_mean float32 %2\n"
    "%4 = constant float32 1e-06\n"
    "%5 = add float32 %3 %4\n"
    "%6 = rsqrt float32 %5\n"
    "%7 = mul float32 %1 %6\n"
    "%8 = load float32 1\n"
    "%9 = mul float32 %7 %8\n"
    "%10 = store float32 %9 0\n"
    "%11 = store float32 %3 1\n";

}  // namespace qx::tile
