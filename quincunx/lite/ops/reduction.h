// The frame of reductions: which elements become which result.
#pragma once

#include <functional>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::lite {

// A tensor as [kept ..., reduced ...]: element i of the row-major kept part is reduced over `inner`.
class ReductionFrame {
 public:
  // `dims` may count from the end; none of them means all dimensions.
  static Result<ReductionFrame> create(const TensorView& x, const std::vector<int64_t>& dims);

  int64_t num_results() const { return num_results_; }
  int64_t num_reduced() const { return num_reduced_; }

  // The elements that become result `index`, as a tensor of the reduced dimensions in their order.
  TensorView reduced(int64_t index) const;

 private:
  TensorView x_;
  std::vector<int> kept_;
  std::vector<int> inner_;
  int64_t num_results_ = 1;
  int64_t num_reduced_ = 1;
};

}  // namespace qx::lite
