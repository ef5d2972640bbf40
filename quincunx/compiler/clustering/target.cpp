#include "quincunx/compiler/clustering/target.h"

#include <map>
#include <mutex>

namespace qx::compiler {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const Target>, std::less<>> targets;
};

Registry& registry() {
  static Registry& instance = *[] {
    auto* created = new Registry;
    for (auto& target : {createLlvmTarget(), createTileTarget()}) created->targets.emplace(target->name(), target);
    return created;
  }();
  return instance;
}

}  // namespace

void registerTarget(std::shared_ptr<const Target> target) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const std::string name(target->name());
  all.targets[name] = std::move(target);
}

Result<std::shared_ptr<const Target>> findTarget(std::string_view name) {
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    const auto found = all.targets.find(name);
    if (found != all.targets.end()) return found->second;
  }
  std::string names;
  for (const std::string& known : targetNames()) names += (names.empty() ? "" : ", ") + known;
  return invalid_argument("target is \"" + std::string(name) + "\", expected one of: " + names);
}

std::vector<std::string> targetNames() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& [name, target] : all.targets) names.push_back(name);
  return names;
}

}  // namespace qx::compiler
