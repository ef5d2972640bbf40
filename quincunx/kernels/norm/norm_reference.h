// The scalar references of norm.h and group_norm.h, in double precision, on one row or group.
#pragma once

#include <span>

namespace qx::kernels {

// An empty weight means 1, an empty bias 0.
void rms_norm_reference(std::span<const double> x, std::span<const double> weight, double eps, std::span<double> y);
void layer_norm_reference(std::span<const double> x, std::span<const double> weight, std::span<const double> bias,
                          double eps, std::span<double> y);

// On one group of one sample: x holds the elements of its channels one after another, weight.size() channels.
void group_norm_reference(std::span<const double> x, std::span<const double> weight, std::span<const double> bias,
                          double eps, std::span<double> y);

}  // namespace qx::kernels
