// Hostile bytes as a .qxm file: an error or a graph that verifies and prints, and no access outside the bytes. The
// checksums of the input are made right first, because a fuzzer does not find them.
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "quincunx/base/check.h"
#include "quincunx/graph/qxm.h"
#include "quincunx/graph/qxm_format.h"

namespace {

void correct_checksums(std::span<std::byte> bytes) {
  using namespace qx::graph::qxm;
  Header header;
  if (bytes.size() < sizeof(header)) return;
  std::memcpy(&header, bytes.data(), sizeof(header));
  header.magic = kMagic;
  header.file_bytes = bytes.size();
  const size_t fitting = (bytes.size() - sizeof(header)) / sizeof(Section);
  if (header.num_sections > fitting) return;
  std::vector<Section> table(header.num_sections);
  if (!table.empty()) std::memcpy(table.data(), bytes.data() + sizeof(header), table.size() * sizeof(Section));
  for (Section& section : table) {
    if (section.offset > bytes.size() || section.size > bytes.size() - section.offset) continue;
    section.checksum = checksum(bytes.subspan(section.offset, section.size));
  }
  header.checksum = 0;
  header.checksum = checksum(std::as_bytes(std::span(table)), checksum(std::as_bytes(std::span(&header, 1))));
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (!table.empty()) std::memcpy(bytes.data() + sizeof(header), table.data(), table.size() * sizeof(Section));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto storage = qx::Storage::allocate(static_cast<int64_t>(size)).value();
  if (size > 0) std::memcpy(storage->mutable_data(), data, size);
  correct_checksums({storage->mutable_data(), size});
  const auto model = qx::graph::parse_qxm(storage, "fuzz");
  if (!model.ok()) {
    QX_CHECK(!model.status().message().empty());
    return 0;
  }
  uint32_t sum = 0;
  for (const qx::graph::Graph& graph : model->methods) {
    QX_CHECK(qx::graph::verify(graph).ok());
    QX_CHECK(!qx::graph::to_text(graph).empty());
    for (const qx::graph::Value& value : graph.values) {  // verify() says that these bytes are there
      if (value.constant < 0) continue;
      const auto& constant = graph.constants[static_cast<size_t>(value.constant)];
      size_t bytes = static_cast<size_t>(qx::dtype_size_bytes(value.type.dtype));
      for (const qx::graph::Dim& dim : value.type.shape) bytes *= static_cast<size_t>(dim.value);
      sum ^= qx::graph::qxm::checksum({constant.storage->data() + constant.offset_bytes, bytes});
    }
  }
  return static_cast<int>(sum & 0);
}
