// A store in a directory that all ranks see: one file a key, put there by rename, so that no rank reads half of one.
#pragma once

#include <string>

#include "quincunx/collectives/communicator.h"

namespace qx::collectives {

class FileStore : public Store {
 public:
  // Makes the directory where it is missing.
  static Result<std::shared_ptr<Store>> open(const std::string& directory);

  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::string identity() override;

 private:
  explicit FileStore(std::string directory) : directory_(std::move(directory)) {}
  std::string path_of(const std::string& key) const;
  const std::string directory_;
};

}  // namespace qx::collectives
