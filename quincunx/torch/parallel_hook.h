// Inside PyTorch the core's loops run on PyTorch's intra-op threads: one pool a process, sized by
// torch.set_num_threads.
#pragma once

namespace qx::torch_bridge {

// Makes PyTorch's pool the backend of qx::parallel_for for the rest of the process.
void install_parallel_hook();

}  // namespace qx::torch_bridge
