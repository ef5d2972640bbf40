// Any text as a tile program: an error, or a program that verifies and whose text reads back as the same program.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "quincunx/base/check.h"
#include "quincunx/tile/program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto program = qx::tile::parse({reinterpret_cast<const char*>(data), size});
  if (!program.ok()) {
    QX_CHECK(!program.status().message().empty());
    return 0;
  }
  QX_CHECK(qx::tile::verify(*program).ok());
  const auto again = qx::tile::parse(qx::tile::to_text(*program));
  QX_CHECK(again.ok());
  QX_CHECK(qx::tile::to_text(*again) == qx::tile::to_text(*program));
  QX_CHECK(qx::tile::levels(*program).size() == program->code.size());
  return 0;
}
