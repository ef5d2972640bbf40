#include "quincunx/lite/generation/tokenizers/split.h"

namespace qx::lite {
namespace {

struct Part {
  unicode::Span span;
  bool is_match = false;
};

std::vector<Part> parts_of(const std::vector<unicode::Span>& matches, size_t size) {
  std::vector<Part> parts;
  size_t position = 0;
  for (const unicode::Span& match : matches) {
    if (match.begin > position) parts.push_back({{position, match.begin}, false});
    parts.push_back({match, true});
    position = match.end;
  }
  if (position < size) parts.push_back({{position, size}, false});
  return parts;
}

bool joins_previous(const std::vector<Part>& parts, size_t index, SplitBehavior behavior) {
  if (index == 0) return false;
  const bool before = parts[index - 1].is_match;
  const bool here = parts[index].is_match;
  switch (behavior) {
    case SplitBehavior::kMergedWithPrevious: return here && !before;
    case SplitBehavior::kMergedWithNext: return before && !here;
    case SplitBehavior::kContiguous: return before && here;
    default: return false;
  }
}

}  // namespace

Result<SplitBehavior> parse_split_behavior(const JsonObject& object) {
  QX_ASSIGN_OR_RETURN(const std::string name, object.text("behavior"));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return object.wrong("behavior", name, "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

std::vector<Piece> split(const Piece& piece, const std::vector<unicode::Span>& matches, SplitBehavior behavior,
                         bool invert) {
  std::vector<Part> parts = parts_of(matches, piece.text.size());
  for (Part& part : parts) part.is_match = part.is_match != invert;
  std::vector<Piece> pieces;
  for (size_t index = 0; index < parts.size(); ++index) {
    const Part& part = parts[index];
    if (part.is_match && behavior == SplitBehavior::kRemoved) continue;
    const std::string text = piece.text.substr(part.span.begin, part.span.end - part.span.begin);
    if (joins_previous(parts, index, behavior)) {
      pieces.back().text += text;
    } else {
      pieces.push_back({text, piece.first && part.span.begin == 0});
    }
  }
  return pieces;
}

}  // namespace qx::lite
