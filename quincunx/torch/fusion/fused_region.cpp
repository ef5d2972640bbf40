// torch.ops.quincunx.fused_region
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <array>
#include <string>
#include <vector>

#include "quincunx/torch/fusion/region_registry.h"

namespace qx::torch_bridge {
namespace {

using torch::stable::Tensor;

// quincunx::reference_region is Python's: it interprets the program with ATen's operators.
std::vector<Tensor> run_reference(const std::vector<Tensor>& inputs, const std::string& program) {
  std::array<StableIValue, 2> stack{torch::stable::detail::from(inputs), torch::stable::detail::from(program)};
  STABLE_TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher("quincunx::reference_region", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<std::vector<Tensor>>(stack[0]);
}

std::vector<Tensor> fused_region(std::vector<Tensor> inputs, int64_t key, std::string program) {
  const std::shared_ptr<const CompiledRegion> region = find_or_load_region(key, program);
  count_run(region == nullptr);
  if (region == nullptr) return run_reference(inputs, program);
  if (!is_region_timing()) return region->run(inputs);
  RegionTime time;
  std::vector<Tensor> results = region->run(inputs, &time);
  record_time(key, time);
  return results;
}

}  // namespace
}  // namespace qx::torch_bridge

STABLE_TORCH_LIBRARY_FRAGMENT(quincunx, library) {
  library.def("fused_region(Tensor[] inputs, int key, str program) -> Tensor[]");
}

STABLE_TORCH_LIBRARY_IMPL(quincunx, CPU, library) {
  library.impl("fused_region", TORCH_BOX(&qx::torch_bridge::fused_region));
}
