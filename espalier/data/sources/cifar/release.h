// Behind load_cifar(): the same with the release's description as a parameter, so that tests and fuzzers can
// use small files, and an archive that need not be on disk.
#pragma once

#include <string>

#include "espalier/core/progress.h"
#include "espalier/data/sources/cifar/format.h"
#include "espalier/data/sources/cifar/tar_gz.h"
#include "espalier/data/sources/host_dataset.h"

namespace espalier::data {

// `place`: a directory with the files or an archive, or an archive.
HostDataset load_cifar_release(const CifarFormat& format, const std::string& place, const Progress& progress);

// `file` is the name that errors give.
HostDataset load_cifar_archive(const CifarFormat& format, ReadSome source, const std::string& file,
                               const Progress& progress);

}  // namespace espalier::data
