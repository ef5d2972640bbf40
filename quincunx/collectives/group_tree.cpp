// The part of Group that gathers calls up the tree of a large group and brings the verdict down.
#include <algorithm>

#include "quincunx/collectives/group.h"

namespace qx::collectives {
namespace {

// Of a text that comes in several frames.
constexpr size_t kPieceBytes = 64 << 10;

}  // namespace

bool Group::is_neighbour(int rank) const {
  return rank == tree_parent(rank_) || std::find(children_.begin(), children_.end(), rank) != children_.end();
}

void Group::post_long(int rank, FrameHeader header, std::span<const std::byte> text) {
  header.group = id_;
  header.sequence = current_sequence_;
  header.count = static_cast<int64_t>(text.size());
  do {
    const size_t size = std::min(text.size(), kPieceBytes);
    engine_.post(world_rank(rank), header, text.first(size));
    text = text.subspan(size);
  } while (!text.empty());
}

Status Group::take_piece(const FrameHeader& header, std::span<const std::byte> payload, LongText& text) {
  const auto size = static_cast<int64_t>(text.bytes.size() + payload.size());
  if (text.is_complete || size > header.count || header.count > kMaxGatheredBytes) {
    return data_loss("a text of " + std::to_string(header.count) + " bytes that is too long or comes twice");
  }
  text.bytes.insert(text.bytes.end(), payload.begin(), payload.end());
  text.is_complete = size == header.count;
  return ok_status();
}

void Group::climb() {
  const size_t turn = current_sequence_ % 2;
  const auto is_there = [&](const auto& texts) { return texts[turn].is_complete; };
  if (!announced_ || climbed_ || !std::all_of(below_.begin(), below_.end(), is_there)) return;
  climbed_ = true;
  std::vector<GatheredCall> calls;
  calls.push_back({entry(rank_, current_sequence_).call, queue_.front().exchange->input_for_tree()});
  for (size_t c = 0; c < children_.size(); ++c) {
    auto below = decode_calls(below_[c][turn].bytes, tree_end(children_[c], size()) - children_[c]);
    if (!below.ok()) return fail(below.status(), true);
    std::move(below->begin(), below->end(), std::back_inserter(calls));
  }
  if (rank_ == 0) return judge(calls);
  FrameHeader header;
  header.kind = FrameKind::kCalls;
  std::vector<std::byte> text;
  encode_calls(calls, text);
  post_long(tree_parent(rank_), header, text);
  engine_.flush();
}

Status Group::on_calls(int rank, const FrameHeader& header, std::span<const std::byte> payload) {
  const auto child = std::find(children_.begin(), children_.end(), rank);
  if (child == children_.end()) return data_loss("gathered calls from a rank that is not below this one");
  QX_RETURN_IF_ERROR(check_sequence(header));
  LongText& text = below_[static_cast<size_t>(child - children_.begin())][header.sequence % 2];
  QX_RETURN_IF_ERROR(take_piece(header, payload, text));
  if (text.is_complete && announced_ && header.sequence == current_sequence_) climb();
  return ok_status();
}

void Group::judge(std::span<const GatheredCall> calls) {
  std::vector<const Call*> compared;
  for (const GatheredCall& each : calls) compared.push_back(&each.call);
  const Status verdict = compare_calls(compared);
  if (!verdict.ok()) {
    send_verdict(verdict.code(), false, verdict.message(), nullptr);
    return finish({verdict.code(), queue_.front().operation->label() + ": " + verdict.message()});
  }
  const TreeResult result = compute_in_tree(calls);
  send_verdict(StatusCode::kOk, result.is_complete, {}, &result);
  take_verdict(result);
}

void Group::send_verdict(StatusCode code, bool with_results, std::string_view text, const TreeResult* result) {
  FrameHeader header;
  header.kind = FrameKind::kVerdict;
  header.status_code = static_cast<uint8_t>(code);
  header.stream = with_results ? 1 : 0;
  // The largest part of the tree first: it takes longest.
  for (auto child = children_.rbegin(); child != children_.rend(); ++child) {
    if (with_results)
      post_long(*child, header, encode_result(*result, *child, tree_end(*child, size())));
    else
      post_long(*child, header, std::as_bytes(std::span(text.data(), text.size())));
  }
  engine_.flush();
}

void Group::take_verdict(const TreeResult& result) {
  if (!result.is_complete) return begin({});
  const Status status = queue_.front().exchange->take_result(result);
  if (!status.ok()) return fail(status, true);
  finish(ok_status());
}

Status Group::on_verdict(int rank, const FrameHeader& header, std::span<const std::byte> payload) {
  if (rank != tree_parent(rank_) || !climbed_ || begun_ || header.sequence != current_sequence_) {
    return data_loss("a verdict that this rank does not wait for");
  }
  QX_RETURN_IF_ERROR(take_piece(header, payload, verdict_));
  if (!verdict_.is_complete) return ok_status();
  const auto code = static_cast<StatusCode>(header.status_code);
  if (code != StatusCode::kOk) {
    const std::string text(reinterpret_cast<const char*>(verdict_.bytes.data()), verdict_.bytes.size());
    send_verdict(code, false, text, nullptr);
    finish({code, queue_.front().operation->label() + ": " + text});
    return ok_status();
  }
  TreeResult result;
  if (header.stream == 1) {
    QX_ASSIGN_OR_RETURN(result, decode_result(verdict_.bytes, rank_, tree_end(rank_, size())));
  }
  send_verdict(code, result.is_complete, {}, &result);
  take_verdict(result);
  return ok_status();
}

}  // namespace qx::collectives
