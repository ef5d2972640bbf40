#include "quincunx/compiler/codegen/loop_kernel.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "quincunx/compiler/codegen/loop_emitter.h"
#include "quincunx/compiler/codegen/loop_plan.h"
#include "quincunx/compiler/jit/host_machine.h"
#include "quincunx/compiler/jit/jit.h"
#include "quincunx/parallel/parallel_for.h"
#include "quincunx/tensor/storage.h"

namespace qx::compiler {
namespace {

// A chunk of work is worth a thread's wake-up from about this many additions on.
constexpr int64_t kChunkCost = 1 << 15;
constexpr int64_t kExpensiveCost = 12;
// Values are computed again rather than kept where a row of them would leave the caches.
constexpr int64_t kMaxKeptBytes = int64_t{1} << 24;
constexpr int kMaxScalars = 16;

// A compiled variant; the list only grows.
struct Variant {
  LoopVariant variant;
  std::shared_ptr<const CompiledFunction> code;
  const Variant* next = nullptr;
};

class LoopKernel : public Kernel {
 public:
  LoopKernel(const LoopProgram& program, const LoopKernelOptions& options)
      : signature_(program), options_(options), num_kept_(static_cast<int64_t>(keptValues(program).size())) {
    for (const Instruction& code : program.code) cost_ += isExpensive(code.opcode) ? kExpensiveCost : 1;
  }
  ~LoopKernel() override {
    for (const Variant* entry = variants_.load(); entry != nullptr;) {
      const Variant* const next = entry->next;
      delete entry;
      entry = next;
    }
  }

  Status compileExpected() const {
    return function({signature_.vectorIsReduced(), num_kept_ > 0, signature_.expectedStrides()}).status();
  }
  Status run(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
             std::span<const int64_t> symbols) const override;
  std::string to_string() const override { return compiler::to_string(signature_.program()); }

 private:
  const Variant* find(const LoopVariant& variant) const;
  Result<LoopFunction> function(const LoopVariant& variant) const;
  int64_t keptBytes(const LoopPlan& plan) const;
  std::byte* keptStorage(const LoopPlan& plan) const;
  void runRows(LoopFunction code, const LoopPlan& plan, const int64_t* scalars, int64_t begin, int64_t end) const;
  void runPart(LoopFunction code, const LoopPlan& plan, const int64_t* scalars, int64_t row, int64_t first,
               int64_t count) const;

  const LoopSignature signature_;
  const LoopKernelOptions options_;
  const int64_t num_kept_;
  int64_t cost_ = 0;
  mutable std::mutex mutex_;
  mutable std::atomic<const Variant*> variants_{nullptr};
};

const Variant* LoopKernel::find(const LoopVariant& variant) const {
  for (const Variant* entry = variants_.load(std::memory_order_acquire); entry != nullptr; entry = entry->next) {
    if (entry->variant.keeps_values == variant.keeps_values && entry->variant.strides == variant.strides) return entry;
  }
  return nullptr;
}

Result<LoopFunction> LoopKernel::function(const LoopVariant& variant) const {
  const Variant* found = find(variant);
  if (found == nullptr) {
    const std::lock_guard lock(mutex_);
    found = find(variant);
    if (found == nullptr) {
      JitRequest request;
      request.function = "quincunx_loops";
      request.identity = to_string() + compiler::to_string(variant);
      request.cache_directory = options_.cache_directory;
      if (!options_.dump_directory.empty()) {
        request.dump_path = options_.dump_directory + "/" + options_.name + ".ll";
      }
      QX_ASSIGN_OR_RETURN(auto code,
                          compileOrLoad(request, loopBuilder(signature_.program(), variant, request.function)));
      found = new Variant{variant, std::move(code), variants_.load()};
      variants_.store(found, std::memory_order_release);
    }
  }
  return reinterpret_cast<LoopFunction>(found->code->address());
}

int64_t LoopKernel::keptBytes(const LoopPlan& plan) const {
  const int64_t lanes = hostMachine().lanes;
  const int64_t vectors = signature_.vectorIsReduced()
                              ? (plan.vectorSize(signature_) + lanes - 1) / lanes * plan.reduced_elements
                              : plan.reduced_elements;
  return num_kept_ * vectors * lanes * kKeptElementBytes;
}

// Room of this thread for kept values.
std::byte* LoopKernel::keptStorage(const LoopPlan& plan) const {
  static thread_local std::vector<std::byte> storage;
  const int64_t bytes = keptBytes(plan);
  if (bytes == 0 || bytes > kMaxKeptBytes) return nullptr;
  if (static_cast<int64_t>(storage.size()) < bytes + kStorageAlignmentBytes) {
    storage.resize(bytes + kStorageAlignmentBytes);
  }
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(storage.data()));
  return storage.data() + (kStorageAlignmentBytes - address % kStorageAlignmentBytes) % kStorageAlignmentBytes;
}

Status LoopKernel::run(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                       std::span<const int64_t> symbols) const {
  QX_RETURN_IF_ERROR(signature_.check(inputs, outputs, symbols));
  LoopPlan plan;
  QX_RETURN_IF_ERROR(makePlan(signature_, inputs, outputs, symbols, plan));
  if (plan.num_rows == 0 || (!signature_.vectorIsReduced() && plan.vectorSize(signature_) == 0)) return ok_status();

  const size_t num_views = signature_.program().views.size();
  const bool keeps = num_kept_ > 0 && keptBytes(plan) <= kMaxKeptBytes;
  QX_ASSIGN_OR_RETURN(const LoopFunction code,
                      function({signature_.vectorIsReduced(), keeps,
                                std::vector(plan.vector_strides.begin(),
                                            plan.vector_strides.begin() + static_cast<int64_t>(num_views))}));
  int64_t scalars[kMaxScalars];
  for (size_t i = 0; i < signature_.program().scalars.size(); ++i) {
    scalars[i] = 1;
    for (const graph::Dim& dim : signature_.program().scalars[i]) scalars[i] *= evaluate(dim, symbols.data());
  }

  const int64_t row_cost = std::max<int64_t>(1, plan.row_elements * cost_);
  const int64_t vector_size = plan.vectorSize(signature_);
  if (signature_.vectorIsReduced() || row_cost <= 2 * kChunkCost) {
    parallel_for(0, plan.num_rows, std::max<int64_t>(1, kChunkCost / row_cost),
                 [&](int64_t begin, int64_t end) { runRows(code, plan, scalars, begin, end); });
    return ok_status();
  }
  // Long rows whose lanes are independent are cut at whole vectors, which changes no result.
  const int64_t lanes = hostMachine().lanes;
  const int64_t column_cost = std::max<int64_t>(1, plan.reduced_elements * cost_);
  const int64_t part = (std::max<int64_t>(1, kChunkCost / column_cost) + lanes - 1) / lanes * lanes;
  const int64_t num_parts = (vector_size + part - 1) / part;
  parallel_for(0, plan.num_rows * num_parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % num_parts * part;
      runPart(code, plan, scalars, i / num_parts, first, std::min(part, vector_size - first));
    }
  });
  return ok_status();
}

// The views at row `row`; what is left of the innermost outer loop from there.
int64_t seekRow(const LoopPlan& plan, size_t num_views, int64_t row, void** views) {
  std::copy_n(plan.views.begin(), num_views, views);
  int64_t left = 1;
  for (int loop = plan.num_outer; loop-- > 0;) {
    const int64_t index = row % plan.outer_sizes[loop];
    row /= plan.outer_sizes[loop];
    if (loop == plan.num_outer - 1) left = plan.outer_sizes[loop] - index;
    for (size_t view = 0; view < num_views; ++view) {
      views[view] = static_cast<char*>(views[view]) + index * plan.outer_strides[view][loop];
    }
  }
  return left;
}

void LoopKernel::runRows(LoopFunction code, const LoopPlan& plan, const int64_t* scalars, int64_t begin,
                         int64_t end) const {
  std::byte* const kept = keptStorage(plan);
  std::array<void*, LoopProgram::kMaxViews> views;
  std::array<int64_t, LoopPlan::kMaxLoops> sizes = plan.sizes;
  for (int64_t row = begin; row < end; row += sizes[0]) {
    sizes[0] = std::min(seekRow(plan, signature_.program().views.size(), row, views.data()), end - row);
    code(views.data(), plan.strides.data(), sizes.data(), scalars, kept);
  }
}

void LoopKernel::runPart(LoopFunction code, const LoopPlan& plan, const int64_t* scalars, int64_t row, int64_t first,
                         int64_t count) const {
  std::byte* const kept = keptStorage(plan);
  std::array<void*, LoopProgram::kMaxViews> views;
  std::array<int64_t, LoopPlan::kMaxLoops> sizes = plan.sizes;
  const size_t num_views = signature_.program().views.size();
  seekRow(plan, num_views, row, views.data());
  const int loops = signature_.numLoops();
  for (size_t view = 0; view < num_views; ++view) {
    views[view] = static_cast<char*>(views[view]) + first * plan.strides[view * loops + loops - 1];
  }
  sizes[0] = 1;
  sizes[loops - 1] = count;
  code(views.data(), plan.strides.data(), sizes.data(), scalars, kept);
}

}  // namespace

Result<std::shared_ptr<const Kernel>> createLoopKernel(const LoopProgram& program, const LoopKernelOptions& options) {
  QX_RETURN_IF_ERROR(verify(program));
  if (program.scalars.size() > kMaxScalars) return unimplemented("a region uses too many sizes as numbers");
  auto kernel = std::make_shared<LoopKernel>(program, options);
  QX_RETURN_IF_ERROR(kernel->compileExpected());
  return std::shared_ptr<const Kernel>(std::move(kernel));
}

}  // namespace qx::compiler
