// Runs a test body once for each instruction set that this machine has and the kernels are built for.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

namespace qx::kernels {

template <typename Body>
void for_each_dispatch_target(const Body& body) {
#if HWY_ARCH_X86
  constexpr int64_t kTargets[] = {HWY_EMU128, HWY_AVX2, HWY_AVX3};
#else
  constexpr int64_t kTargets[] = {HWY_NEON};
#endif
  hwy::SetSupportedTargetsForTest(0);
  const int64_t supported = hwy::SupportedTargets();
  for (const int64_t target : kTargets) {
    if (target != HWY_EMU128 && (supported & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace qx::kernels
