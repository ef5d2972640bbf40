#include <algorithm>
#include <array>
#include <string>

#include "quincunx/kernels/newton_schulz/newton_schulz.h"

namespace qx::kernels {
namespace {

struct Triple {
  double a, b, c;
};

// Amsel, Persson, Musco, Gower, "The Polar Express", arXiv 2505.16932, Algorithm 1: minimax polynomials on the interval
// that the steps before leave of [1e-3, 1], with the cushion of the paper. The last one is the limit of the sequence.
constexpr std::array<Triple, 8> kPolarExpress = {{
    {8.28721201814563, -23.595886519098837, 17.300387312530933},
    {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
    {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
    {3.3184196573706015, -2.488488024314874, 0.51004894012372},
    {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
    {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
    {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
    {1.875, -1.25, 0.375},
}};
// Each polynomial but the last is evaluated at s / 1.05, so that rounding cannot push a singular value out of the
// interval on which it was optimised.
constexpr double kSafety = 1.05;

// The five-step set of the modded-nanogpt speed runs (Y. Jiacheng).
constexpr std::array<Triple, 5> kQuintic = {{
    {4.0848, -6.8946, 2.9270},
    {3.9505, -6.3029, 2.6377},
    {3.7418, -5.5913, 2.3037},
    {2.8769, -3.1427, 1.2046},
    {2.8366, -3.0525, 1.2012},
}};

// K. Jordan, "Muon": fast growth from zero; singular values end between about 0.7 and 1.2.
constexpr std::array<Triple, 1> kClassic = {{{3.4445, -4.7750, 2.0315}}};

NewtonSchulzStep step_from(const Triple& triple, double safety) {
  const double square = safety * safety;
  return {static_cast<float>(triple.a / safety), static_cast<float>(triple.b / (safety * square)),
          static_cast<float>(triple.c / (safety * square * square))};
}

std::vector<NewtonSchulzStep> expand(std::span<const Triple> set, int num_steps, double safety) {
  std::vector<NewtonSchulzStep> steps;
  for (int i = 0; i < num_steps; ++i) {
    const size_t index = std::min(static_cast<size_t>(i), set.size() - 1);
    steps.push_back(step_from(set[index], index + 1 < set.size() ? safety : 1.0));
  }
  return steps;
}

}  // namespace

Result<std::vector<NewtonSchulzStep>> newton_schulz_coefficients(std::string_view name, int num_steps) {
  constexpr int kMaxSteps = 1000;
  if (num_steps < 1 || num_steps > kMaxSteps) {
    return invalid_argument("num_steps: expected 1 to " + std::to_string(kMaxSteps) + ", got " +
                            std::to_string(num_steps));
  }
  if (name == "polar_express") return expand(kPolarExpress, num_steps, kSafety);
  if (name == "quintic") return expand(kQuintic, num_steps, 1.0);
  if (name == "classic") return expand(kClassic, num_steps, 1.0);
  return invalid_argument("coefficients: expected \"polar_express\", \"quintic\" or \"classic\", got \"" +
                          std::string(name) + "\"");
}

Result<NewtonSchulzForm> newton_schulz_form_from_name(std::string_view name) {
  if (name == "auto") return NewtonSchulzForm::kAuto;
  if (name == "direct") return NewtonSchulzForm::kDirect;
  if (name == "gram") return NewtonSchulzForm::kGram;
  if (name == "gram_pure") return NewtonSchulzForm::kGramPure;
  return invalid_argument("form: expected \"auto\", \"direct\", \"gram\" or \"gram_pure\", got \"" + std::string(name) +
                          "\"");
}

}  // namespace qx::kernels
