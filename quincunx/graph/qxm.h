// The .qxm file: a converted model as data. Named graphs ("methods") that share their weights, a description, and a
// tokenizer. docs/qxm.md has the layout, COMPATIBILITY.md what may change in it.
//
//   QX_RETURN_IF_ERROR(write_qxm("model.qxm", {.methods = {prefill, decode}}));
//   QX_ASSIGN_OR_RETURN(const Qxm model, open_qxm("model.qxm"));
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/graph/graph.h"
#include "quincunx/tensor/storage.h"

namespace qx::graph {

struct Qxm {
  // Their names differ and are not empty.
  std::vector<Graph> methods;
  // A JSON object.
  std::string metadata = "{}";
  // Opaque here: whoever writes it knows what it is.
  std::string tokenizer;

  // Null if there is none of that name.
  const Graph* find(std::string_view method) const;
};

struct OpenOptions {
  // Off: the checksum of the weights is not computed, so that pages are read only when they are used. Everything else
  // is always checked.
  bool check_weights = true;
};

// Writes a temporary file beside `path` and renames it: a reader sees the old file or the new one, and after an error
// (INVALID_ARGUMENT for graphs that verify() refuses, RESOURCE_EXHAUSTED for a full disk) the old one is still there.
// Constants at the same address are written once. Graphs and their storages must not change meanwhile.
Status write_qxm(const std::string& path, const Qxm& contents);

// The constants of the graphs are the file's pages, read-only, shared by all methods; they stay as long as one graph
// does. DATA_LOSS for a file that is no .qxm, is damaged or truncated, UNIMPLEMENTED for one of a newer major version.
Result<Qxm> open_qxm(const std::string& path, OpenOptions options = {});

// The same for bytes in memory, which should be aligned to kStorageAlignmentBytes. Errors start with `name`.
Result<Qxm> parse_qxm(std::shared_ptr<const Storage> bytes, const std::string& name, OpenOptions options = {});

// One section of a file, for people.
struct QxmSection {
  std::string name;  // "methods", "weights", "metadata", "tokenizer", or "unknown 7"
  int64_t offset_bytes = 0;
  int64_t size_bytes = 0;
  uint32_t checksum = 0;
};

struct QxmLayout {
  uint32_t major = 0;
  uint32_t minor = 0;
  int64_t file_bytes = 0;
  std::vector<QxmSection> sections;
};

// The header and the section table, checked.
Result<QxmLayout> qxm_layout(const Storage& bytes, const std::string& name);

}  // namespace qx::graph
