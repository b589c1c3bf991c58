// The compiled half of fmt 12, whose headers torch ships without it.
#include <fmt/format-inl.h>

namespace fmt {
inline namespace v12 {

template std::locale locale_ref::get<std::locale>() const;

namespace detail {

template dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);

}  // namespace detail
}  // namespace v12
}  // namespace fmt
