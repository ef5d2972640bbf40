// Meshes that a forked child must let go of: it would otherwise hold its parent's connections open, and the peers would
// not notice when the parent dies.
#pragma once

namespace qx::collectives {

class Mesh;
void register_for_fork(Mesh* mesh);
void unregister_for_fork(Mesh* mesh);

}  // namespace qx::collectives
