#include "quincunx/apps/python_verb.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace qx::apps {

Result<std::string> find_python() {
  if (const char* chosen = std::getenv("QX_PYTHON"); chosen != nullptr && *chosen != '\0') {
    if (access(chosen, X_OK) != 0) {
      return not_found("QX_PYTHON is '" + std::string(chosen) +
                       "', expected the path of a Python interpreter: " + std::strerror(errno));
    }
    return std::string(chosen);
  }
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return not_found("cannot read /proc/self/exe (" + error.message() + "); set QX_PYTHON to an interpreter");
  const std::filesystem::path beside = program.parent_path() / "python3";
  if (access(beside.c_str(), X_OK) != 0) {
    return not_found("there is no Python interpreter beside this program (" + beside.string() +
                     "); install the package with `pip install .`, or set QX_PYTHON to an interpreter that has it");
  }
  return beside.string();
}

Status run_python_verb(const std::string& verb, const std::vector<std::string>& arguments) {
  QX_ASSIGN_OR_RETURN(std::string python, find_python());
  std::vector<std::string> words = {python, "-m", "quincunx.cli", verb};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(python.c_str(), argv.data());
  return not_found("cannot start " + python + ": " + std::strerror(errno));
}

}  // namespace qx::apps
