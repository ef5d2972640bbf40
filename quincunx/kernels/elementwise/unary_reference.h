// The scalar reference of unary.h, in double precision, from the C library.
#pragma once

#include "quincunx/kernels/elementwise/unary.h"

namespace qx::kernels {

double unary_reference(UnaryFunction function, double x);

}  // namespace qx::kernels
