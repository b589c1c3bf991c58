#include "espalier/data/cache.h"

#include <fmt/format.h>

#include <cstdlib>

#include "espalier/tensor/device.h"

namespace espalier::data {

DatasetKey dataset_key(const SourceConfig& source, const ResidentConfig& resident, const DeviceName& device) {
  return {
      .source = canonical_source(source),
      .device = device.text(),
      .splits =
          fmt::format("train, validation={} seed={}, test", resident.validation, resident.validation_seed),
      .stored = fmt::format("{} {} {}", static_cast<int>(resident.store),
                            static_cast<int>(resident.memory_format), static_cast<int>(resident.residency))};
}

DatasetCache& DatasetCache::instance() {
  // Never destroyed as an object: entries go at exit, and a late caller still finds a cache.
  static auto* cache = new DatasetCache;
  return *cache;
}

DatasetCache::Entry DatasetCache::ensure(const SourceConfig& source, const ResidentConfig& resident,
                                         const DeviceName& device, const Progress& progress) {
  return ensure(dataset_key(source, resident, device), [&] {
    const c10::Device place = torch_device(device);
    return make_resident(load_source(source, progress), resident, place, progress);
  });
}

DatasetCache::Entry DatasetCache::ensure(const DatasetKey& key, const Loader& load) {
  std::promise<Entry> promise;
  std::shared_future<Entry> mine;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found != entries_.end()) {
      mine = found->second;
    } else {
      entries_[key] = promise.get_future().share();
    }
  }
  if (mine.valid()) return mine.get();
  try {
    Entry entry = load();
    // Registered after the load started CUDA, so that it runs before CUDA's own exit handler.
    static const int registered = std::atexit([] { DatasetCache::instance().clear(); });
    (void)registered;
    promise.set_value(entry);
    return entry;
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      entries_.erase(key);
    }
    promise.set_exception(std::current_exception());
    throw;
  }
}

int64_t DatasetCache::clear(const Filter& filter) {
  std::map<DatasetKey, std::shared_future<Entry>> dropped;  // destroyed after the lock is given back
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const bool matches = (!filter.source || *filter.source == entry->first.source) &&
                         (!filter.device || *filter.device == entry->first.device);
    auto next = std::next(entry);
    if (matches) dropped.insert(entries_.extract(entry));
    entry = next;
  }
  return static_cast<int64_t>(dropped.size());
}

}  // namespace espalier::data
