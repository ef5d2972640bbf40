#include "quincunx/lite/profile.h"

#include <algorithm>
#include <cstdio>

namespace qx::lite {

void Profile::add(std::string_view node, std::string_view op, int64_t duration_ns) {
  auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const Row& row) { return row.name == node; });
  if (found == nodes_.end()) found = nodes_.insert(nodes_.end(), {std::string(node), std::string(op), 0, 0});
  ++found->num_calls;
  found->total_ns += duration_ns;
}

std::vector<Profile::Row> Profile::operators() const {
  std::vector<Row> rows;
  for (const Row& node : nodes_) {
    auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.op == node.op; });
    if (found == rows.end()) found = rows.insert(rows.end(), {node.op, node.op, 0, 0});
    found->num_calls += node.num_calls;
    found->total_ns += node.total_ns;
  }
  std::sort(rows.begin(), rows.end(), [](const Row& left, const Row& right) {
    return left.total_ns != right.total_ns ? left.total_ns > right.total_ns : left.op < right.op;
  });
  return rows;
}

int64_t Profile::total_ns() const {
  int64_t total = 0;
  for (const Row& node : nodes_) total += node.total_ns;
  return total;
}

std::string Profile::to_text() const {
  constexpr double kNanosecondsPerMillisecond = 1e6;
  const double total = static_cast<double>(std::max<int64_t>(1, total_ns()));
  std::string text = "     calls          ms      %  operator\n";
  for (const Row& row : operators()) {
    char line[64];
    const auto time = static_cast<double>(row.total_ns);
    std::snprintf(line, sizeof(line), "%10lld %11.3f %6.1f  ", static_cast<long long>(row.num_calls),
                  time / kNanosecondsPerMillisecond, 100 * time / total);
    text += line + row.op + "\n";
  }
  return text;
}

}  // namespace qx::lite
