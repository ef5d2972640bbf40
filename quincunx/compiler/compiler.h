// The fusion compiler: which operators of a graph become one kernel, and those kernels. One pipeline serves Inductor,
// the stand-alone backend and lite: import -> patterns -> clustering -> code generation.
//
//   QX_ASSIGN_OR_RETURN(Fusion fusion, fuse(graph));
//   for (const Region& region : fusion.regions)
//     // run region.kernel on region.inputs instead of the nodes region.nodes; it writes region.outputs
//
// Nothing here includes MLIR or LLVM.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/graph/graph.h"
#include "quincunx/tensor/tensor_view.h"

namespace qx::compiler {

struct FuseOptions {
  // Switches of single patterns by name, as patternNames() lists them; all are on but matmul_epilogue where there are
  // no weights. Another name is an error.
  std::map<std::string, bool> patterns;
  // Inputs of the graph that are the same in many calls, as a model's parameters in inference. Products of f32 with one
  // of them become regions of their own with what follows them (kProduct), unless matmul_epilogue is switched off.
  std::vector<graph::ValueId> weights;
  // One for each node, or none at all: nodes of different labels never share a region, and one of a label is named
  // after it and may be of a single operator. "" is no label.
  std::vector<std::string> labels;
  // Where compiled kernels are kept between processes. Empty: QX_CACHE_DIR, else XDG_CACHE_HOME/quincunx, else
  // ~/.cache/quincunx. "none" keeps nothing.
  std::string cache_directory;
  // The IR after each pass and the LLVM IR of each kernel go here, one file each; empty: nowhere. The folder is made.
  std::string dump_directory;
  // What makes the kernels, as targetNames() lists them: "llvm" (machine code, now) or "tile" (data for lite).
  std::string target = "llvm";
  // Regions of fewer source nodes stay as they are.
  int64_t min_region_size = 2;
  // Verifies the IR after each pass, and compares each kernel's first call with the scalar reference of its program: a
  // difference makes that call fail with INTERNAL.
  bool check = false;
};

class PackingKernel;

// A compiled region. Immutable, shared between threads and graphs.
class Kernel {
 public:
  virtual ~Kernel() = default;

  // outputs = region(inputs). One view for each of the region's inputs and outputs in order, of their dtypes and ranks
  // and of sizes that fit them; any strides, but an output has no zero stride and overlaps no other view. `symbols` are
  // the sizes chosen for Graph::symbols, all of them in order. INVALID_ARGUMENT names the view that is wrong. Runs on
  // the process's threads; the bits do not depend on how many. Thread-safe.
  virtual Status run(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                     std::span<const int64_t> symbols) const = 0;

  // What the kernel computes, one instruction a line.
  virtual std::string to_string() const = 0;

  // This kernel if it is one that packs a weight, else null.
  virtual const PackingKernel* packing() const { return nullptr; }
};

// A matrix product whose right operand may be packed once and used often.
class PackingKernel : public Kernel {
 public:
  const PackingKernel* packing() const override { return this; }

  // Which of the inputs is the weight.
  virtual int32_t weight() const = 0;
  // The weight as the right operand [inner, columns]: a transposed view of it, or the view itself.
  virtual Result<TensorView> rightOperand(const TensorView& weight) const = 0;
  // As run(), with kernels::pack_b of the right operand; of inputs[weight()] only the shape is read.
  virtual Status runPacked(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                           std::span<const float> packed) const = 0;
};

enum class RegionKind {
  kElementwise,  // every value has the same shape
  kBroadcast,    // and some inputs are smaller
  kReduce,       // sums, means, maxima over some dims, and what depends on them
  kReshape,      // nothing but moved elements
  kProduct,      // a matrix product with a weight and what follows it: the kernel is a PackingKernel
};
// "elementwise", "broadcast", "reduce", "reshape", "product".
std::string_view regionKindName(RegionKind kind);

// Nodes that one kernel replaces. They are convex: no path leaves them and comes back, so that the kernel may stand
// where the last of its nodes stood if its outputs' users all come later, or where the first user stands.
struct Region {
  // Unique in its Fusion, from the operators that matter: "fused_3_rms_norm_mul".
  std::string name;
  RegionKind kind = RegionKind::kElementwise;
  // Indices into the source graph's nodes, ascending.
  std::vector<int32_t> nodes;
  // Values of the source graph: what the kernel reads (inputs, constants, other nodes' results), each once, and which
  // of its results others need.
  std::vector<graph::ValueId> inputs;
  std::vector<graph::ValueId> outputs;
  std::shared_ptr<const Kernel> kernel;
  // Patterns that were recognised inside: "rms_norm", "swiglu".
  std::vector<std::string> patterns;
};

// One candidate of a pattern or of clustering: fused, or the guard that failed.
struct ReportEntry {
  // A pattern's name, "cluster" or "codegen".
  std::string stage;
  std::vector<int32_t> nodes;
  bool fused = false;
  // Why not; empty if fused.
  std::string reason;
};

struct Fusion {
  std::vector<Region> regions;
  std::vector<ReportEntry> report;
};

// Finds and compiles the regions of a graph that verify() accepts. Operators that no target knows stay outside, with an
// entry in the report; a region whose kernel cannot be made does too. INVALID_ARGUMENT for a wrong option or graph.
// Thread-safe.
Result<Fusion> fuse(const graph::Graph& graph, const FuseOptions& options = {});

// Names for FuseOptions::patterns and FuseOptions::target.
std::vector<std::string> patternNames();
std::vector<std::string> targetNames();

// Where the kernels of this process came from so far.
struct CompileCounters {
  int64_t compiled = 0;        // by LLVM
  int64_t from_memory = 0;     // the same kernel was compiled by this process before
  int64_t from_disk = 0;       // by another process
  int64_t rejected_files = 0;  // damaged or foreign files in the cache, compiled anew
};
CompileCounters compileCounters();

}  // namespace qx::compiler
