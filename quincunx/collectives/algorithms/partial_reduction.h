// A reduction that is done in several places one after another: contributions become partial results, partial results
// are combined with one another, and the last one becomes the result. Narrow floating-point types are partial results
// in f32, so that they are rounded once all the same.
#pragma once

#include <cstdint>

#include "quincunx/base/dtype.h"
#include "quincunx/collectives/communicator.h"

namespace qx::collectives {

struct PartialReduction {
  PartialReduction(const Reduction& reduction, DType dtype);

  Reduction first;    // of contributions
  Reduction between;  // of partial results
  DType dtype;        // of partial results
  bool averages;      // the last one is divided by the number of contributions
};

// destination[i] = source[i] as f32, exactly. For types whose partial results are f32.
void widen(DType dtype, const void* source, int64_t count, float* destination);
// The result of `count` elements from the last partial one. May be in place where both have one dtype.
void finish_reduction(const PartialReduction& partial, const void* source, int64_t count, int num_contributions,
                      DType dtype, void* destination);

}  // namespace qx::collectives
