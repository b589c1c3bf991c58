#include "espalier/ranks/heartbeat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "espalier/core/error.h"

namespace espalier::ranks {
namespace {

constexpr std::chrono::milliseconds kLongestInterval{1000};
constexpr int64_t kBeatsInLimit = 5;  // at least: one that is late is no fault
// After a collective broke somebody is gone for certain: who has missed so many beats is the one.
constexpr int64_t kBeatsOfDoubt = 4;

constexpr const char* kFault = "espalier/fault";
constexpr const char* kSeen = "espalier/seen";
constexpr const char* kDone = "espalier/done";

std::string beat_key(int64_t rank) {
  return fmt::format("espalier/beat/{}", rank);
}

std::string name_key(int64_t rank) {
  return fmt::format("espalier/name/{}", rank);
}

std::string own_name() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return fmt::format("process {} on {}", getpid(), host.data());
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

double seconds_of(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Heartbeat::Heartbeat(c10::intrusive_ptr<c10d::Store> store, HeartbeatOptions options)
    : store_(std::move(store)),
      options_(std::move(options)),
      interval_(std::min(kLongestInterval, options_.limit / kBeatsInLimit)),
      seen_(static_cast<size_t>(options_.size)),
      silences_(static_cast<size_t>(options_.size)) {
  store_->setTimeout(options_.limit);
  store_->set(name_key(options_.rank), own_name());
  store_->set(beat_key(options_.rank), "0");
  for (int64_t rank = 0; rank < options_.size; ++rank) store_->wait({beat_key(rank)});
  beats_thread_ = std::thread([this] { beat_until_stopped(); });
  store_thread_ = std::thread([this] { watch_the_store(); });
}

Heartbeat::~Heartbeat() {
  stop();
}

void Heartbeat::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_all();
  for (std::thread* thread : {&beats_thread_, &store_thread_})
    if (thread->joinable() && thread->get_id() != std::this_thread::get_id()) thread->join();
}

bool Heartbeat::is_stopped_within(Duration time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return is_stopped_; });
}

void Heartbeat::beat_until_stopped() {
  try {
    do {
      one_beat();
      rounds_ += 1;
    } while (!is_stopped_within(interval_));
  } catch (const std::exception& error) {
    end(fmt::format("{} cannot be reached ({})", options_.store_keeper, first_line(error.what())),
        Store::kIsGone);
  }
}

void Heartbeat::one_beat() {
  beats_ += 1;
  store_->set(beat_key(options_.rank), std::to_string(beats_));
  if (store_->check({kFault})) return end(store_->get_to_str(kFault));
  const int64_t neighbour = (options_.rank + 1) % options_.size;
  std::string beat = store_->get_to_str(beat_key(neighbour));
  neighbour_silence_ = beat == neighbour_beat_ ? neighbour_silence_ + 1 : 0;
  neighbour_beat_ = std::move(beat);
  if (neighbour_silence_ * interval_ >= options_.limit)
    return end(publish(
        missed(neighbour, fmt::format("has not been heard from for {:.3g} s", seconds_of(options_.limit)))));
  look_for_silent_ranks();
}

// Only after a collective failed.
void Heartbeat::look_for_silent_ranks() {
  std::string error;
  {
    const std::lock_guard lock(mutex_);
    error = collective_error_;
  }
  if (error.empty()) return;
  beats_in_doubt_ += 1;
  for (int64_t rank = 0; rank < options_.size; ++rank) {
    if (rank == options_.rank) continue;
    const auto i = static_cast<size_t>(rank);
    std::string beat = store_->get_to_str(beat_key(rank));
    silences_[i] = beat == seen_[i] ? silences_[i] + 1 : 0;
    seen_[i] = std::move(beat);
    if (silences_[i] >= kBeatsOfDoubt)
      return end(publish(missed(rank, "broke its connections and has not been heard from since")));
  }
  if (beats_in_doubt_ * interval_ >= options_.limit)
    end(publish(fmt::format("rank {} ({}): a message between ranks failed, though all of them are there: {}",
                            options_.rank, name_of(options_.rank), first_line(error))));
}

// By the clock alone, since the store's own calls may never return. Rounds of this thread are counted: a
// process that was stopped made none.
void Heartbeat::watch_the_store() {
  int64_t last = rounds_, silence = 0;
  while (!is_stopped_within(interval_)) {
    const int64_t now = rounds_;
    silence = now == last ? silence + 1 : 0;
    last = now;
    // The beats themselves wait for an interval each.
    if (silence * interval_ >= options_.limit + interval_)
      return end(
          fmt::format("{} has not answered for {:.3g} s", options_.store_keeper, seconds_of(options_.limit)),
          Store::kIsGone);
  }
}

std::string Heartbeat::name_of(int64_t rank) {
  return store_->get_to_str(name_key(rank));
}

std::string Heartbeat::missed(int64_t rank, const std::string& how) {
  return fmt::format("rank {} ({}) {}: it died, hangs or cannot be reached", rank, name_of(rank), how);
}

// The first sentence is the run's: whoever comes later gets it back.
std::string Heartbeat::publish(const std::string& sentence) {
  return store_->compareSet(kFault, "", sentence);
}

void Heartbeat::end(const std::string& sentence, Store store) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopped_ || !sentence_.empty()) return;
    sentence_ = sentence;
    is_stopped_ = true;
  }
  changed_.notify_all();
  if (store == Store::kAnswers) try {
      store_->add(kSeen, 1);
      if (options_.keeps_store) wait_for_the_others(kSeen, kBeatsOfDoubt * interval_);
    } catch (const std::exception&) {
      // It went meanwhile: nobody waits for an answer.
    }
  if (options_.ended) options_.ended(sentence);
}

void Heartbeat::collective_failed(const std::string& error) {
  std::unique_lock lock(mutex_);
  collective_error_ = error.empty() ? "no reason was given" : error;
  changed_.wait(lock, [&] { return is_stopped_; });
  fail("{}", sentence_.empty() ? collective_error_ : sentence_);
}

void Heartbeat::wait_for_the_others(const std::string& key, Duration longest) {
  for (Duration waited{0}; waited < longest; waited += Duration(20)) {
    if (store_->add(key, 0) >= options_.size) return;
    std::this_thread::sleep_for(Duration(20));
  }
}

void Heartbeat::finish() {
  stop();
  store_->add(kDone, 1);
  if (options_.keeps_store) wait_for_the_others(kDone, options_.limit);
}

bool Heartbeat::tell_failure(const std::string& reason) {
  stop();
  std::string first;
  try {
    const std::string sentence = fmt::format("rank {} failed: {}", options_.rank, reason);
    first = publish(sentence);
    store_->add(kSeen, 1);
    if (options_.keeps_store) wait_for_the_others(kSeen, kBeatsOfDoubt * interval_);
    if (first == sentence) return true;
  } catch (const std::exception&) {
    return true;  // nobody can be told
  }
  return !first.ends_with(": " + reason);
}

}  // namespace espalier::ranks
