#include "quincunx/graph/qxm_encoding.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "quincunx/base/check.h"
#include "quincunx/graph/qxm_format.h"

namespace qx::graph::qxm {
namespace {

// The file's numbers for the alternatives of Argument.
enum Tag : uint8_t {
  kNone = 0,
  kTensor = 1,
  kTensors = 2,
  kBool = 3,
  kDim = 4,
  kDouble = 5,
  kString = 6,
  kDTypeTag = 7,
  kDims = 8,
  kDoubles = 9,
  kBools = 10,
};

int64_t round_up(int64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

int64_t size_of(const TensorType& type) {
  int64_t size = dtype_size_bytes(type.dtype);
  for (const Dim& dim : type.shape) size *= dim.value;
  return size;
}

const void* address_of(const Constant& constant) { return constant.storage->data() + constant.offset_bytes; }

class Encoder {
 public:
  template <typename T>
  void number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void count(size_t size) { number(static_cast<uint32_t>(size)); }
  void text(const std::string& value) {
    count(value.size());
    bytes_ += value;
  }
  void dim(const Dim& dim) {
    number(dim.value);
    number(dim.multiplier);
    number(dim.symbol);
  }
  template <typename List, typename Each>
  void list(const List& values, const Each& each) {
    count(values.size());
    for (const auto& value : values) each(value);
  }
  void ids(const std::vector<ValueId>& values) {
    list(values, [this](ValueId id) { number(id); });
  }

  void operator()(std::monostate) { number<uint8_t>(kNone); }
  void operator()(TensorRef ref) {
    number<uint8_t>(kTensor);
    number(ref.id);
  }
  void operator()(const std::vector<TensorRef>& refs) {
    number<uint8_t>(kTensors);
    list(refs, [this](TensorRef ref) { number(ref.id); });
  }
  void operator()(bool value) {
    number<uint8_t>(kBool);
    number<uint8_t>(value);
  }
  void operator()(const Dim& value) {
    number<uint8_t>(kDim);
    dim(value);
  }
  void operator()(double value) {
    number<uint8_t>(kDouble);
    number(value);
  }
  void operator()(const std::string& value) {
    number<uint8_t>(kString);
    text(value);
  }
  void operator()(DType dtype) {
    number<uint8_t>(kDTypeTag);
    number(static_cast<uint8_t>(dtype));
  }
  void operator()(const std::vector<Dim>& dims) {
    number<uint8_t>(kDims);
    list(dims, [this](const Dim& value) { dim(value); });
  }
  void operator()(const std::vector<double>& values) {
    number<uint8_t>(kDoubles);
    list(values, [this](double value) { number(value); });
  }
  void operator()(const std::vector<bool>& values) {
    number<uint8_t>(kBools);
    list(values, [this](bool value) { number<uint8_t>(value); });
  }

  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

void encode_graph(Encoder& out, const Graph& graph, const WeightTable& weights) {
  out.text(graph.name);
  out.list(graph.symbols, [&](const Symbol& symbol) {
    out.text(symbol.name);
    out.number(symbol.min);
    out.number(symbol.max);
  });
  out.list(graph.values, [&](const Value& value) {
    out.text(value.name);
    out.number(static_cast<uint8_t>(value.type.dtype));
    out.list(value.type.shape, [&](const Dim& dim) { out.dim(dim); });
    const bool constant = value.constant >= 0;
    out.number(constant ? static_cast<int32_t>(weights.index(graph.constants[static_cast<size_t>(value.constant)]))
                        : int32_t{-1});
  });
  out.list(graph.nodes, [&](const Node& node) {
    out.text(node.op);
    out.text(node.name);
    out.list(node.arguments, [&](const Argument& argument) { std::visit(out, argument); });
    out.ids(node.results);
  });
  out.ids(graph.inputs);
  out.ids(graph.outputs);
  out.list(graph.states, [&](const State& state) {
    out.text(state.name);
    out.number(state.input);
    out.number(state.output);
  });
}

// Reads past its end, and anything that makes no sense, leave it failed; what it gives then is empty or zero.
class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && bytes_.empty(); }
  void fail() { ok_ = false; }

  template <typename T>
  T number() {
    T value{};
    if (!ok_ || bytes_.size() < sizeof(T)) {
      fail();
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }
  // A length whose elements take at least `element_bytes` each in what is left: a wrong one allocates nothing.
  size_t count(size_t element_bytes) {
    const auto value = number<uint32_t>();
    if (ok_ && value <= bytes_.size() / element_bytes) return value;
    fail();
    return 0;
  }
  std::string text() {
    const size_t size = count(1);
    std::string value(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
    return value;
  }
  bool boolean() {
    const auto value = number<uint8_t>();
    if (value > 1) fail();
    return value == 1;
  }
  DType dtype() {
    const auto code = number<uint8_t>();
    if (code <= static_cast<uint8_t>(DType::kComplex128)) return static_cast<DType>(code);
    fail();
    return DType::kFloat32;
  }
  Dim dim() {
    Dim dim;
    dim.value = number<int64_t>();
    dim.multiplier = number<int64_t>();
    dim.symbol = number<int32_t>();
    return dim;
  }
  template <typename Each>
  auto list(size_t element_bytes, const Each& each) {
    std::vector<decltype(each())> values;
    const size_t size = count(element_bytes);
    for (size_t i = 0; i < size && ok_; ++i) values.push_back(each());
    return values;
  }
  std::vector<ValueId> ids() {
    return list(sizeof(ValueId), [this] { return number<ValueId>(); });
  }
  std::vector<Dim> dims() {
    return list(kDimBytes, [this] { return dim(); });
  }

  Argument argument() {
    switch (number<uint8_t>()) {
      case kNone: return std::monostate{};
      case kTensor: return TensorRef{number<ValueId>()};
      case kTensors: return list(sizeof(ValueId), [this] { return TensorRef{number<ValueId>()}; });
      case kBool: return boolean();
      case kDim: return dim();
      case kDouble: return number<double>();
      case kString: return text();
      case kDTypeTag: return dtype();
      case kDims: return dims();
      case kDoubles: return list(sizeof(double), [this] { return number<double>(); });
      case kBools: return list(1, [this] { return boolean(); });
      default: fail(); return std::monostate{};
    }
  }

 private:
  static constexpr size_t kDimBytes = 2 * sizeof(int64_t) + sizeof(int32_t);

  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

// The file's number of a constant becomes the graph's own.
class ConstantsOfGraph {
 public:
  ConstantsOfGraph(Graph& graph, std::span<const Constant> all) : graph_(graph), all_(all) {}

  // -1 stays; kOutOfRange for a number that the file does not have.
  static constexpr int32_t kOutOfRange = -2;
  int32_t local(int32_t number) {
    if (number == -1) return -1;
    if (number < 0 || static_cast<size_t>(number) >= all_.size()) return kOutOfRange;
    const auto [entry, fresh] = known_.try_emplace(number, static_cast<int32_t>(graph_.constants.size()));
    if (fresh) graph_.constants.push_back(all_[static_cast<size_t>(number)]);
    return entry->second;
  }

 private:
  Graph& graph_;
  std::span<const Constant> all_;
  std::map<int32_t, int32_t> known_;
};

Graph decode_graph(Decoder& in, std::span<const Constant> all) {
  // Of the fixed parts; texts and lists are empty at best.
  constexpr size_t kSymbolBytes = 20;
  constexpr size_t kValueBytes = 13;
  constexpr size_t kNodeBytes = 16;
  constexpr size_t kStateBytes = 12;
  Graph graph;
  ConstantsOfGraph constants(graph, all);
  graph.name = in.text();
  graph.symbols = in.list(kSymbolBytes, [&] {
    Symbol symbol;
    symbol.name = in.text();
    symbol.min = in.number<int64_t>();
    symbol.max = in.number<int64_t>();
    return symbol;
  });
  graph.values = in.list(kValueBytes, [&] {
    Value value;
    value.name = in.text();
    value.type.dtype = in.dtype();
    value.type.shape = in.dims();
    value.constant = constants.local(in.number<int32_t>());
    if (value.constant == ConstantsOfGraph::kOutOfRange) in.fail();
    return value;
  });
  graph.nodes = in.list(kNodeBytes, [&] {
    Node node;
    node.op = in.text();
    node.name = in.text();
    node.arguments = in.list(1, [&] { return in.argument(); });
    node.results = in.ids();
    return node;
  });
  graph.inputs = in.ids();
  graph.outputs = in.ids();
  graph.states = in.list(kStateBytes, [&] {
    State state;
    state.name = in.text();
    state.input = in.number<ValueId>();
    state.output = in.number<ValueId>();
    return state;
  });
  return graph;
}

}  // namespace

WeightTable::WeightTable(std::span<const Graph> methods) {
  // The values of one constant may be of different sizes: the largest is written.
  for (const Graph& graph : methods) {
    for (const Value& value : graph.values) {
      if (value.constant < 0) continue;
      const Constant& constant = graph.constants[static_cast<size_t>(value.constant)];
      const auto [entry, fresh] = known_.try_emplace(address_of(constant), static_cast<uint32_t>(weights_.size()));
      if (fresh) weights_.push_back({.storage = constant.storage, .source_offset = constant.offset_bytes});
      Weight& weight = weights_[entry->second];
      weight.size = std::max(weight.size, size_of(value.type));
    }
  }
  for (Weight& weight : weights_) {
    weight.offset = size_bytes_;
    size_bytes_ += round_up(weight.size);
  }
}

uint32_t WeightTable::index(const Constant& constant) const {
  const auto found = known_.find(address_of(constant));
  QX_CHECK(found != known_.end());
  return found->second;
}

std::string encode_methods(std::span<const Graph> methods, const WeightTable& weights) {
  Encoder out;
  out.list(weights.weights(), [&](const Weight& weight) {
    out.number(weight.offset);
    out.number(weight.size);
  });
  out.list(methods, [&](const Graph& graph) { encode_graph(out, graph, weights); });
  return out.take();
}

Result<std::vector<Graph>> decode_methods(std::span<const std::byte> bytes, const std::shared_ptr<const Storage>& file,
                                          int64_t weights_offset, int64_t weights_size) {
  Decoder in(bytes);
  const std::vector<Constant> constants = in.list(2 * sizeof(int64_t), [&] {
    const auto offset = in.number<int64_t>();
    const auto size = in.number<int64_t>();
    if (offset < 0 || size < 0 || offset % kAlignment != 0 || offset > weights_size || size > weights_size - offset) {
      in.fail();
      return Constant{};
    }
    return Constant{.storage = file, .offset_bytes = weights_offset + offset};
  });
  constexpr size_t kGraphBytes = 28;
  std::vector<Graph> methods = in.list(kGraphBytes, [&] { return decode_graph(in, constants); });
  if (!in.at_end()) return data_loss("the methods section does not hold graphs");
  return methods;
}

}  // namespace qx::graph::qxm
