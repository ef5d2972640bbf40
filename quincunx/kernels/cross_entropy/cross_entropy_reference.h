// The scalar reference of cross_entropy.h, in double precision, on one row.
#pragma once

#include <cstdint>
#include <span>

namespace qx::kernels {

double cross_entropy_reference(std::span<const double> logits, int64_t target, double label_smoothing);
// The gradient of the row's loss.
void cross_entropy_gradient_reference(std::span<const double> logits, int64_t target, double label_smoothing,
                                      std::span<double> gradient);

}  // namespace qx::kernels
