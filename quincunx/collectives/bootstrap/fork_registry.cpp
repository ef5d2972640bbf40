#include "quincunx/collectives/bootstrap/fork_registry.h"

#include <pthread.h>

#include <mutex>
#include <set>

#include "quincunx/collectives/bootstrap/mesh.h"

namespace qx::collectives {
namespace {

struct Registry {
  std::mutex mutex;
  std::set<Mesh*> meshes;
};

Registry& registry() {
  // Never destroyed: threads and forks may come after static destructors.
  static auto* instance = [] {
    pthread_atfork(
        [] {
          registry().mutex.lock();
          for (Mesh* mesh : registry().meshes) mesh->hold_for_fork();
        },
        [] {
          for (Mesh* mesh : registry().meshes) mesh->release_after_fork();
          registry().mutex.unlock();
        },
        [] {
          for (Mesh* mesh : registry().meshes) mesh->abandon_in_child();
          registry().meshes.clear();
          registry().mutex.unlock();
        });
    return new Registry;
  }();
  return *instance;
}

}  // namespace

void register_for_fork(Mesh* mesh) {
  const std::lock_guard lock(registry().mutex);
  registry().meshes.insert(mesh);
}

void unregister_for_fork(Mesh* mesh) {
  const std::lock_guard lock(registry().mutex);
  registry().meshes.erase(mesh);
}

}  // namespace qx::collectives
