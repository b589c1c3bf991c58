#include "espalier/run/archive.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "espalier/core/byte_stream.h"
#include "espalier/core/error.h"
#include "espalier/core/text/utf8.h"
#include "espalier/tensor/file.h"

namespace espalier::run {

// A number that JSON has not is written as its bits, in hexadecimal: every NaN comes back as it was.
StateArchive::Json StateArchive::encode(double value) {
  if (std::isfinite(value)) return value;
  return fmt::format("{:016x}", std::bit_cast<uint64_t>(value));
}

void StateArchive::decode(const Json& json, double& value) {
  if (!json.is_string()) {
    value = json.get<double>();
    return;
  }
  const auto& text = json.get_ref<const std::string&>();
  uint64_t bits = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
  if (error != std::errc() || stop != text.data() + text.size() || text.size() != 16)
    throw std::invalid_argument("no bits of a number");
  value = std::bit_cast<double>(bits);
}

StateArchive::Json StateArchive::encode(const std::vector<double>& values) {
  Json json = Json::array();
  for (const double value : values) json.push_back(encode(value));
  return json;
}

void StateArchive::decode(const Json& json, std::vector<double>& values) {
  if (!json.is_array()) throw std::invalid_argument("no list");
  values.assign(json.size(), 0);
  for (size_t i = 0; i < values.size(); ++i) decode(json.at(i), values[i]);
}

std::string StateArchive::lane_name(int64_t lane) const {
  return fmt::format("lane{}", share_ == nullptr ? lane : share_->envs[static_cast<size_t>(lane)]);
}

void StateArchive::pass_over_lanes(const std::vector<int64_t>& envs) {
  std::set<std::string> lanes;
  for (const int64_t env : envs) lanes.insert(fmt::format("lane{}", env));
  const auto pass_over = [&](const std::string& name) {
    if (!name.starts_with(prefix_)) return;
    for (size_t begin = prefix_.size(), end = 0; end != name.npos; begin = end + 1) {
      end = name.find('.', begin);
      if (end != name.npos && lanes.contains(name.substr(begin, end - begin))) {
        taken_.insert(name);
        return;
      }
    }
  };
  for (const TensorEntry& entry : from_->header.tensors) pass_over(entry.name);
  for (const auto& item : values_.items()) pass_over(item.key());
}

bool StateArchive::claim(const std::string& name) {
  const bool is_new = taken_.insert(prefix_ + name).second;
  const bool is_new_here = named_in_share_.insert(prefix_ + name).second;
  if (!is_new && (share_ == nullptr || !is_new_here))
    fail("checkpoint: '{}{}' is named twice; this is a bug", prefix_, name);
  if (share_ == nullptr) alike_.insert(prefix_ + name);
  return is_new;
}

void StateArchive::put_value(const std::string& name, Json value) {
  if (claim(name)) values_[prefix_ + name] = std::move(value);
}

void StateArchive::put_lane_list(const std::string& name, Json values, int64_t /*per_lane*/) {
  claim(name);
  lists_[prefix_ + name].push_back({share_->envs, share_->num_lanes, std::move(values)});
}

StateArchive::Json StateArchive::take_lane_list(const std::string& name, int64_t per_lane) {
  const Json& all = take_value(name);
  if (!all.is_array()) throw std::invalid_argument("no list");
  if (std::ssize(all) != per_lane * share_->num_lanes)
    refuse_length(name, static_cast<size_t>(per_lane * share_->num_lanes), all.size());
  Json own = Json::array();
  for (const int64_t env : share_->envs)
    for (int64_t i = 0; i < per_lane; ++i) own.push_back(all.at(static_cast<size_t>(env * per_lane + i)));
  return own;
}

const StateArchive::Json& StateArchive::take_value(const std::string& name) {
  const auto found = values_.find(prefix_ + name);
  if (found == values_.end())
    fail("checkpoint '{}': has no value '{}{}'", from_->path.string(), prefix_, name);
  taken_.insert(prefix_ + name);
  return *found;
}

void StateArchive::refuse_value(const std::string& name) const {
  fail("checkpoint '{}': value '{}{}' is not of its kind", from_->path.string(), prefix_, name);
}

void StateArchive::refuse_length(const std::string& name, size_t want, size_t got) const {
  fail("checkpoint '{}': value '{}{}': want a list of {}, got one of {}", from_->path.string(), prefix_, name,
       want, got);
}

void StateArchive::put_tensor(const std::string& name, at::Tensor tensor) {
  if (claim(name)) tensors_[prefix_ + name] = {{.tensor = tensor.detach()}};
}

at::Tensor StateArchive::take_tensor(const std::string& name) {
  const auto found = std::ranges::find(from_->header.tensors, prefix_ + name, &TensorEntry::name);
  if (found == from_->header.tensors.end())
    fail("checkpoint '{}': has no tensor '{}{}'", from_->path.string(), prefix_, name);
  taken_.insert(found->name);
  const at::Tensor read = at::empty(found->shape, at::TensorOptions(torch_type(*found)));
  if (found->length_bytes > 0)
    std::memcpy(read.mutable_data_ptr(), from_->bytes_of(*found).data(),
                static_cast<size_t>(found->length_bytes));
  return read;
}

void StateArchive::tensor(const std::string& name, const at::Tensor& live) {
  if (!is_loading()) return put_tensor(name, live);
  const at::Tensor read = take_tensor(name);
  if (read.sizes() != live.sizes() || read.scalar_type() != live.scalar_type())
    fail("checkpoint '{}': tensor '{}{}': want {} {}, got {} {}", from_->path.string(), prefix_, name,
         c10::str(live.sizes()), c10::toString(live.scalar_type()), c10::str(read.sizes()),
         c10::toString(read.scalar_type()));
  const c10::NoGradGuard no_grad;
  live.detach().copy_(read);
}

void StateArchive::refuse_lanes(const std::string& name, const at::Tensor& read,
                                const at::Tensor& live) const {
  fail("checkpoint '{}': tensor '{}{}': want {} lanes of {} {}, got {} {}", from_->path.string(), prefix_,
       name, share_->num_lanes, c10::str(live.sizes()), c10::toString(live.scalar_type()),
       c10::str(read.sizes()), c10::toString(read.scalar_type()));
}

void StateArchive::lane_tensor(const std::string& name, const at::Tensor& live, int64_t axis) {
  if (share_ == nullptr) return tensor(name, live);
  if (!is_loading()) {
    claim(name);
    tensors_[prefix_ + name].push_back({share_->envs, share_->num_lanes, axis, live.detach()});
    return;
  }
  const at::Tensor read = take_tensor(name);
  std::vector<int64_t> wanted = live.sizes().vec();
  wanted[static_cast<size_t>(axis)] = share_->num_lanes;
  if (read.sizes() != at::IntArrayRef(wanted) || read.scalar_type() != live.scalar_type())
    refuse_lanes(name, read, live);
  const c10::NoGradGuard no_grad;
  live.detach().copy_(read.index_select(axis, at::tensor(share_->envs, at::kLong)));
}

void StateArchive::stack(const std::string& name, const std::vector<at::Tensor>& live) {
  if (share_ != nullptr && !is_loading()) return lane_tensor(name, at::stack(live));
  if (!is_loading()) return put_tensor(name, at::stack(live));
  at::Tensor read = take_tensor(name);
  if (share_ != nullptr) {
    if (read.dim() == 0 || read.size(0) != share_->num_lanes) refuse_lanes(name, read, live.front());
    read = read.index_select(0, at::tensor(share_->envs, at::kLong));
  }
  if (read.dim() == 0 || read.size(0) != std::ssize(live))
    fail("checkpoint '{}': tensor '{}{}': want {} of them, got shape {}", from_->path.string(), prefix_, name,
         live.size(), c10::str(read.sizes()));
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < live.size(); ++i) {
    const at::Tensor own = read.select(0, static_cast<int64_t>(i));
    if (own.sizes() != live[i].sizes())
      fail("checkpoint '{}': tensor '{}{}': want {} of {}, got shape {}", from_->path.string(), prefix_, name,
           live.size(), c10::str(live[i].sizes()), c10::str(read.sizes()));
    live[i].detach().copy_(own);
  }
}

void StateArchive::any_tensor(const std::string& name, at::Tensor& live, at::Device device) {
  if (!is_loading()) return put_tensor(name, live);
  live = take_tensor(name).to(device);
}

at::Tensor StateArchive::whole(const std::vector<TensorPart>& parts) {
  const TensorPart& first = parts.front();
  if (first.envs.empty()) return first.tensor;
  std::vector<int64_t> sizes = first.tensor.sizes().vec();
  sizes[static_cast<size_t>(first.axis)] = first.num_lanes;
  const c10::NoGradGuard no_grad;
  const at::Tensor all = at::zeros(sizes, first.tensor.options());
  for (const TensorPart& part : parts)
    all.index_copy_(part.axis, at::tensor(part.envs, at::kLong).to(all.device()),
                    part.tensor.to(all.device()).contiguous());
  return all;
}

StateArchive::Json StateArchive::whole(const std::vector<ListPart>& parts) {
  const ListPart& first = parts.front();
  const size_t per_lane = first.values.size() / std::max<size_t>(first.envs.size(), 1);
  Json all = Json::array();
  for (size_t i = 0; i < per_lane * static_cast<size_t>(first.num_lanes); ++i) all.push_back(nullptr);
  for (const ListPart& part : parts)
    for (size_t lane = 0; lane < part.envs.size(); ++lane)
      for (size_t i = 0; i < per_lane; ++i)
        all[static_cast<size_t>(part.envs[lane]) * per_lane + i] = part.values[lane * per_lane + i];
  return all;
}

std::vector<std::pair<std::string, at::Tensor>> StateArchive::tensors() const {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const auto& [name, parts] : tensors_) all.emplace_back(name, whole(parts));
  return all;
}

StateArchive::Json StateArchive::values() const {
  std::map<std::string, Json> sorted;
  for (const auto& item : values_.items()) sorted[item.key()] = item.value();
  for (const auto& [name, parts] : lists_) sorted[name] = whole(parts);
  Json all = Json::object();
  for (auto& [name, value] : sorted) all[name] = std::move(value);
  return all;
}

namespace {

// A tensor in the order of its axes, as the bytes that follow what is said of it.
template <class Stream>
void visit_tensor(Stream& stream, at::Tensor& tensor) {
  if constexpr (Stream::kReads) {
    std::vector<int64_t> sizes;
    int8_t type = 0;
    std::vector<std::byte> bytes;
    stream.list(sizes);
    stream.plain(type);
    stream.list(bytes);
    tensor = at::empty(sizes, static_cast<at::ScalarType>(type));
    if (bytes.size() != tensor.nbytes())
      fail("a message between ranks is damaged: a tensor of {} bytes has {}", tensor.nbytes(), bytes.size());
    if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  } else {
    const at::Tensor here = tensor.cpu().contiguous();
    stream.list(here.sizes().vec());
    stream.plain(static_cast<int8_t>(here.scalar_type()));
    const auto* const data = static_cast<const std::byte*>(here.const_data_ptr());
    stream.list(std::vector<std::byte>(data, data + here.nbytes()));
  }
}

}  // namespace

void StateArchive::gather(ranks::World& world) {
  if (world.is_alone()) return;
  const auto visit_parts = [](auto& stream, std::string& name, TensorPart& part) {
    stream.text(name);
    stream.list(part.envs);
    stream.plain(part.num_lanes);
    stream.plain(part.axis);
    visit_tensor(stream, part.tensor);
  };
  ByteWriter writer;
  if (!world.leads()) {
    Json told{{"values", Json::object()}, {"lists", Json::array()}};
    for (const auto& item : values_.items())
      if (!alike_.contains(item.key())) told["values"][item.key()] = item.value();
    for (const auto& [name, parts] : lists_)
      for (const ListPart& part : parts)
        told["lists"].push_back({{"name", name}, {"envs", part.envs}, {"values", part.values}});
    writer.text(told.dump());
    uint64_t count = 0;
    std::erase_if(tensors_, [&](const auto& named) { return alike_.contains(named.first); });
    for (const auto& [name, parts] : tensors_) count += parts.size();
    writer.plain(count);
    for (auto& [name, parts] : tensors_)
      for (TensorPart& part : parts) {
        std::string own = name;
        visit_parts(writer, own, part);
      }
  }
  const std::vector<ranks::Bytes> messages = world.gather(std::span<const std::byte>(writer.bytes()));
  for (size_t rank = 1; rank < messages.size(); ++rank) {
    ByteReader reader(messages[rank]);
    std::string text;
    reader.text(text);
    const Json told = Json::parse(text);
    for (const auto& item : told.at("values").items())
      if (!values_.contains(item.key())) values_[item.key()] = item.value();
    for (const Json& list : told.at("lists")) {
      std::vector<ListPart>& parts = lists_[list.at("name").get<std::string>()];
      parts.push_back(
          {list.at("envs").get<std::vector<int64_t>>(), parts.front().num_lanes, list.at("values")});
    }
    uint64_t count = 0;
    reader.plain(count);
    for (; count > 0; --count) {
      std::string name;
      TensorPart part;
      visit_parts(reader, name, part);
      const auto known = tensors_.find(name);
      if (known == tensors_.end())
        tensors_[name] = {std::move(part)};
      else if (!part.envs.empty())
        known->second.push_back(std::move(part));
    }
  }
}

void StateArchive::check_all_taken() const {
  for (const TensorEntry& entry : from_->header.tensors)
    if (!taken_.contains(entry.name))
      fail("checkpoint '{}': tensor {} is none of this job's", from_->path.string(), in_quotes(entry.name));
  for (const auto& item : values_.items())
    if (!taken_.contains(item.key()))
      fail("checkpoint '{}': value {} is none of this job's", from_->path.string(), in_quotes(item.key()));
}

}  // namespace espalier::run
