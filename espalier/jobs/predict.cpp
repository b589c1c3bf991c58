#include "espalier/jobs/predict.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/data/iterator.h"
#include "espalier/grow/host/registry.h"
#include "espalier/jobs/scope.h"
#include "espalier/tensor/device.h"
#include "espalier/tensor/file.h"
#include "espalier/train/population/setup.h"

namespace espalier::jobs {
namespace {

using grow::GrownNetwork;
using grow::NetworkDescription;
using Json = nlohmann::ordered_json;

// What is predicted: one field, as the test split of a dataset.
struct Images {
  data::HostDataset dataset;
  std::vector<std::string> files;
  bool has_labels = true;
};

size_t field_for(const NetworkDescription& network, const data::HostSplit& split, const std::string& data) {
  if (split.fields.size() == 1) return 0;
  std::vector<std::string> names;
  for (size_t f = 0; f < split.fields.size(); ++f) {
    names.push_back(split.fields[f].spec.name);
    if (names.back() == network.field) return f;
  }
  fail_usage("--data {}: has the fields {}, and the network was trained on '{}'", data,
             fmt::join(names, ", "), network.field);
}

// What makes the images of a folder what the network takes; empty where nothing does.
std::string remedy_for(const NetworkDescription& network, const data::FieldSpec& spec,
                       const std::string& data) {
  if (!data.starts_with("folder:")) return "";
  std::string flags;
  if (spec.channels != network.channels) {
    const bool can_be =
        spec.type == data::SampleType::kU8 && (network.channels == 1 || network.channels == 3);
    if (!can_be) return "";
    flags += fmt::format(" --channels {}", network.channels);
  }
  if (spec.height != network.height || spec.width != network.width)
    flags += fmt::format(" --resize {}x{}", network.height, network.width);
  return "; give" + flags;
}

void check_images(const NetworkDescription& network, const data::FieldSpec& spec, const std::string& data) {
  if (spec.channels == network.channels && spec.height == network.height && spec.width == network.width)
    return;
  fail_usage("--data {}: its images are {} x {} x {} (channels, height, width), and the network takes {}{}",
             data, spec.channels, spec.height, spec.width, network.image_text(),
             remedy_for(network, spec, data));
}

// Only what is predicted goes to the device, normalised as in training.
Images prepared(Images images, const NetworkDescription& network, data::HostSplit split,
                const std::string& data) {
  data::HostField field = split.fields[field_for(network, split, data)];
  check_images(network, field.spec, data);
  images.dataset.statistics = {{.mean = network.mean, .stddev = network.deviation}};
  images.dataset.class_names = network.classes;
  images.dataset.validation = {};
  images.dataset.train = {.fields = {data::allocate_field(field.spec, 0).field}};
  images.dataset.test = {.fields = {std::move(field)}, .labels = std::move(split.labels)};
  return images;
}

Images images_for(const PredictConfig& config, const NetworkDescription& network, const Progress& progress) {
  const std::string& data = config.source.data;
  if (auto unlabelled = data::load_unlabelled(config.source, progress)) {
    Images images{.files = std::move(unlabelled->files), .has_labels = false};
    images.dataset.origin = unlabelled->origin;
    images.dataset.skipped = std::move(unlabelled->skipped);
    return prepared(std::move(images), network, std::move(unlabelled->images), data);
  }
  Images images{.dataset = data::load_source(config.source, progress)};
  if (images.dataset.class_names != network.classes)
    fail_usage(
        "--data {}: its classes are {}, and the network knows {}: labels could not be compared; to label "
        "images "
        "without them, put them into one folder",
        data, fmt::join(images.dataset.class_names, ", "), fmt::join(network.classes, ", "));
  data::HostSplit split = config.split == PredictedSplit::kTest ? images.dataset.test : images.dataset.train;
  return prepared(std::move(images), network, std::move(split), data);
}

std::vector<GrownNetwork> networks_for(const PredictConfig& config) {
  if (config.ensemble > 0 && config.lane.which != LaneChoice::Which::kBest)
    fail_usage("--lane {} --ensemble {}: want one of the two: an ensemble is of the best {} of all lanes",
               config.lane.which == LaneChoice::Which::kAll ? "all" : std::to_string(config.lane.lane),
               config.ensemble, config.ensemble);
  std::vector<GrownNetwork> networks = saved_networks(config.from, config.checkpoint);
  if (config.ensemble == 0) {
    if (config.lane.which == LaneChoice::Which::kAll)
      fail_usage("--lane all: want one lane; --ensemble K takes the best K together");
    return chosen_networks(std::move(networks), config.lane);
  }
  networks = best_networks(std::move(networks), config.ensemble);
  const NetworkDescription& first = networks.front().description;
  for (const auto& [other, tensors, name] : networks)
    if (other.host != first.host || other.image_text() != first.image_text() ||
        other.classes != first.classes || other.mean != first.mean || other.deviation != first.deviation)
      fail_usage(
          "--ensemble {}: want networks of one host, image shape, classes, mean and deviation; lanes {} and "
          "{} "
          "differ",
          config.ensemble, first.origin.lane, other.origin.lane);
  return networks;
}

}  // namespace

std::optional<double> Predictions::accuracy() const {
  if (labels.empty()) return std::nullopt;
  return (chosen == at::tensor(labels, at::kLong)).to(at::kDouble).mean().item<double>();
}

Json Predictions::line(int64_t sample) const {
  const auto i = static_cast<size_t>(sample);
  const at::Tensor row = probabilities.select(0, sample).contiguous(c10::MemoryFormat::Contiguous);
  const auto* const values = row.const_data_ptr<float>();
  const int64_t best = chosen.select(0, sample).item<int64_t>();
  Json line{{"sample", sample}};
  if (!files.empty()) line["file"] = files[i];
  line["class"] = best;
  line["label"] = classes[static_cast<size_t>(best)];
  line["probability"] = values[best];
  if (!labels.empty()) line["true_class"] = labels[i];
  line["probabilities"] = std::vector<float>(values, values + row.numel());
  return line;
}

void Predictions::write_tensors(const std::string& path) const {
  std::vector<std::pair<std::string, at::Tensor>> tensors{{"probabilities", probabilities},
                                                          {"classes", chosen}};
  if (logits.defined()) tensors.emplace_back("logits", logits);
  if (!labels.empty()) tensors.emplace_back("labels", at::tensor(labels, at::kLong));
  const auto text = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  Metadata metadata{{"kind", "espalier.predictions"}, {"class_names", text(classes)}};
  if (!files.empty()) metadata["files"] = text(files);
  espalier::write_tensors(path, tensors, metadata);
}

Predictions predict(const PredictConfig& config, const Progress& progress) {
  const c10::NoGradGuard no_grad;
  const std::vector<GrownNetwork> networks = networks_for(config);
  const NetworkDescription& network = networks.front().description;
  const DeviceName place = choose_device(config.device);
  const c10::Device device = torch_device(place);
  const JobScope scope({}, {device});
  Images images = images_for(config, network, progress);
  if (images.dataset.test.num_samples() == 0)
    fail_usage("--data {}: there is nothing to predict", config.source.data);

  const at::ScalarType compute = train::precision_type(config.precision, device);
  const std::shared_ptr<const data::ResidentDataset> resident =
      data::make_resident(images.dataset, {.validation = 0}, device, progress);
  grow::NetworkStack population(grow::hosts().at(network.host).make,
                                grow::frame_of(network, std::ssize(networks)), {}, device, compute);
  grow::become(population, networks);
  const data::PlanOptions plan{.n_envs = std::ssize(networks),
                               .batch_size_per_env = config.batch,
                               .env_devices = std::vector<std::string>(networks.size(), place.text())};
  data::GatherIterator batches(data::IteratorOptions::evaluation(plan, compute), {resident},
                               data::Split::kTest);

  std::vector<at::Tensor> logits, probabilities;
  batches.begin_epoch(0);
  int64_t done = 0;
  while (const auto batch = batches.eval_stacked()) {
    throw_if_interrupted();
    const data::StackedBatch& here = batch->front();
    const at::Tensor all = population.forward(here.fields.front(), lanes::Mode::kEvaluate).to(at::kFloat);
    const at::Tensor valid = all.narrow(1, 0, here.counts.front());  // [networks,b,K]
    logits.push_back(valid.select(0, 0).to(at::kCPU));
    probabilities.push_back(at::softmax(valid, 2).mean(0).to(at::kCPU));
    done += here.counts.front();
    if (progress) progress("predicting", done, images.dataset.test.num_samples());
  }
  Predictions result{.classes = network.classes,
                     .probabilities = at::cat(probabilities),
                     .files = std::move(images.files),
                     .skipped = std::move(images.dataset.skipped)};
  for (const GrownNetwork& each : networks) result.networks.push_back(each.description);
  if (networks.size() == 1) result.logits = at::cat(logits);
  result.chosen = result.probabilities.argmax(1);
  if (images.has_labels) result.labels = images.dataset.test.labels;
  return result;
}

}  // namespace espalier::jobs
