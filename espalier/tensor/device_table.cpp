#include "espalier/tensor/device_table.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "espalier/core/error.h"

namespace espalier {
namespace {

template <class T>
constexpr at::ScalarType kTypeOf = c10::CppTypeToScalarType<T>::value;

}  // namespace

DeviceTable::DeviceTable(int64_t bytes, at::Device device)
    : host_(at::zeros({bytes}, at::kByte)), device_(device.is_cpu() ? host_ : host_.to(device)) {
  if (device.is_cpu()) return;
  staged_ = at::empty({bytes}, host_.options().pinned_memory(true));
  is_read_.emplace(device.type());
}

int64_t DeviceTable::take(int64_t bytes) {
  const int64_t begin = used_;
  if (begin + bytes > host_.numel())
    fail("device table: want {} bytes more than its {}; this is a bug of who made it",
         begin + bytes - host_.numel(), host_.numel());
  used_ += bytes;
  return begin;
}

template <class T>
DeviceTable::Column<T> DeviceTable::add(int64_t count) {
  const int64_t begin = take(bytes_of<T>(count)), bytes = count * static_cast<int64_t>(sizeof(T));
  return {.host = std::span(reinterpret_cast<T*>(host_.mutable_data_ptr<uint8_t>() + begin),
                            static_cast<size_t>(count)),
          .device = device_.narrow(0, begin, bytes).view(kTypeOf<T>)};
}

template DeviceTable::Column<bool> DeviceTable::add(int64_t);
template DeviceTable::Column<uint8_t> DeviceTable::add(int64_t);
template DeviceTable::Column<int64_t> DeviceTable::add(int64_t);
template DeviceTable::Column<float> DeviceTable::add(int64_t);

void DeviceTable::upload() {
  if (!is_read_) return;
  if (!is_read_->query()) is_read_->synchronize();
  const auto used = [this](const at::Tensor& block) { return block.narrow(0, 0, used_); };
  used(staged_).copy_(used(host_));
  used(device_).copy_(used(staged_), /*non_blocking=*/true);
  is_read_->record(c10::impl::VirtualGuardImpl(device_.device().type()).getStream(device_.device()));
}

}  // namespace espalier
