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

Heartbeat::Heartbeat(const c10::intrusive_ptr<c10d::Store>& store, HeartbeatOptions options)
    : options_(std::move(options)),
      interval_(std::min(kLongestInterval, options_.limit / kBeatsInLimit)),
      seen_(static_cast<size_t>(options_.size)),
      silences_(static_cast<size_t>(options_.size)) {
  store_thread_ = std::thread([this] { watch_the_store(); });
  try {
    meet(store);
  } catch (...) {
    stop();
    throw;
  }
  beats_thread_ = std::thread([this] { beat_until_stopped(); });
}

Heartbeat::~Heartbeat() {
  stop();
}

// Waits are counted, not seconds, and short, so that what another rank says is heard.
void Heartbeat::meet(const c10::intrusive_ptr<c10d::Store>& store) {
  std::string fault;
  try {
    store_ = store->clone();
    store_->setTimeout(options_.limit);
    store_->set(name_key(options_.rank), own_name());
    store_->set(beat_key(options_.rank), "0");
    for (int64_t rank = 0, waits = 0; rank < options_.size && fault.empty();) {
      if (has_come(rank)) {
        rank += 1;
      } else if (store_->check({kFault})) {
        fault = store_->get_to_str(kFault);
      } else if (++waits * interval_ >= options_.limit) {
        fault = publish(fmt::format(
            "rank {} did not come within {:.3g} s, though it was connected to the others: it died, "
            "hangs or cannot be reached",
            rank, seconds_of(options_.limit)));
      }
      answers_ += 1;
    }
  } catch (const c10::Error& error) {
    fail("{}", store_is_gone(error));
  }
  if (fault.empty()) return;
  leave(fault);
  tell_that_it_was_read();
  fail("{}", fault);
}

bool Heartbeat::has_come(int64_t rank) {
  try {
    store_->wait({beat_key(rank)}, interval_);
    return true;
  } catch (const c10::DistNetworkError&) {
    throw;
  } catch (const c10::Error&) {  // not yet
    return false;
  }
}

// Whether this call is the one that ends the beats. sentence: why, if not since all is done.
bool Heartbeat::leave(const std::string& sentence) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kBeats) return false;
    phase_ = Phase::kLeaves;
    sentence_ = sentence;
  }
  changed_.notify_all();
  return true;
}

// With its sentence, unless stop() came first.
void Heartbeat::be_over() {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kIsOver) return;
    phase_ = Phase::kIsOver;
  }
  changed_.notify_all();
  if (options_.ended) options_.ended(sentence_);
}

void Heartbeat::stop() {
  {
    const std::lock_guard lock(mutex_);
    phase_ = Phase::kIsOver;
  }
  changed_.notify_all();
  for (std::thread* thread : {&beats_thread_, &store_thread_})
    if (thread->joinable() && thread->get_id() != std::this_thread::get_id()) thread->join();
}

// Whether that phase, or a later one, begins within the time.
bool Heartbeat::is_within(Duration time, Phase phase) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return phase_ >= phase; });
}

std::string Heartbeat::store_is_gone(const std::exception& error) const {
  return fmt::format("{} cannot be reached ({})", options_.store_keeper, first_line(error.what()));
}

void Heartbeat::beat_until_stopped() {
  try {
    do {
      one_beat();
      answers_ += 1;
    } while (!is_within(interval_, Phase::kLeaves));
  } catch (const std::exception& error) {
    if (leave(store_is_gone(error))) be_over();
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
    end(publish(fmt::format(
        "rank {} ({}): a message between ranks failed, though all of them are there: {}; check the "
        "network between their machines (GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name the "
        "interface), and start the same command again, which goes on from the last checkpoint",
        options_.rank, name_of(options_.rank), first_line(error))));
}

// By the clock alone, since the store's own calls may never return. Rounds of this thread are counted: a
// process that was stopped made none. A rank that leaves for a reason of its own says that one.
void Heartbeat::watch_the_store() {
  int64_t last = answers_, silence = 0;
  while (!is_within(interval_, Phase::kIsOver)) {
    const int64_t now = answers_;
    silence = now == last ? silence + 1 : 0;
    last = now;
    // The beats themselves wait for an interval each.
    if (silence * interval_ < options_.limit + interval_) continue;
    {
      const std::lock_guard lock(mutex_);
      if (phase_ == Phase::kIsOver) return;
      if (sentence_.empty())
        sentence_ = fmt::format("{} has not answered for {:.3g} s", options_.store_keeper,
                                seconds_of(options_.limit));
    }
    return be_over();
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

void Heartbeat::end(const std::string& sentence) {
  if (!leave(sentence)) return;
  tell_that_it_was_read();
  be_over();
}

// The sentence of the run, and stays where it is until all have read it.
void Heartbeat::tell_that_it_was_read() {
  try {
    hand_over(kSeen, kBeatsOfDoubt * interval_);
  } catch (const std::exception&) {
    // The store went meanwhile: nobody waits for an answer.
  }
}

// This rank has read, or done, what `key` stands for. The one that keeps the store goes last, so that all
// have.
void Heartbeat::hand_over(const std::string& key, Duration longest) {
  int64_t ranks = store_->add(key, 1);
  for (Duration waited{0}; options_.keeps_store && ranks < options_.size && waited < longest;
       waited += Duration(20)) {
    answers_ += 1;
    std::this_thread::sleep_for(Duration(20));
    ranks = store_->add(key, 0);
  }
}

void Heartbeat::collective_failed(const std::string& error) {
  std::unique_lock lock(mutex_);
  collective_error_ = error.empty() ? "no reason was given" : error;
  changed_.wait(lock, [&] { return phase_ == Phase::kIsOver; });
  fail("{}", sentence_.empty() ? collective_error_ : sentence_);
}

// The last beat may wait for a store that is silent, and so may what comes after it: the store is watched
// until both have returned.
void Heartbeat::finish() {
  leave("");
  if (beats_thread_.joinable()) beats_thread_.join();
  try {
    hand_over(kDone, options_.limit);
  } catch (const c10::Error& error) {
    stop();
    fail("{}", store_is_gone(error));
  }
  stop();
}

bool Heartbeat::tell_failure(const std::string& reason) {
  const std::string sentence = fmt::format("rank {} failed: {}", options_.rank, reason);
  leave(reason);
  if (beats_thread_.joinable()) beats_thread_.join();
  std::string first = sentence;
  try {
    first = publish(sentence);
    tell_that_it_was_read();
  } catch (const std::exception&) {
    // Nobody can be told.
  }
  stop();
  return first == sentence || !first.ends_with(": " + reason);
}

}  // namespace espalier::ranks
