#include "quincunx/apps/text.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iomanip>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "quincunx/graph/qxm.h"
#include "quincunx/lite/generation/generator.h"
#include "quincunx/lite/generation/text_model.h"
#include "quincunx/lite/session.h"

namespace qx::apps {
namespace {

using nlohmann::json;

constexpr double kNsPerMs = 1e6;
constexpr double kNsPerS = 1e9;

Result<std::vector<int32_t>> parse_tokens(const std::string& text) {
  std::vector<int32_t> tokens;
  const char* begin = text.data();
  const char* end = begin + text.size();
  while (true) {
    int32_t token = 0;
    const auto [stop, error] = std::from_chars(begin, end, token);
    if (error != std::errc() || (stop != end && *stop != ',')) {
      return invalid_argument("--prompt-tokens is '" + text + "', expected numbers separated by commas");
    }
    tokens.push_back(token);
    if (stop == end) return tokens;
    begin = stop + 1;
  }
}

Result<lite::GenerateOptions> options_of(const GenerateArguments& arguments) {
  if (arguments.timeout_s < 0.0) {
    return invalid_argument("--timeout is " + std::to_string(arguments.timeout_s) + ", expected 0 or more seconds");
  }
  lite::GenerateOptions options;
  options.sampling = {arguments.temperature, arguments.top_k, arguments.top_p, arguments.seed};
  options.max_tokens = arguments.max_tokens;
  if (arguments.timeout_s != 0.0) {
    QX_ASSIGN_OR_RETURN(options.deadline, lite::deadline_after(arguments.timeout_s));
  }
  return options;
}

// The files of this process's address space.
std::set<std::string> mapped_files() {
  std::set<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (const size_t path = line.find('/'); path != std::string::npos) files.insert(line.substr(path));
  }
  return files;
}

std::string summary(const lite::Generation& generation) {
  const auto count = static_cast<double>(generation.tokens.size());
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << generation.num_prompt_tokens << " prompt tokens in "
       << static_cast<double>(generation.prefill_ns) / kNsPerMs << " ms, " << generation.tokens.size()
       << " new tokens at " << count * kNsPerS / static_cast<double>(std::max<int64_t>(generation.decode_ns, 1))
       << " a second, ended by " << stop_reason_name(generation.stop_reason);
  return text.str();
}

void print_json(const lite::GeneratedText& result, std::ostream& out) {
  const lite::Generation& generation = result.generation;
  const json object = {{"prompt_tokens", generation.num_prompt_tokens},
                       {"tokens", generation.tokens},
                       {"text", result.text},
                       {"stop_reason", stop_reason_name(generation.stop_reason)},
                       {"prefill_ms", static_cast<double>(generation.prefill_ns) / kNsPerMs},
                       {"decode_ms", static_cast<double>(generation.decode_ns) / kNsPerMs},
                       {"mapped_files", mapped_files()}};
  out << object.dump(-1, ' ', false, json::error_handler_t::replace) << "\n";
}

Result<lite::GeneratedText> generate_tokens(const GenerateArguments& arguments, std::ostream& out) {
  QX_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, parse_tokens(arguments.prompt_tokens.value()));
  QX_ASSIGN_OR_RETURN(lite::GenerateOptions options, options_of(arguments));
  QX_ASSIGN_OR_RETURN(graph::Qxm model, graph::open_qxm(arguments.model));
  QX_ASSIGN_OR_RETURN(options.stop_tokens, lite::read_stop_tokens(model.metadata, arguments.model));
  QX_ASSIGN_OR_RETURN(lite::Session session,
                      lite::Session::create(std::move(model.methods), {.num_threads = arguments.num_threads}));
  lite::GeneratedText result;
  const auto show = [&](int32_t token) {
    if (!arguments.json) out << token << " " << std::flush;
    return out.good();
  };
  QX_ASSIGN_OR_RETURN(result.generation, lite::generate(session, prompt, options, show));
  return result;
}

Result<lite::GeneratedText> generate_from_text(const GenerateArguments& arguments, std::ostream& out) {
  QX_ASSIGN_OR_RETURN(const lite::GenerateOptions options, options_of(arguments));
  QX_ASSIGN_OR_RETURN(lite::TextModel model,
                      lite::TextModel::load(arguments.model, {.num_threads = arguments.num_threads}));
  const auto show = [&](std::string_view text) {
    if (!arguments.json) out << text << std::flush;
    return out.good();
  };
  return model.generate(arguments.prompt.value_or(""), options, show);
}

}  // namespace

Status generate_text(const GenerateArguments& arguments, std::ostream& out, std::ostream& log) {
  if (arguments.prompt.has_value() && arguments.prompt_tokens.has_value()) {
    return invalid_argument("--prompt and --prompt-tokens are both given, expected one of them");
  }
  Result<lite::GeneratedText> result =
      arguments.prompt_tokens.has_value() ? generate_tokens(arguments, out) : generate_from_text(arguments, out);
  if (!result.ok()) return result.status();
  if (arguments.json) {
    print_json(*result, out);
  } else {
    out << "\n";
  }
  log << summary(result->generation) << "\n";
  return ok_status();
}

Status embed_texts(const EmbedArguments& arguments, std::ostream& out) {
  QX_ASSIGN_OR_RETURN(lite::TextModel model,
                      lite::TextModel::load(arguments.model, {.num_threads = arguments.num_threads}));
  QX_ASSIGN_OR_RETURN(const lite::Tensor rows, model.embed(arguments.texts));
  const auto* values = rows.view.data_as<float>();
  const int64_t width = rows.view.size(1);
  out << std::setprecision(std::numeric_limits<float>::max_digits10) << "{\"embeddings\": [";
  for (int64_t row = 0; row < rows.view.size(0); ++row) {
    out << (row == 0 ? "[" : ", [");
    for (int64_t column = 0; column < width; ++column) out << (column == 0 ? "" : ", ") << values[row * width + column];
    out << "]";
  }
  out << "]}\n";
  return ok_status();
}

}  // namespace qx::apps
