#include "quincunx/apps/run.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <random>
#include <span>

#include "quincunx/apps/npy.h"
#include "quincunx/base/trace.h"
#include "quincunx/lite/ops/rows.h"
#include "quincunx/lite/session.h"

namespace qx::apps {
namespace {

using lite::MethodInfo;
using lite::Session;
using lite::Tensor;
using lite::TensorSpec;

// A symbol that neither a file nor --size gives gets this size, or the nearest that its range allows.
constexpr int64_t kDefaultSize = 16;

Result<std::pair<std::string, std::string>> split(const char* option, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return invalid_argument(std::string(option) + ": expected name=value, got '" + text + "'");
  }
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

Result<const MethodInfo*> find_method(const Session& session, const std::string& name) {
  if (!name.empty()) return session.method(name);
  if (session.methods().size() == 1) return &session.methods()[0];
  std::string known;
  for (const MethodInfo& info : session.methods()) known += (known.empty() ? "" : ", ") + info.name;
  return invalid_argument("--method: the model has several methods, choose one of " + known);
}

Result<std::map<std::string, Tensor>> read_inputs(const MethodInfo& info, const RunArguments& arguments) {
  std::map<std::string, Tensor> tensors;
  for (const std::string& text : arguments.inputs) {
    QX_ASSIGN_OR_RETURN(const auto named, split("--input", text));
    const bool known = std::any_of(info.inputs.begin(), info.inputs.end(),
                                   [&](const TensorSpec& spec) { return spec.name == named.first; });
    if (!known) {
      std::string names;
      for (const TensorSpec& spec : info.inputs) names += (names.empty() ? "" : ", ") + spec.name;
      return invalid_argument("--input: method '" + info.name + "' has no input '" + named.first +
                              "', expected one of " + names);
    }
    QX_ASSIGN_OR_RETURN(tensors[named.first], read_npy(named.second));
  }
  return tensors;
}

// The size of each symbol: from a file, from --size, or the default.
Result<std::vector<int64_t>> symbol_sizes(const MethodInfo& info, const RunArguments& arguments,
                                          const std::map<std::string, Tensor>& tensors) {
  std::vector<int64_t> sizes;
  for (const graph::Symbol& symbol : info.symbols) sizes.push_back(std::clamp(kDefaultSize, symbol.min, symbol.max));
  for (const TensorSpec& spec : info.inputs) {
    const auto found = tensors.find(spec.name);
    if (found == tensors.end()) continue;
    for (size_t i = 0; i < spec.type.shape.size(); ++i) {
      const graph::Dim& dim = spec.type.shape[i];
      if (dim.is_known() || static_cast<int>(i) >= found->second.view.num_dims()) continue;
      sizes[static_cast<size_t>(dim.symbol)] =
          (found->second.view.size(static_cast<int>(i)) - dim.value) / dim.multiplier;
    }
  }
  for (const std::string& text : arguments.sizes) {
    QX_ASSIGN_OR_RETURN(const auto named, split("--size", text));
    int64_t size = 0;
    const char* end = named.second.data() + named.second.size();
    const auto parsed = std::from_chars(named.second.data(), end, size);
    const auto symbol = std::find_if(info.symbols.begin(), info.symbols.end(),
                                     [&](const graph::Symbol& known) { return known.name == named.first; });
    if (parsed.ec != std::errc() || parsed.ptr != end || symbol == info.symbols.end()) {
      std::string names;
      for (const graph::Symbol& known : info.symbols) names += (names.empty() ? "" : ", ") + known.name;
      return invalid_argument("--size: expected symbol=number with a symbol of [" + names + "], got '" + text + "'");
    }
    sizes[static_cast<size_t>(symbol - info.symbols.begin())] = size;
  }
  return sizes;
}

Result<std::vector<int64_t>> input_shape(const TensorSpec& spec, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> shape;
  for (const graph::Dim& dim : spec.type.shape) {
    int64_t size = dim.value;
    if (!dim.is_known()) {
      int64_t product = 0;
      if (__builtin_mul_overflow(dim.multiplier, sizes[static_cast<size_t>(dim.symbol)], &product) ||
          __builtin_add_overflow(product, dim.value, &size)) {
        return invalid_argument("input '" + spec.name + "': a size overflows 64 bits");
      }
    }
    shape.push_back(size);
  }
  return shape;
}

// Normal numbers, or zeros and ones for integers: an index or a token that every model has.
Result<Tensor> random_tensor(DType dtype, const std::vector<int64_t>& shape, std::mt19937& generator) {
  // Sizes come from the file or the command line: what overflows or does not fit in memory is an error before it is
  // filled.
  char base = 0;
  QX_ASSIGN_OR_RETURN(const TensorView sized, TensorView::contiguous(&base, DType::kFloat32, shape));
  const int64_t count = sized.num_elements();
  QX_ASSIGN_OR_RETURN(const std::shared_ptr<Storage> numbers, Storage::allocate(sized.size_bytes()));
  const std::span<float> values(reinterpret_cast<float*>(numbers->mutable_data()), static_cast<size_t>(count));
  std::normal_distribution<float> normal;
  for (float& value : values)
    value = is_floating_point(dtype) ? normal(generator) : std::floor(std::abs(normal(generator)));
  if (!is_floating_point(dtype)) {
    for (float& value : values) value = std::min(value, 1.0f);
  }
  Tensor tensor;
  QX_ASSIGN_OR_RETURN(const TensorView floats, numbers->view(DType::kFloat32, shape));
  QX_ASSIGN_OR_RETURN(tensor.storage, Storage::allocate(std::max<int64_t>(1, count * dtype_size_bytes(dtype))));
  QX_ASSIGN_OR_RETURN(tensor.view, tensor.storage->view(dtype, shape));
  QX_RETURN_IF_ERROR(lite::convert_elements(floats, tensor.view));
  return tensor;
}

Result<std::vector<Tensor>> make_inputs(const MethodInfo& info, const RunArguments& arguments, std::ostream& out) {
  QX_ASSIGN_OR_RETURN(auto tensors, read_inputs(info, arguments));
  QX_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, symbol_sizes(info, arguments, tensors));
  std::mt19937 generator(0);
  std::vector<Tensor> inputs;
  for (const TensorSpec& spec : info.inputs) {
    const auto found = tensors.find(spec.name);
    if (found != tensors.end()) {
      inputs.push_back(found->second);
      continue;
    }
    QX_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, input_shape(spec, sizes));
    QX_ASSIGN_OR_RETURN(Tensor tensor, random_tensor(spec.type.dtype, shape, generator));
    out << "input   " << spec.name << " " << tensor.view.to_string() << " (random)\n";
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

std::string file_name(const std::string& output_name) {
  std::string name = output_name;
  for (char& c : name) {
    if (c == '/' || c == '\0') c = '_';
  }
  return name + ".npy";
}

void summarise(const std::string& name, const TensorView& view, std::ostream& out) {
  std::vector<double> values(static_cast<size_t>(view.num_elements()));
  const Result<TensorView> list = TensorView::contiguous(values.data(), DType::kFloat64, view.shape());
  out << "output  " << name << " " << view.to_string();
  if (!values.empty() && list.ok() && lite::convert_elements(view, *list).ok()) {
    const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
    double sum = 0;
    for (const double value : values) sum += value;
    out << ", mean " << sum / static_cast<double>(values.size()) << ", from " << *least << " to " << *greatest;
  }
  out << "\n";
}

Status write_outputs(const MethodInfo& info, const std::vector<Tensor>& outputs, const std::string& folder,
                     std::ostream& out) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return unavailable("--output-dir: cannot make '" + folder + "': " + error.message());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string path = (std::filesystem::path(folder) / file_name(info.outputs[i].name)).string();
    QX_RETURN_IF_ERROR(write_npy(path, outputs[i].view));
    out << "wrote   " << path << "\n";
  }
  return ok_status();
}

void print_memory(Session& session, const MethodInfo& info, const std::vector<Tensor>& inputs, std::ostream& out) {
  constexpr double kMebibyte = 1 << 20;
  std::vector<std::vector<int64_t>> shapes;
  for (const Tensor& input : inputs) shapes.emplace_back(input.view.shape().begin(), input.view.shape().end());
  const Result<lite::MemoryReport> report = session.memory(info.name, shapes);
  if (!report.ok()) return;
  out << "memory  " << static_cast<double>(report->peak_bytes()) / kMebibyte
      << " MiB beside the file: " << static_cast<double>(report->arena_bytes) / kMebibyte << " intermediate, "
      << static_cast<double>(report->packed_weight_bytes) / kMebibyte << " packed weights, "
      << static_cast<double>(report->state_bytes) / kMebibyte << " states\n";
}

}  // namespace

Status run_model(const RunArguments& arguments, std::ostream& out) {
  using Clock = std::chrono::steady_clock;
  const auto milliseconds = [](Clock::duration duration) {
    return std::chrono::duration<double, std::milli>(duration).count();
  };
  if (arguments.num_runs < 1) {
    return invalid_argument("--runs: expected at least 1, got " + std::to_string(arguments.num_runs));
  }
  if (!arguments.trace.empty()) QX_RETURN_IF_ERROR(start_trace(arguments.trace));
  const auto begin = Clock::now();
  QX_ASSIGN_OR_RETURN(Session session, Session::load(arguments.model, {.num_threads = arguments.num_threads}));
  out << "loaded  " << arguments.model << " in " << milliseconds(Clock::now() - begin) << " ms\n";
  QX_ASSIGN_OR_RETURN(const MethodInfo* info, find_method(session, arguments.method));
  QX_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, make_inputs(*info, arguments, out));
  std::vector<TensorView> views;
  for (const Tensor& input : inputs) views.push_back(input.view);
  print_memory(session, *info, inputs, out);
  lite::Profile profile;
  lite::RunOptions options;
  if (arguments.profile) options.profile = &profile;
  std::vector<Tensor> outputs;
  for (int run = 0; run < arguments.num_runs; ++run) {
    session.reset_states();
    const auto start = Clock::now();
    QX_ASSIGN_OR_RETURN(outputs, session.run(info->name, views, options));
    out << "ran     " << info->name << " in " << milliseconds(Clock::now() - start) << " ms\n";
  }
  for (size_t i = 0; i < outputs.size(); ++i) summarise(info->outputs[i].name, outputs[i].view, out);
  if (arguments.profile) out << profile.to_text();
  if (!arguments.trace.empty()) QX_RETURN_IF_ERROR(stop_trace());
  return arguments.output_dir.empty() ? ok_status() : write_outputs(*info, outputs, arguments.output_dir, out);
}

}  // namespace qx::apps
