#include "espalier/data/sources/images/decode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string_view>

// After <cstdio>: jpeglib.h uses FILE and size_t without declaring them.
#include <jpeglib.h>
#include <png.h>

#include <jerror.h>

#include "espalier/core/error.h"

namespace espalier::data {
namespace {

// libjpeg and libpng report an error by a call that must not return. We leave it with longjmp, because
// unwinding C++ exceptions through C frames is not defined. The rule that makes the jump safe: what runs
// under guarded() is calls into the library on plain data, nothing that owns anything; owners (the decoder,
// vectors, the thrown Error) live in the frames above, which the jump does not cross.
struct ErrorExit {
  std::jmp_buf jump;
  std::array<char, 256> message = {};  // zero-terminated

  [[noreturn]] void leave(const char* text) {
    std::snprintf(message.data(), message.size(), "%s", text);
    std::longjmp(jump, 1);
  }
};

// False when the library left through `exit`.
template <class Body>
bool guarded(ErrorExit& exit, const Body& body) {
  if (setjmp(exit.jump) != 0) return false;
  body();
  return true;
}

void check_limits(const char* format, int64_t height, int64_t width) {
  if (height < 1 || width < 1) fail("the {} says it is {}x{}: it has no pixels", format, height, width);
  if (height > kMaxImageSide || width > kMaxImageSide || height * width > kMaxImagePixels) {
    fail("the {} says it is {}x{} (height x width); at most {} a side and {} pixels are read", format, height,
         width, kMaxImageSide, kMaxImagePixels);
  }
}

// `least_bytes`: fewer cannot hold an image of this size, however well it compresses. Without this check a
// file of 100 bytes could make us take gigabytes.
void check_capacity(const char* format, int64_t height, int64_t width, int64_t least_bytes,
                    size_t file_bytes) {
  if (static_cast<uint64_t>(least_bytes) > file_bytes) {
    fail("the {} says it is {}x{} (height x width), which its {} bytes cannot hold", format, height, width,
         file_bytes);
  }
}

void check_output(const ImageShape& shape, std::span<std::byte> out) {
  if (out.size() != static_cast<size_t>(shape.size_bytes())) {
    fail("decode: out: want {} bytes, got {}", shape.size_bytes(), out.size());
  }
}

class JpegDecoder final : public ImageDecoder {
 public:
  explicit JpegDecoder(std::span<const std::byte> file) : file_(file) {
    jpeg_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) { leave_with_message(info); };
    errors_.emit_message = &on_message;
    jpeg_.client_data = &exit_;
  }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder() override { jpeg_destroy_decompress(&jpeg_); }  // fine when nothing was created

  void open() {
    run([this] {
      jpeg_create_decompress(&jpeg_);
      progress_.progress_monitor = &on_progress;
      jpeg_.progress = &progress_;
      jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(file_.data()), file_.size());
      jpeg_read_header(&jpeg_, TRUE);
    });
    switch (jpeg_.jpeg_color_space) {
      case JCS_GRAYSCALE:
        jpeg_.out_color_space = JCS_GRAYSCALE;
        break;
      case JCS_YCbCr:
      case JCS_RGB:
        jpeg_.out_color_space = JCS_RGB;
        break;
      case JCS_CMYK:
      case JCS_YCCK:
        fail("the JPEG is CMYK, which is for print; convert it to RGB");
      default:
        fail("the JPEG has {} components; 1 (grey) or 3 (colour) are read", jpeg_.num_components);
    }
    // Nobody writes it, and it has no least number of bits per block, on which the next check rests.
    if (jpeg_.arith_code) fail("the JPEG is arithmetic-coded; save it with the usual Huffman coding");
    shape_ = {.height = static_cast<int64_t>(jpeg_.image_height),
              .width = static_cast<int64_t>(jpeg_.image_width),
              .channels = jpeg_.out_color_space == JCS_RGB ? 3 : 1,
              .type = SampleType::kU8};
    check_limits("JPEG", shape_.height, shape_.width);
    // Each 8x8 block of a component takes at least one Huffman code of at least one bit; eight times fewer
    // leaves room for any sampling of the components.
    const int64_t blocks = ((shape_.height + 7) / 8) * ((shape_.width + 7) / 8);
    check_capacity("JPEG", shape_.height, shape_.width, blocks / 64, file_.size());
  }

  void decode(std::span<std::byte> out) override {
    check_output(shape_, out);
    run([this, out] { read_rows(out.data()); });
  }

 private:
  static void leave_with_message(j_common_ptr info) {
    std::array<char, JMSG_LENGTH_MAX> text = {};
    info->err->format_message(info, text.data());
    static_cast<ErrorExit*>(info->client_data)->leave(text.data());
  }

  // Level -1 is a warning: the library goes on, with made-up pixels in all cases but these, where only bytes
  // outside the pixels are odd.
  static void on_message(j_common_ptr info, int level) {
    if (level >= 0) return;
    switch (info->err->msg_code) {
      case JWRN_EXTRANEOUS_DATA:  // padding between segments: some cameras write it
      case JWRN_JFIF_MAJOR:
      case JWRN_ADOBE_XFORM:
        return;
      default:
        leave_with_message(info);
    }
  }

  // Each scan of a progressive file, ten bytes long if it likes, costs a pass over the whole image. Encoders
  // write about ten.
  static void on_progress(j_common_ptr info) {
    constexpr int kMaxScans = 200;
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMaxScans) {
      static_cast<ErrorExit*>(info->client_data)->leave("it has more than 200 scans");
    }
  }

  // Under guarded(): plain data only.
  void read_rows(std::byte* out) {
    jpeg_start_decompress(&jpeg_);
    const int64_t row_bytes = shape_.width * shape_.channels;
    while (jpeg_.output_scanline < jpeg_.output_height) {
      std::array<JSAMPROW, 4> rows;  // a call delivers at most the vertical sampling factor, 4
      const auto count = std::min<int64_t>(rows.size(), jpeg_.output_height - jpeg_.output_scanline);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = static_cast<int64_t>(jpeg_.output_scanline) + i;
        rows[static_cast<size_t>(i)] = reinterpret_cast<JSAMPROW>(out + row * row_bytes);
      }
      jpeg_read_scanlines(&jpeg_, rows.data(), static_cast<JDIMENSION>(count));
    }
    jpeg_finish_decompress(&jpeg_);  // reads to the end marker: a file without it was cut
  }

  template <class Body>
  void run(const Body& body) {
    if (!guarded(exit_, body)) fail("the JPEG is damaged: {}", exit_.message.data());
  }

  std::span<const std::byte> file_;
  ErrorExit exit_;
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr progress_ = {};
  jpeg_decompress_struct jpeg_ = {};
};

class PngDecoder final : public ImageDecoder {
 public:
  explicit PngDecoder(std::span<const std::byte> file) : file_(file) {}
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;
  ~PngDecoder() override { png_destroy_read_struct(&png_, &info_, nullptr); }

  void open() {
    run([this] { read_header(); });
    const auto height = static_cast<int64_t>(png_get_image_height(png_, info_));
    const auto width = static_cast<int64_t>(png_get_image_width(png_, info_));
    const int64_t bits_per_pixel = png_get_channels(png_, info_) * png_get_bit_depth(png_, info_);
    check_limits("PNG", height, width);
    // Deflate makes at most 1032 bytes of one (258 bytes from two bits).
    check_capacity("PNG", height, width, width * bits_per_pixel / 8 * height / 1032, file_.size());
    run([this] { set_transforms(); });
    shape_ = {.height = height,
              .width = width,
              .channels = png_get_channels(png_, info_),
              .type = png_get_bit_depth(png_, info_) == 16 ? SampleType::kU16 : SampleType::kU8};
    if (static_cast<int64_t>(png_get_rowbytes(png_, info_)) * height != shape_.size_bytes()) {
      fail("the PNG has rows of {} bytes, want {}", png_get_rowbytes(png_, info_),
           shape_.size_bytes() / height);
    }
  }

  void decode(std::span<std::byte> out) override {
    check_output(shape_, out);
    run([this, out] { read_rows(out.data()); });
  }

 private:
  static void on_error(png_structp png, png_const_charp text) {
    static_cast<ErrorExit*>(png_get_error_ptr(png))->leave(text);
  }

  static void on_read(png_structp png, png_bytep out, size_t size) {
    auto& self = *static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (size > self.file_.size() - self.position_) png_error(png, "the file ends early");
    std::memcpy(out, self.file_.data() + self.position_, size);
    self.position_ += size;
  }

  // The three below run under guarded(): plain data only.
  void read_header() {
    png_ = png_create_read_struct(
        PNG_LIBPNG_VER_STRING, &exit_, [](png_structp png, png_const_charp text) { on_error(png, text); },
        [](png_structp, png_const_charp) {});  // warnings are about what we do not read
    if (png_ == nullptr) exit_.leave("libpng cannot start");
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) exit_.leave("libpng cannot start");
    png_set_read_fn(png_, this, &on_read);
    // Text, profiles and the like are skipped unread: they can unpack to far more than their length.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    // A wrong checksum is a damaged file, in tRNS too, which decides the number of channels.
    png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_limits() says it better
    png_read_info(png_, info_);
  }

  void set_transforms() {
    png_set_expand(png_);  // palettes, 1, 2 and 4 bits to 8; tRNS to alpha
    if constexpr (std::endian::native == std::endian::little) png_set_swap(png_);  // only 16-bit values
    num_passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
  }

  void read_rows(std::byte* out) {
    const int64_t row_bytes = shape_.width * shape_.channels * bytes_of(shape_.type);
    for (int pass = 0; pass < num_passes_; ++pass) {
      for (int64_t y = 0; y < shape_.height; ++y) {
        png_read_row(png_, reinterpret_cast<png_bytep>(out + y * row_bytes), nullptr);
      }
    }
    png_read_end(png_, nullptr);  // a file without its end chunk was cut
  }

  template <class Body>
  void run(const Body& body) {
    if (!guarded(exit_, body)) fail("the PNG is damaged: {}", exit_.message.data());
  }

  std::span<const std::byte> file_;
  size_t position_ = 0;
  ErrorExit exit_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int num_passes_ = 1;
};

bool starts_with(std::span<const std::byte> file, std::string_view magic) {
  return file.size() >= magic.size() && std::memcmp(file.data(), magic.data(), magic.size()) == 0;
}

}  // namespace

std::string describe(const ImageShape& shape) {
  return fmt::format("{}x{} (height x width), {} channel{}, {}", shape.height, shape.width, shape.channels,
                     shape.channels == 1 ? "" : "s", name_of(shape.type));
}

std::unique_ptr<ImageDecoder> open_image(std::span<const std::byte> file) {
  if (file.empty()) fail("the file is empty");
  if (starts_with(file, "\xFF\xD8\xFF")) {
    auto decoder = std::make_unique<JpegDecoder>(file);
    decoder->open();
    return decoder;
  }
  if (starts_with(file, "\x89PNG\r\n\x1A\n")) {
    auto decoder = std::make_unique<PngDecoder>(file);
    decoder->open();
    return decoder;
  }
  fail("it is neither a JPEG nor a PNG, whatever its name says");
}

Image decode_image(std::span<const std::byte> file) {
  const auto decoder = open_image(file);
  Image image{.shape = decoder->shape(), .values = {}};
  image.values.resize(static_cast<size_t>(image.shape.size_bytes()));
  decoder->decode(image.values);
  return image;
}

}  // namespace espalier::data
