// The scalar references of softmax.h, in double precision, on one row.
#pragma once

#include <span>

namespace qx::kernels {

void softmax_reference(std::span<const double> x, std::span<double> y);
void log_softmax_reference(std::span<const double> x, std::span<double> y);

}  // namespace qx::kernels
