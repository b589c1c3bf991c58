#include "espalier/train/population/lane_messages.h"

#include <mutex>
#include <set>
#include <string>

#include "espalier/core/byte_stream.h"

namespace espalier::train {
namespace {

// Names of checks are literals where they are made: kept for good where they are read.
const char* kept(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

template <class Stream>
void visit(Stream& stream, grow::GateReport& report) {
  auto& [gate, checks] = report;
  stream.plain(gate);
  stream.each(checks, [&](grow::GateCheck& check) {
    auto& [name, passed, detail] = check;
    std::string text = name == nullptr ? "" : name;
    stream.text(text);
    name = kept(text);
    stream.plain(passed);
    stream.text(detail);
  });
}

template <class Stream>
void visit(Stream& stream, LaneMetrics& metrics) {
  auto& [loss, accuracy, gradient_norm, largest_norm, non_finite, skipped, loss_scale, slots] = metrics;
  stream.plain(loss);
  stream.plain(accuracy);
  stream.plain(gradient_norm);
  stream.plain(largest_norm);
  stream.plain(non_finite);
  stream.plain(skipped);
  stream.plain(loss_scale);
  stream.list(slots);
}

template <class Stream>
void visit(Stream& stream, SlotReport& slot) {
  auto& [state, measured] = slot;
  auto& [finite, gradient_norm, gradient_ratio, improvement_points, contribution_points] = measured;
  stream.plain(state);
  stream.plain(finite);
  stream.maybe(gradient_norm);
  stream.maybe(gradient_ratio);
  stream.maybe(improvement_points);
  stream.maybe(contribution_points);
}

template <class Stream>
void visit(Stream& stream, LaneRecord& record) {
  auto& [lane, outcome, verdict, trained, validated, last_validated, good_accuracy, rate_factor,
         num_rollbacks, blamed, compared_anew, num_parameters, slots, action, gate, reward] = record;
  auto& [terms, counts] = reward;
  stream.plain(lane);
  stream.plain(outcome);
  stream.plain(verdict);
  visit(stream, trained);
  stream.plain(validated);
  stream.plain(last_validated);
  stream.plain(good_accuracy);
  stream.plain(rate_factor);
  stream.plain(num_rollbacks);
  stream.list(blamed);
  stream.plain(compared_anew);
  stream.plain(num_parameters);
  stream.each(slots, [&](SlotReport& slot) { visit(stream, slot); });
  stream.plain(action);
  visit(stream, gate);
  stream.list(terms);
  stream.plain(counts);
}

template <class Stream>
void visit(Stream& stream, LaneReport& report) {
  auto& [lane, epoch, num_epochs, train_loss, train_accuracy, is_validated, validation_loss,
         validation_accuracy, accuracies, host_gradient_norm, slots, carried] = report;
  stream.plain(lane);
  stream.plain(epoch);
  stream.plain(num_epochs);
  stream.plain(train_loss);
  stream.plain(train_accuracy);
  stream.plain(is_validated);
  stream.plain(validation_loss);
  stream.plain(validation_accuracy);
  stream.list(accuracies);
  stream.plain(host_gradient_norm);
  stream.each(slots, [&](SlotReport& slot) { visit(stream, slot); });
  stream.list(carried);
}

template <class Stream>
void visit(Stream& stream, std::vector<LaneMessage>& messages) {
  stream.each(messages, [&](LaneMessage& message) {
    auto& [env, states, added_parameters, num_batches, is_retired, sums] = message.entry;
    stream.plain(env);
    stream.list(states);
    stream.plain(added_parameters);
    stream.plain(num_batches);
    stream.plain(is_retired);
    stream.list(sums);
    visit(stream, message.record);
    bool has_report = message.report.has_value();
    stream.plain(has_report);
    if (!has_report) return;
    if (!message.report) message.report.emplace();
    visit(stream, *message.report);
  });
}

template <class Stream>
void visit(Stream& stream, std::vector<GateMessage>& messages) {
  stream.each(messages, [&](GateMessage& message) {
    stream.plain(message.lane);
    visit(stream, message.gate);
  });
}

template <class Messages>
std::vector<std::byte> encoded(Messages& messages) {
  ByteWriter writer;
  visit(writer, messages);
  return writer.bytes();
}

template <class Messages>
Messages decoded(std::span<const std::byte> bytes) {
  Messages messages;
  if (bytes.empty()) return messages;
  ByteReader reader(bytes);
  visit(reader, messages);
  if (!reader.is_at_end()) fail("a message between ranks is too long by {} bytes", reader.rest().size());
  return messages;
}

}  // namespace

std::vector<std::byte> encode(std::vector<LaneMessage> messages) {
  return encoded(messages);
}

std::vector<std::byte> encode(std::vector<GateMessage> messages) {
  return encoded(messages);
}

std::vector<LaneMessage> lane_messages_in(std::span<const std::byte> bytes) {
  return decoded<std::vector<LaneMessage>>(bytes);
}

std::vector<GateMessage> gate_messages_in(std::span<const std::byte> bytes) {
  return decoded<std::vector<GateMessage>>(bytes);
}

}  // namespace espalier::train
