#include "quincunx/apps/npy.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "quincunx/base/mapped_file.h"

namespace qx::apps {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
// A header longer than this is no header.
constexpr size_t kMaxHeaderBytes = 1 << 16;
constexpr size_t kAlignment = 64;

struct Descriptor {
  std::string_view text;
  DType dtype;
};
constexpr std::array<Descriptor, 13> kDescriptors = {{
    {"|b1", DType::kBool},
    {"|i1", DType::kInt8},
    {"|u1", DType::kUInt8},
    {"<i2", DType::kInt16},
    {"<u2", DType::kUInt16},
    {"<i4", DType::kInt32},
    {"<u4", DType::kUInt32},
    {"<i8", DType::kInt64},
    {"<u8", DType::kUInt64},
    {"<f2", DType::kFloat16},
    {"<f4", DType::kFloat32},
    {"<f8", DType::kFloat64},
    {"|V2", DType::kBFloat16},
}};

// The text between the quotes, or the brackets, that follow 'key':.
Result<std::string_view> entry(std::string_view header, const std::string& key, char open, char close) {
  const size_t at = header.find("'" + key + "':");
  const size_t begin = at == std::string_view::npos ? at : header.find(open, at + key.size() + 3);
  const size_t end = begin == std::string_view::npos ? begin : header.find(close, begin + 1);
  if (end == std::string_view::npos) return data_loss("its header has no " + key);
  return header.substr(begin + 1, end - begin - 1);
}

Result<std::vector<int64_t>> parse_shape(std::string_view text) {
  std::vector<int64_t> shape;
  while (!text.empty()) {
    const size_t first = text.find_first_not_of(", ");
    if (first == std::string_view::npos) break;
    text.remove_prefix(first);
    int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || size < 0) return data_loss("its shape is not a tuple of sizes");
    shape.push_back(size);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
  }
  return shape;
}

struct Header {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  size_t data_offset = 0;
};

Result<Header> parse_header(std::string_view bytes) {
  if (!bytes.starts_with(kMagic) || bytes.size() < 10) return data_loss("it is not an .npy file");
  const size_t length_bytes = bytes[6] == 1 ? 2 : 4;
  size_t length = 0;
  for (size_t i = 0; i < length_bytes && 8 + i < bytes.size(); ++i) {
    length |= static_cast<size_t>(static_cast<unsigned char>(bytes[8 + i])) << (8 * i);
  }
  Header header;
  header.data_offset = 8 + length_bytes + length;
  if (length > kMaxHeaderBytes || header.data_offset > bytes.size()) return data_loss("its header is cut off");
  const std::string_view text = bytes.substr(8 + length_bytes, length);
  QX_ASSIGN_OR_RETURN(const std::string_view descriptor, entry(text, "descr", '\'', '\''));
  const auto* found = std::find_if(kDescriptors.begin(), kDescriptors.end(),
                                   [&](const Descriptor& known) { return known.text == descriptor; });
  if (found == kDescriptors.end()) {
    return unimplemented("its dtype is '" + std::string(descriptor) + "', expected bool, integers or floating point");
  }
  header.dtype = found->dtype;
  if (text.find("'fortran_order': True") != std::string_view::npos) {
    return unimplemented("it is in column-major order; save numpy.ascontiguousarray(array)");
  }
  QX_ASSIGN_OR_RETURN(const std::string_view shape, entry(text, "shape", '(', ')'));
  QX_ASSIGN_OR_RETURN(header.shape, parse_shape(shape));
  return header;
}

Result<lite::Tensor> read(const std::string& path) {
  QX_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  QX_ASSIGN_OR_RETURN(const Header header, parse_header(bytes));
  char base = 0;
  QX_ASSIGN_OR_RETURN(const TensorView sized, TensorView::contiguous(&base, header.dtype, header.shape));
  const auto available = static_cast<int64_t>(bytes.size() - header.data_offset);
  if (sized.size_bytes() > available) {
    return data_loss("it holds " + std::to_string(available) + " bytes of " + sized.to_string());
  }
  // Copied: the data of a file need not be aligned.
  lite::Tensor tensor;
  QX_ASSIGN_OR_RETURN(tensor.storage, Storage::allocate(std::max<int64_t>(1, sized.size_bytes())));
  std::memcpy(tensor.storage->mutable_data(), bytes.data() + header.data_offset,
              static_cast<size_t>(sized.size_bytes()));
  QX_ASSIGN_OR_RETURN(tensor.view, tensor.storage->view(header.dtype, header.shape));
  return tensor;
}

}  // namespace

Result<lite::Tensor> read_npy(const std::string& path) {
  Result<lite::Tensor> tensor = read(path);
  if (tensor.ok()) return tensor;
  return Status(tensor.status().code(), "'" + path + "': " + tensor.status().message());
}

Status write_npy(const std::string& path, const TensorView& view) {
  const auto* found = std::find_if(kDescriptors.begin(), kDescriptors.end(),
                                   [&](const Descriptor& known) { return known.dtype == view.dtype(); });
  if (found == kDescriptors.end() || !view.is_contiguous()) {
    return unimplemented("'" + path + "': no .npy file of " + view.to_string());
  }
  std::string header = "{'descr': '" + std::string(found->text) + "', 'fortran_order': False, 'shape': (";
  for (const int64_t size : view.shape()) header += std::to_string(size) + ",";
  header += "), }";
  // NumPy aligns the data, and ends the header with a line break.
  header.append(kAlignment - (kMagic.size() + 4 + header.size() + 1) % kAlignment, ' ');
  header += "\n";
  const std::string unfinished = path + ".part";
  {
    std::ofstream file(unfinished, std::ios::binary);
    file << kMagic << '\x01' << '\0' << static_cast<char>(header.size() & 0xff)
         << static_cast<char>(header.size() >> 8);
    file << header;
    file.write(view.data_as<const char>(), view.size_bytes());
    file.flush();
    if (!file) {
      std::remove(unfinished.c_str());
      return unavailable("'" + path + "': cannot be written: " + std::strerror(errno));
    }
  }
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
    return unavailable("'" + path + "': cannot be written: " + std::strerror(errno));
  }
  return ok_status();
}

}  // namespace qx::apps
