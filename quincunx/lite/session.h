// A converted model, ready to run: its methods, the memory that they share, and the states that outlive a call.
//
//   QX_ASSIGN_OR_RETURN(Session session, Session::load("model.qxm"));
//   QX_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, session.run("forward", {image_view}));
//
// Weights are read where the file is mapped; those that matrix products need are packed once, for all methods. Sizes
// that are symbols may differ at each call: the plan of a call is made at the first call with its sizes and kept.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/graph/graph.h"
#include "quincunx/lite/profile.h"
#include "quincunx/tensor/storage.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::lite {

// A tensor with the memory that it lives in.
struct Tensor {
  std::shared_ptr<Storage> storage;
  TensorView view;
};

// An input or output of a method. Sizes are known numbers or depend on one of the method's symbols.
struct TensorSpec {
  std::string name;
  graph::TensorType type;
};

struct MethodInfo {
  std::string name;
  std::vector<graph::Symbol> symbols;
  std::vector<TensorSpec> inputs;  // without the states
  std::vector<TensorSpec> outputs;
  std::vector<std::string> states;
};

// Bytes that a call with the given sizes needs, known before it runs.
struct MemoryReport {
  int64_t arena_bytes = 0;          // intermediate results, with lifetimes laid over one another
  int64_t unshared_bytes = 0;       // what they would take if each had memory of its own
  int64_t output_bytes = 0;         // of outputs that are not views of an input, a weight or a state
  int64_t packed_weight_bytes = 0;  // of the whole session
  int64_t state_bytes = 0;          // of the whole session

  int64_t peak_bytes() const { return arena_bytes + output_bytes + packed_weight_bytes + state_bytes; }
};

struct SessionOptions {
  // Of the process's pool, from now on and for everybody who uses it; 0 leaves it as it is.
  int num_threads = 0;
  // Constant expressions are computed when the model is loaded; products take the operators that follow into their
  // epilogue. Off: the graph runs as it is, to find out whether a rewrite is at fault.
  bool rewrites = true;
  // load(): compares the weights to their checksum, which reads all of them. Off: damaged weights go unnoticed.
  bool check_weights = true;
};

struct RunOptions {
  // Read between operators; a call that finds it true ends with ABORTED. The states may then hold part of its changes.
  const std::atomic<bool>* cancel = nullptr;
  // Checked between operators: DEADLINE_EXCEEDED.
  std::optional<std::chrono::steady_clock::time_point> deadline = std::nullopt;
  // Filled with the time of each operator where present.
  Profile* profile = nullptr;
  // Memory for the outputs, one contiguous tensor each of the right dtype and shape; empty: they are allocated. Results
  // are computed right there where they are not views of something else.
  std::span<const TensorView> outputs = {};
};

// The time `seconds` from now, for RunOptions::deadline: passed already where that is negative, none where it is years
// away. INVALID_ARGUMENT for NaN.
Result<std::optional<std::chrono::steady_clock::time_point>> deadline_after(double seconds);

// Movable. One call at a time; different sessions are independent and share constants of the same storage.
class Session {
 public:
  // A .qxm file, whose graphs are the methods.
  static Result<Session> load(const std::string& path, const SessionOptions& options = {});
  // Graphs in memory, each a method; names must differ. Graphs that have states of the same name and type share them.
  static Result<Session> create(std::vector<graph::Graph> methods, const SessionOptions& options = {});

  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  const std::vector<MethodInfo>& methods() const;
  // NOT_FOUND names the methods that there are.
  Result<const MethodInfo*> method(std::string_view name) const;

  // Inputs in the order of the method's. They are read in place; only those that are not contiguous are copied. Sizes
  // that a symbol stands for must agree in all inputs and lie in its range. The outputs have memory of their own, or
  // that of `options.outputs`, which must not overlap the inputs.
  Result<std::vector<Tensor>> run(std::string_view method, std::span<const TensorView> inputs,
                                  const RunOptions& options = {});

  // What a call with inputs of these shapes takes; nothing is computed.
  Result<MemoryReport> memory(std::string_view method, const std::vector<std::vector<int64_t>>& input_shapes);
  // The shapes of the outputs of such a call.
  Result<std::vector<std::vector<int64_t>>> output_shapes(std::string_view method,
                                                          const std::vector<std::vector<int64_t>>& input_shapes);

  // A state's tensor in the session's own memory: to read it, or to write it between calls.
  Result<TensorView> state(std::string_view name);
  // All states as they were when the model was loaded.
  void reset_states();

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace qx::lite
