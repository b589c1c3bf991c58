// One resident dataset per process, whoever asks: loaded at most once for each (source with its options,
// splits, device, stored type, layout, residency), however many threads ask, and shared by any number of
// iterators.
//
// Emptied before the process ends, ahead of CUDA's own teardown: no tensor outlives its device.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "espalier/data/resident.h"
#include "espalier/data/sources/source.h"

namespace espalier::data {

struct DatasetKey {
  std::string source;  // canonical_source(): two data roots never share an entry, two spellings of one do
  std::string device;  // DeviceName::text(): cuda and cuda:0 are one
  std::string splits;  // what is set aside for validation, and by which seed
  std::string stored;  // type, layout, residency
  int version = 1;     // raised when what an entry holds changes

  auto operator<=>(const DatasetKey&) const = default;
};

DatasetKey dataset_key(const SourceConfig& source, const ResidentConfig& resident, const DeviceName& device);

class DatasetCache {
 public:
  using Entry = std::shared_ptr<const ResidentDataset>;
  using Loader = std::function<Entry()>;

  static DatasetCache& instance();

  // The entry of that key, loaded if it is not there. A load that fails leaves no entry;
  // all who waited for it get its exception.
  Entry ensure(const SourceConfig& source, const ResidentConfig& resident, const DeviceName& device,
               const Progress& progress = {});
  Entry ensure(const DatasetKey& key, const Loader& load);

  // Drops the entries that match all that is given, and says how many. Those in use live on with their users.
  struct Filter {
    std::optional<std::string> source;
    std::optional<std::string> device;
  };
  int64_t clear(const Filter& filter = {});

 private:
  DatasetCache() = default;

  std::mutex mutex_;
  std::map<DatasetKey, std::shared_future<Entry>> entries_;
};

}  // namespace espalier::data
