// In which order the instructions of a program run over a tile, and which of its registers each writes.
#pragma once

#include <cstdint>
#include <vector>

#include "quincunx/tile/program.h"

namespace qx::tile {

struct Step {
  int32_t instruction = 0;
  // The register of its result; -1 for a store.
  int32_t slot = -1;
};

struct Schedule {
  // Each pass is run over all pieces of a row before the next one begins.
  std::vector<std::vector<Step>> passes;
  int32_t num_slots = 0;
};

// One pass: for tiles that hold whole rows, where a reduction is known as soon as it has run, and for programs without
// reductions.
Schedule schedule_at_once(const Program& program);

// As many passes as reductions build on one another, and one more: each computes the reductions of its level and what
// they need anew, the last one the stores. For rows that no tile holds. Registers of reductions outlive their pass.
Schedule schedule_by_passes(const Program& program);

// Whether the instruction gives back its operand: a cast that changes nothing about how the value is held.
bool is_alias(const Program& program, const Instruction& instruction);

// The instruction whose register `number` reads, behind casts that are aliases.
int32_t origin_of(const Program& program, int32_t number);

}  // namespace qx::tile
