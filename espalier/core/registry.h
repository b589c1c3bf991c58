// Things of one kind by name, in the order in which they were added: hosts, controllers, rewards, sources.
// What comes with the library is added where the registry is made; a program adds its own before it starts a
// job, and flags then offer them too.
//
// Kept true: a name stands for one thing for the life of the process; the views that names() returns never
// dangle.
#pragma once

#include <fmt/ranges.h>

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/text/utf8.h"

namespace espalier {

// Entry: has a member `std::string name`.
template <class Entry>
class Registry {
 public:
  // what: how messages call an entry, "host"; entries: those that come with the library.
  Registry(std::string what, std::vector<Entry> entries) : what_(std::move(what)) {
    for (Entry& entry : entries) add(std::move(entry));
  }
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // Refuses an empty name and one that is taken. Not while a job runs: nothing is locked.
  void add(Entry entry) {
    if (entry.name.empty()) fail_usage("{}: want a name, got none", what_);
    if (find(entry.name) != nullptr)
      fail_usage("{} '{}': the name is taken; choose one besides {}", what_, entry.name,
                 fmt::join(names(), ", "));
    entries_.push_back(std::move(entry));
  }

  // Refuses an unknown name, with the list.
  const Entry& at(std::string_view name) const {
    if (const Entry* const found = find(name)) return *found;
    fail_usage("{}: want one of {}, got '{}'", what_, fmt::join(names(), ", "), on_one_line(name));
  }

  std::vector<std::string_view> names() const {
    std::vector<std::string_view> names;
    for (const Entry& entry : entries_) names.push_back(entry.name);
    return names;
  }

 private:
  const Entry* find(std::string_view name) const {
    for (const Entry& entry : entries_)
      if (entry.name == name) return &entry;
    return nullptr;
  }

  std::string what_;
  std::deque<Entry> entries_;  // stays where it is when more are added
};

}  // namespace espalier
