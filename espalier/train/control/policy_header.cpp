#include "espalier/train/control/policy_header.h"

#include <array>

#include "espalier/core/error.h"
#include "espalier/core/size_product.h"
#include "espalier/core/text/metadata_numbers.h"

namespace espalier::train {
namespace {

constexpr const char* kKindKey = "kind";
constexpr const char* kKind = "espalier.policy";
constexpr const char* kRoundsKey = "rounds";
constexpr NumberRange kSizes{1, 1'000'000};
constexpr NumberRange kRounds{0, 1'000'000'000'000'000};

// Each number once: its key, and where it is.
struct Number {
  const char* key;
  int64_t& (*place)(PolicyHeader& header);
};
using Header = PolicyHeader;
constexpr std::array<Number, 6> kNumbers{{
    {"num_slots", [](Header& header) -> int64_t& { return header.space.num_slots; }},
    {"num_blueprints", [](Header& header) -> int64_t& { return header.space.num_blueprints; }},
    {"num_features", [](Header& header) -> int64_t& { return header.num_features; }},
    {"embedding_size", [](Header& header) -> int64_t& { return header.embedding_size; }},
    {"encoder_size", [](Header& header) -> int64_t& { return header.encoder_size; }},
    {"hidden_size", [](Header& header) -> int64_t& { return header.hidden_size; }},
}};

// Values that the network has at least: the LSTM's two products, the encoder's, the embeddings.
int64_t fewest_values(const PolicyHeader& header) {
  const int64_t lstm =
      saturated_product({4, header.hidden_size, saturated_sum(header.encoder_size, header.hidden_size)});
  const int64_t slots = saturated_product({header.space.num_slots, header.embedding_size});
  const int64_t encoder = saturated_product({header.encoder_size, saturated_sum(header.num_features, slots)});
  const int64_t embeddings = saturated_product({header.space.num_blueprints, header.embedding_size});
  return saturated_sum(lstm, saturated_sum(encoder, embeddings));
}

}  // namespace

Metadata metadata_of(const PolicyHeader& header) {
  Metadata metadata{{kKindKey, kKind}};
  PolicyHeader copy = header;
  for (const Number& number : kNumbers) metadata[number.key] = std::to_string(number.place(copy));
  return metadata;
}

PolicyHeader policy_header(const Metadata& metadata, int64_t values, const std::string& file) {
  const auto kind = metadata.find(kKindKey);
  if (kind == metadata.end() || kind->second != kKind)
    fail("'{}': is no policy of ours: its metadata has no kind '{}'", file, kKind);
  PolicyHeader header;
  for (const Number& number : kNumbers)
    number.place(header) = metadata_number(metadata, number.key, kSizes, file);
  if (fewest_values(header) > values)
    fail(
        "'{}': its metadata is of a network of at least {} values (hidden_size {}, encoder_size {}), but its "
        "tensors hold {}; the file is damaged",
        file, fewest_values(header), header.hidden_size, header.encoder_size, values);
  return header;
}

Metadata with_rounds(Metadata metadata, int64_t rounds) {
  metadata[kRoundsKey] = std::to_string(rounds);
  return metadata;
}

int64_t policy_rounds(const Metadata& metadata, const std::string& file) {
  return metadata_number(metadata, kRoundsKey, kRounds, file);
}

}  // namespace espalier::train
