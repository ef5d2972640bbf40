// Where the time of a call goes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qx::lite {

// Adds up over the calls that it is handed to. base/trace.h draws the same operators on a time line.
class Profile {
 public:
  struct Row {
    std::string name;  // of the operator, or of the node
    std::string op;    // the operator
    int64_t num_calls = 0;
    int64_t total_ns = 0;
  };

  void add(std::string_view node, std::string_view op, int64_t duration_ns);
  void clear() { nodes_.clear(); }

  // In the order of the first call.
  const std::vector<Row>& nodes() const { return nodes_; }
  // Summed by operator, the longest first.
  std::vector<Row> operators() const;
  int64_t total_ns() const;
  // A table of operators(): calls, milliseconds, per cent.
  std::string to_text() const;

 private:
  std::vector<Row> nodes_;
};

}  // namespace qx::lite
