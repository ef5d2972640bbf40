#include <zlib.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "quincunx/graph/qxm.h"
#include "quincunx/graph/qxm_encoding.h"
#include "quincunx/graph/qxm_format.h"

namespace qx::graph {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::array<std::pair<uint32_t, const char*>, 4> kSectionNames = {{{qxm::kMethods, "methods"},
                                                                            {qxm::kWeights, "weights"},
                                                                            {qxm::kMetadata, "metadata"},
                                                                            {qxm::kTokenizer, "tokenizer"}}};

std::string section_name(uint32_t kind) {
  for (const auto& [known, name] : kSectionNames) {
    if (known == kind) return name;
  }
  return "unknown " + std::to_string(kind);
}

bool is_known(uint32_t kind) { return kind >= qxm::kMethods && kind <= qxm::kTokenizer; }

struct Table {
  qxm::Header header;
  std::vector<qxm::Section> sections;
};

Status check_header(const qxm::Header& header, Bytes file) {
  if (header.major > qxm::kMajor) {
    return unimplemented("is of format version " + std::to_string(header.major) + "." + std::to_string(header.minor) +
                         ", this library reads up to version " + std::to_string(qxm::kMajor) +
                         "; convert the model again or update quincunx");
  }
  if (header.major == 0) return data_loss("has format version 0, which never was");
  if (header.file_bytes != file.size()) {
    return data_loss("is truncated or was appended to: expected " + std::to_string(header.file_bytes) + " bytes, got " +
                     std::to_string(file.size()));
  }
  const uint64_t table_bytes = uint64_t{header.num_sections} * sizeof(qxm::Section);
  if (header.num_sections > qxm::kMaxSections || table_bytes > file.size() - sizeof(qxm::Header)) {
    return data_loss("has a damaged header: " + std::to_string(header.num_sections) + " sections");
  }
  return ok_status();
}

Status check_section(const qxm::Section& section, uint64_t file_bytes, uint64_t first_byte) {
  const std::string name = section_name(section.kind);
  if (section.offset % qxm::kAlignment != 0 || section.offset < first_byte || section.offset > file_bytes ||
      section.size > file_bytes - section.offset) {
    return data_loss("has a damaged section table: section \"" + name + "\" lies outside the file");
  }
  if (!is_known(section.kind) && (section.flags & qxm::kRequired) != 0) {
    return unimplemented("needs section \"" + name + "\", which this library does not know; update quincunx");
  }
  return ok_status();
}

Result<Table> read_table(Bytes file) {
  Table table;
  if (file.size() < sizeof(qxm::Header))
    return data_loss("is no .qxm file: it has " + std::to_string(file.size()) + " bytes");
  std::memcpy(&table.header, file.data(), sizeof(qxm::Header));
  if (table.header.magic != qxm::kMagic) return data_loss("is no .qxm file: it starts with other bytes");
  QX_RETURN_IF_ERROR(check_header(table.header, file));
  table.sections.resize(table.header.num_sections);
  const size_t table_bytes = table.sections.size() * sizeof(qxm::Section);
  if (table_bytes > 0) std::memcpy(table.sections.data(), file.data() + sizeof(qxm::Header), table_bytes);

  qxm::Header unsigned_header = table.header;
  unsigned_header.checksum = 0;
  const uint32_t checksum = qxm::checksum(std::as_bytes(std::span(table.sections)),
                                          qxm::checksum(std::as_bytes(std::span(&unsigned_header, 1))));
  if (checksum != table.header.checksum) return data_loss("is damaged: the checksum of its header is wrong");
  std::set<uint32_t> kinds;
  for (const qxm::Section& section : table.sections) {
    QX_RETURN_IF_ERROR(check_section(section, file.size(), sizeof(qxm::Header) + table_bytes));
    if (is_known(section.kind) && !kinds.insert(section.kind).second) {
      return data_loss("has two sections \"" + section_name(section.kind) + "\"");
    }
  }
  return table;
}

Bytes bytes_of(Bytes file, const qxm::Section& section) { return file.subspan(section.offset, section.size); }

Result<const qxm::Section*> checked_section(const Table& table, Bytes file, uint32_t kind, bool check) {
  const auto found = std::ranges::find(table.sections, kind, &qxm::Section::kind);
  if (found == table.sections.end()) return data_loss("has no section \"" + section_name(kind) + "\"");
  if (check && qxm::checksum(bytes_of(file, *found)) != found->checksum) {
    return data_loss("is damaged: the checksum of section \"" + section_name(kind) + "\" is wrong");
  }
  return &*found;
}

Result<std::string> text_section(const Table& table, Bytes file, uint32_t kind) {
  QX_ASSIGN_OR_RETURN(const qxm::Section* section, checked_section(table, file, kind, true));
  const Bytes bytes = bytes_of(file, *section);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Status check_contents(const Qxm& contents) {
  std::set<std::string> names;
  for (const Graph& graph : contents.methods) {
    if (const Status status = verify(graph); !status.ok()) return data_loss("holds a wrong graph: " + status.message());
    if (graph.name.empty() || !names.insert(graph.name).second) {
      return data_loss("holds a method without a name of its own: \"" + graph.name + "\"");
    }
  }
  const auto metadata = nlohmann::json::parse(contents.metadata, nullptr, /*allow_exceptions=*/false);
  if (!metadata.is_object()) return data_loss("holds metadata that is no JSON object");
  return ok_status();
}

Result<Qxm> parse(const std::shared_ptr<const Storage>& storage, OpenOptions options) {
  const Bytes file(storage->data(), static_cast<size_t>(storage->size_bytes()));
  QX_ASSIGN_OR_RETURN(const Table table, read_table(file));
  QX_ASSIGN_OR_RETURN(const qxm::Section* weights, checked_section(table, file, qxm::kWeights, options.check_weights));
  QX_ASSIGN_OR_RETURN(const qxm::Section* methods, checked_section(table, file, qxm::kMethods, true));
  if (methods->size > qxm::kMaxMethodsBytes) {
    return data_loss("has a methods section of " + std::to_string(methods->size) + " bytes, expected at most " +
                     std::to_string(qxm::kMaxMethodsBytes));
  }
  Qxm contents;
  QX_ASSIGN_OR_RETURN(contents.methods,
                      qxm::decode_methods(bytes_of(file, *methods), storage, static_cast<int64_t>(weights->offset),
                                          static_cast<int64_t>(weights->size)));
  QX_ASSIGN_OR_RETURN(contents.metadata, text_section(table, file, qxm::kMetadata));
  QX_ASSIGN_OR_RETURN(contents.tokenizer, text_section(table, file, qxm::kTokenizer));
  QX_RETURN_IF_ERROR(check_contents(contents));
  return contents;
}

Status with_name(const Status& status, const std::string& name) {
  return Status(status.code(), "\"" + name + "\" " + status.message());
}

}  // namespace

uint32_t qxm::checksum(std::span<const std::byte> bytes, uint32_t before) {
  return static_cast<uint32_t>(crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

const Graph* Qxm::find(std::string_view method) const {
  const auto found = std::ranges::find(methods, method, &Graph::name);
  return found == methods.end() ? nullptr : &*found;
}

Result<Qxm> parse_qxm(std::shared_ptr<const Storage> bytes, const std::string& name, OpenOptions options) {
  Result<Qxm> contents = parse(bytes, options);
  return contents.ok() ? std::move(contents) : with_name(contents.status(), name);
}

Result<Qxm> open_qxm(const std::string& path, OpenOptions options) {
  QX_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  return parse_qxm(Storage::from_file(std::move(file)), path, options);
}

Result<QxmLayout> qxm_layout(const Storage& bytes, const std::string& name) {
  const Result<Table> table = read_table({bytes.data(), static_cast<size_t>(bytes.size_bytes())});
  if (!table.ok()) return with_name(table.status(), name);
  QxmLayout layout{
      .major = table->header.major, .minor = table->header.minor, .file_bytes = bytes.size_bytes(), .sections = {}};
  for (const qxm::Section& section : table->sections) {
    layout.sections.push_back({.name = section_name(section.kind),
                               .offset_bytes = static_cast<int64_t>(section.offset),
                               .size_bytes = static_cast<int64_t>(section.size),
                               .checksum = section.checksum});
  }
  return layout;
}

}  // namespace qx::graph
