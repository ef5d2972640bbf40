#include "quincunx/kernels/elementwise/unary_reference.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "quincunx/base/check.h"

namespace qx::kernels {
namespace {

// Without cancellation on either side: exp is taken of a non-positive number.
double sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

// x times a factor that vanishes faster than x grows.
double damped(double x, double factor) { return x == -std::numeric_limits<double>::infinity() ? 0.0 : x * factor; }

double hardsigmoid(double x) { return x < -3 ? 0 : x > 3 ? 1 : (x + 3) / 6; }

}  // namespace

double unary_reference(UnaryFunction function, double x) {
  switch (function) {
    case UnaryFunction::kExp: return std::exp(x);
    case UnaryFunction::kLog: return std::log(x);
    case UnaryFunction::kErf: return std::erf(x);
    case UnaryFunction::kTanh: return std::tanh(x);
    case UnaryFunction::kSigmoid: return sigmoid(x);
    case UnaryFunction::kSilu: return damped(x, sigmoid(x));
    case UnaryFunction::kGeluErf: return damped(x, 0.5 * std::erfc(-x / std::numbers::sqrt2));
    case UnaryFunction::kGeluTanh: {
      const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return damped(x, sigmoid(2 * inner));
    }
    case UnaryFunction::kSin: return std::sin(x);
    case UnaryFunction::kCos: return std::cos(x);
    case UnaryFunction::kRsqrt: return 1 / std::sqrt(x);
    case UnaryFunction::kRelu: return x < 0 ? 0 : x;
    case UnaryFunction::kRelu6: return x < 0 ? 0 : x > 6 ? 6 : x;
    case UnaryFunction::kGeluQuick: return damped(x, sigmoid(1.702 * x));
    case UnaryFunction::kHardsigmoid: return hardsigmoid(x);
    case UnaryFunction::kHardswish: return damped(x, hardsigmoid(x));
    case UnaryFunction::kSoftplus: return (x < 0 ? 0 : x) + std::log1p(std::exp(-std::abs(x)));
  }
  QX_CHECK_MESSAGE(false, "UnaryFunction out of range");
  return 0;
}

}  // namespace qx::kernels
