// Bodies of store messages as a stranger might send them: parsed without a crash, and what is a message is one again.
#include <cstdlib>

#include "quincunx/collectives/store/store_message.h"
#include "quincunx/collectives/store/store_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace qx::collectives;
  const auto bytes = std::as_bytes(std::span(data, size));
  static_cast<void>(store_body_bytes(bytes));
  static_cast<void>(decode_store_response(bytes));
  const auto request = decode_store_request(bytes);
  if (!request.ok()) return 0;
  if (!encode(*request).ok()) std::abort();
  StoreTable table;
  static_cast<void>(table.apply(*request));
  static_cast<void>(table.apply(*request));
  return 0;
}
