#include "espalier/lanes/optim/group_update.h"

#include <algorithm>
#include <cmath>

#include "tests/lanes/optim/updated_networks.h"
#include "tests/support/message.h"

namespace espalier::lanes {
namespace {

using testing::distance;
using testing::expect_same_bits;
using testing::expect_same_entry;
using testing::kInf;
using testing::kNaN;
using testing::largest;
using testing::NetworkOptions;
using testing::Networks;
using testing::numbers;
using testing::set_scales;
using testing::Shape;
using testing::some_shapes;
using testing::Tensors;

// After a first step that all make, so that there is momentum, one that `spoil` spoils: entries that `stays`
// names keep all that they are, and the others are what they would be without it.
void expect_that_only_these_stay(const std::function<void(Networks&)>& spoil,
                                 const std::function<bool(size_t group, int64_t entry)>& stays) {
  NetworkOptions setup{.shapes = some_shapes(), .compute = at::kBFloat16};
  Networks healthy(setup), spoilt(setup);
  for (Networks* each : {&healthy, &spoilt}) {
    each->draw_gradients(0);
    each->run();
  }
  const auto before = spoilt.all_entries();
  for (Networks* each : {&healthy, &spoilt}) {
    each->set_clip_norm(2);
    each->draw_gradients(1);
  }
  spoil(spoilt);
  healthy.run();
  spoilt.run();
  const auto unspoilt = healthy.all_entries(), after = spoilt.all_entries();
  for (size_t g = 0; g < after.size(); ++g)
    for (size_t e = 0; e < after[g].size(); ++e) {
      const std::string what = "group " + std::to_string(g) + " entry " + std::to_string(e);
      const bool is_empty = healthy.groups[g].lanes[e] < 0;
      const bool is_to_stay = is_empty || stays(g, static_cast<int64_t>(e));
      expect_same_entry(after[g][e], is_to_stay ? before[g][e] : unspoilt[g][e], what);
      if (!is_to_stay) {
        EXPECT_FALSE(at::equal(after[g][e][0], before[g][e][0])) << what << " did not move";
      }
    }
}

TEST(GroupUpdate, KeepsALaneWhoseLossIsNotFiniteWithAllThatGrewOnIt) {
  for (const double loss : {kNaN, kInf, -kInf})
    for (const int64_t lane : {0, 1, 3})
      expect_that_only_these_stay([&](Networks& spoilt) { spoilt.inputs.losses[lane] = loss; },
                                  [&](size_t group, int64_t entry) {
                                    return some_shapes()[group].lanes[static_cast<size_t>(entry)] == lane;
                                  });
}

TEST(GroupUpdate, KeepsALaneThatIsNotTrainedWithAllThatGrewOnIt) {
  expect_that_only_these_stay([](Networks& spoilt) { spoilt.inputs.is_active[1] = false; },
                              [](size_t group, int64_t entry) {
                                return some_shapes()[group].lanes[static_cast<size_t>(entry)] == 1;
                              });
}

TEST(GroupUpdate, KeepsTheSeedsOfALaneWhoseHostHasGradientsThatAreNotFinite) {
  for (const double value : {kNaN, kInf})
    expect_that_only_these_stay([&](Networks& spoilt) { spoilt.poison(0, 1, value); },
                                [](size_t group, int64_t entry) {
                                  return some_shapes()[group].lanes[static_cast<size_t>(entry)] == 1;
                                });
}

TEST(GroupUpdate, KeepsASeedWhoseGradientsAreNotFiniteAlone) {
  for (const double value : {kNaN, -kInf})
    expect_that_only_these_stay([&](Networks& spoilt) { spoilt.poison(1, 3, value); },
                                [](size_t group, int64_t entry) { return group == 1 && entry == 3; });
}

TEST(GroupUpdate, KeepsFrozenEntries) {
  expect_that_only_these_stay([](Networks& spoilt) { spoilt.groups[1].frozen[2] = true; },
                              [](size_t group, int64_t entry) { return group == 1 && entry == 2; });
}

TEST(GroupUpdate, KeepsEntriesThatTheirOptimizerHasFrozen) {
  expect_that_only_these_stay(
      [](Networks& spoilt) {
        spoilt.groups[0].optimizer->frozen[3] = true;
        spoilt.groups[2].optimizer->frozen[1] = true;
      },
      [](size_t group, int64_t entry) { return (group == 0 && entry == 3) || (group == 2 && entry == 1); });
}

TEST(GroupUpdate, ReadsNothingOfEmptyEntries) {
  expect_that_only_these_stay(
      [](Networks& spoilt) {
        spoilt.poison(1, 1);
        spoilt.poison(2, 2, kInf);
      },
      [](size_t, int64_t) { return false; });
}

// One entry's update as it is written in a textbook, in double.
struct PlainEntry {
  Tensors values;
  Tensors momenta;
  double steps = 0;

  explicit PlainEntry(const Networks& networks, size_t group, int64_t entry) {
    for (const LaneParameter* parameter : networks.groups[group].parameters) {
      values.push_back(parameter->value().detach()[entry].to(at::kDouble).clone());
      momenta.push_back(at::zeros_like(values.back()));
    }
  }
  static double norm(const Tensors& gradients) {
    double squares = 0;
    for (const at::Tensor& each : gradients) squares += each.square().sum().item<double>();
    return std::sqrt(squares);
  }
  // left: what its curve leaves of the rate.
  void step(const Tensors& gradients, double rate, double clip_norm, const LaneSgdOptions& sgd,
            double left = 1) {
    rate *= left;
    const double factor = clip_norm > 0 ? std::min(1.0, clip_norm / (norm(gradients) + 1e-6)) : 1;
    if (sgd.warm_up_steps > 0) rate *= std::min(1.0, (steps + 0.5) / static_cast<double>(sgd.warm_up_steps));
    for (size_t i = 0; i < values.size(); ++i) {
      const at::Tensor decayed = gradients[i] * factor + values[i] * sgd.weight_decay;
      momenta[i] = momenta[i] * sgd.momentum + decayed;
      const at::Tensor direction = sgd.nesterov ? decayed + momenta[i] * sgd.momentum : momenta[i];
      values[i] = values[i] - direction * (rate * sgd.rate_factor);
    }
    steps += 1;
  }
};

TEST(GroupUpdate, ClipsEveryHostAndSeedByItsOwnNorm) {
  NetworkOptions setup{.shapes = some_shapes(), .type = at::kDouble, .compute = at::kDouble};
  for (const bool is_nesterov : {false, true})
    for (const double clip_norm : {0.0, 12.0}) {
      setup.sgd.nesterov = is_nesterov;
      Networks networks(setup);
      networks.set_clip_norm(clip_norm);
      std::vector<std::vector<PlainEntry>> plain(networks.groups.size());
      for (size_t g = 0; g < plain.size(); ++g)
        for (int64_t e = 0; e < std::ssize(networks.groups[g].lanes); ++e)
          plain[g].emplace_back(networks, g, e);
      int num_clipped = 0, num_whole = 0;
      for (int step = 0; step < 8; ++step) {
        networks.draw_gradients(step);
        networks.gradient(1, 2).mul_(10);  // a seed far above the limit on a host that is not
        networks.gradient(0, 3, 2).mul_(0.1);
        for (size_t g = 0; g < plain.size(); ++g)
          for (size_t e = 0; e < plain[g].size(); ++e) {
            const int64_t lane = networks.groups[g].lanes[e];
            if (lane < 0) continue;
            Tensors gradients;
            for (const LaneParameter* parameter : networks.groups[g].parameters)
              gradients.push_back(parameter->gradient()[static_cast<int64_t>(e)].clone());
            (PlainEntry::norm(gradients) > clip_norm ? num_clipped : num_whole) += 1;
            plain[g][e].step(gradients, networks.inputs.peak_rates[lane].item<double>(), clip_norm,
                             setup.sgd);
          }
        networks.run();
      }
      if (clip_norm > 0) {
        EXPECT_GT(num_clipped, 16);
        EXPECT_GT(num_whole, 16);
      }
      for (size_t g = 0; g < plain.size(); ++g)
        for (size_t e = 0; e < plain[g].size(); ++e)
          for (size_t i = 0; i < plain[g][e].values.size(); ++i) {
            const at::Tensor& want = plain[g][e].values[i];
            const at::Tensor got =
                networks.groups[g].parameters[i]->value().detach()[static_cast<int64_t>(e)];
            EXPECT_LE(distance(got, want), 1e-12 * largest(want))
                << "group " << g << " entry " << e << " parameter " << i;
          }
    }
}

TEST(GroupUpdate, FollowsTheScheduleOfItsRunAndCountsItsSteps) {
  constexpr int kSteps = 20;
  for (const RateCurve curve :
       {RateCurve::kLinear, RateCurve::kCosine, RateCurve::kConstant, RateCurve::kStep})
    for (const double warm_up : {0.0, 4.0})
      for (const auto type : {at::kFloat, at::kDouble}) {
        NetworkOptions setup{.shapes = some_shapes(), .type = type, .compute = type};
        Networks scheduled(setup), told(setup);
        scheduled.inputs.schedule = {
            .curve = curve, .steps = kSteps, .warm_up = warm_up, .rise = warm_up > 0 ? 1 / warm_up : 0};
        const at::Tensor peaks = told.inputs.peak_rates.to(at::kDouble);
        for (int step = 0; step < kSteps; ++step) {
          told.inputs.peak_rates = (peaks * scheduled.inputs.schedule.at(step)).to(type);
          for (Networks* each : {&scheduled, &told}) {
            each->draw_gradients(step);
            each->run();
          }
        }
        EXPECT_EQ(scheduled.inputs.step.item<double>(), kSteps);
        for (size_t g = 0; g < told.groups.size(); ++g)
          for (int64_t e = 0; e < std::ssize(told.groups[g].lanes); ++e)
            expect_same_entry(scheduled.entry(g, e), told.entry(g, e),
                              "curve " + std::to_string(static_cast<int>(curve)) + ", group " +
                                  std::to_string(g) + " entry " + std::to_string(e));
      }
}

// Entries that begin at different steps and rest in others: the curve is over what they made and what is
// left.
TEST(GroupUpdate, LetsRatesFallFromThePeakByTheAgeOfAnEntry) {
  constexpr int kSteps = 24;
  const auto share_of = [](RateCurve curve, double middle, double warm_up, double life) {
    if (curve == RateCurve::kStep) return middle < life / 2 ? 1 : middle < 0.75 * life ? 0.1 : 0.01;
    const double way = life > warm_up ? std::max(0.0, (middle - warm_up) / (life - warm_up)) : 0;
    if (curve == RateCurve::kLinear) return 1 - way;
    return curve == RateCurve::kCosine ? (1 + std::cos(M_PI * way)) / 2 : 1;
  };
  for (const RateCurve curve :
       {RateCurve::kLinear, RateCurve::kCosine, RateCurve::kConstant, RateCurve::kStep})
    for (const int64_t warm_up : {0, 6}) {
      NetworkOptions setup{.shapes = some_shapes(), .type = at::kDouble, .compute = at::kDouble};
      setup.sgd.warm_up_steps = warm_up;
      setup.sgd.curve = curve;
      Networks networks(setup);
      const auto is_resting = [](size_t group, int64_t entry, int step) {
        return group > 0 &&
               (step < 7 * entry || (entry == 2 && step % 3 == 0));  // the last begins at step 21
      };
      std::vector<std::vector<PlainEntry>> plain(networks.groups.size());
      for (size_t g = 0; g < plain.size(); ++g)
        for (int64_t e = 0; e < std::ssize(networks.groups[g].lanes); ++e)
          plain[g].emplace_back(networks, g, e);
      for (int step = 0; step < kSteps; ++step) {
        networks.draw_gradients(step);
        networks.set_steps_left(kSteps - step);
        for (size_t g = 0; g < plain.size(); ++g)
          for (int64_t e = 0; e < std::ssize(plain[g]); ++e) {
            PlainEntry& entry = plain[g][static_cast<size_t>(e)];
            const int64_t lane = networks.groups[g].lanes[static_cast<size_t>(e)];
            if (g > 0) networks.groups[g].frozen[e] = is_resting(g, e, step);
            if (lane < 0 || is_resting(g, e, step)) continue;
            Tensors gradients;
            for (const LaneParameter* parameter : networks.groups[g].parameters)
              gradients.push_back(parameter->gradient()[e].clone());
            entry.step(gradients, networks.inputs.peak_rates[lane].item<double>(), 0, setup.sgd,
                       share_of(curve, entry.steps + 0.5, static_cast<double>(warm_up),
                                entry.steps + kSteps - step));
          }
        networks.run();
      }
      for (size_t g = 0; g < plain.size(); ++g)
        for (size_t e = 0; e < plain[g].size(); ++e)
          for (size_t i = 0; i < plain[g][e].values.size(); ++i) {
            const at::Tensor& want = plain[g][e].values[i];
            const at::Tensor got =
                networks.groups[g].parameters[i]->value().detach()[static_cast<int64_t>(e)];
            EXPECT_LE(distance(got, want), 1e-12 * largest(want))
                << "curve " << static_cast<int>(curve) << ", warm-up " << warm_up << ", group " << g
                << " entry " << e << " parameter " << i;
          }
    }
}

// A lane of `all` by itself, with its values and options.
NetworkOptions alone_with(const Networks& all, int64_t lane) {
  NetworkOptions setup = all.setup;
  setup.shapes.clear();
  for (const Shape& shape : all.setup.shapes)
    if (std::ranges::count(shape.lanes, lane) > 0) setup.shapes.push_back({{0}, shape.values});
  setup.sgd.momentum = all.groups[0].momentum_factors[lane].item<double>();
  setup.sgd.weight_decay = all.groups[0].weight_decays[lane].item<double>();
  setup.sgd.nesterov = setup.sgd.nesterov && setup.sgd.momentum > 0;
  return setup;
}

TEST(GroupUpdate, ClipsDecaysAndMovesEveryLaneAsItsOwnOptionsSay) {
  const double clip_norms[] = {0, 2, 12, 0.3}, decays[] = {0, 5e-4, 0.1, 3e-3},
               factors[] = {0.9, 0, 0.5, 0.99};
  for (const bool is_nesterov : {false, true})
    for (const auto type : {at::kFloat, at::kDouble}) {
      NetworkOptions setup{.shapes = some_shapes(), .type = type, .compute = type};
      setup.sgd.nesterov = is_nesterov;
      Networks all(setup);
      all.set_clip_norm(0);
      for (int64_t lane = 0; lane < 4; ++lane) {
        all.inputs.clip_norms[lane] = clip_norms[lane];
        for (const UpdatedGroup& group : all.groups) {
          group.momentum_factors[lane] = factors[lane];
          group.weight_decays[lane] = decays[lane];
        }
      }
      for (int64_t lane = 0; lane < 4; ++lane) {
        Networks together(setup), alone(alone_with(all, lane));
        together.inputs.clip_norms = all.inputs.clip_norms;
        for (size_t g = 0; g < all.groups.size(); ++g) {
          together.groups[g].momentum_factors.copy_(all.groups[g].momentum_factors);
          together.groups[g].weight_decays.copy_(all.groups[g].weight_decays);
        }
        alone.set_clip_norm(clip_norms[lane]);
        alone.inputs.peak_rates[0] = together.inputs.peak_rates[lane];
        // The groups in which the lane has an entry: its place there.
        std::vector<std::pair<size_t, int64_t>> entries;
        for (size_t g = 0; g < together.groups.size(); ++g)
          if (const auto& lanes = together.groups[g].lanes; std::ranges::count(lanes, lane) > 0)
            entries.emplace_back(g, std::ranges::find(lanes, lane) - lanes.begin());
        const auto copy = [&](const auto& tensor_of) {
          for (size_t own = 0; own < entries.size(); ++own) {
            const auto [g, e] = entries[own];
            for (size_t i = 0; i < alone.groups[own].parameters.size(); ++i)
              tensor_of(*alone.groups[own].parameters[i])[0].copy_(
                  tensor_of(*together.groups[g].parameters[i])[e]);
          }
        };
        copy([](const LaneParameter& parameter) { return parameter.value().detach(); });
        for (int step = 0; step < 4; ++step) {
          together.draw_gradients(step);
          copy([](const LaneParameter& parameter) { return parameter.gradient(); });
          together.run();
          alone.run();
        }
        for (size_t own = 0; own < entries.size(); ++own) {
          const auto [g, e] = entries[own];
          for (size_t i = 0; i < alone.groups[own].parameters.size(); ++i)
            expect_same_bits(together.groups[g].parameters[i]->value().detach()[e],
                             alone.groups[own].parameters[i]->value().detach()[0],
                             "lane " + std::to_string(lane) + ", group " + std::to_string(g));
        }
      }
    }
}

TEST(GroupUpdate, LetsComputeCopiesFollow) {
  for (const auto compute : {at::kBFloat16, at::kHalf}) {
    Networks networks({.shapes = some_shapes(), .compute = compute});
    networks.draw_gradients(0);
    networks.run();
    for (const LaneParameter& parameter : networks.owned)
      expect_same_bits(parameter.compute(), parameter.value().detach().to(compute), "copy");
  }
}

TEST(GroupUpdate, AddsUpNormsBeforeClippingAndCountsWhatCouldNotBeTrained) {
  Networks networks({.shapes = some_shapes()});
  networks.set_clip_norm(0.5);
  std::vector<double> sums(4), most(4), first(4), second(4);
  for (int step = 0; step < 3; ++step) {
    networks.draw_gradients(step);
    const auto norm_of = [&](size_t group, int64_t entry) {
      Tensors gradients;
      for (const LaneParameter* parameter : networks.groups[group].parameters)
        gradients.push_back(parameter->gradient()[entry].to(at::kDouble));
      return PlainEntry::norm(gradients);
    };
    for (size_t lane = 0; lane < 4; ++lane) {
      const double norm = norm_of(0, static_cast<int64_t>(lane));
      sums[lane] += norm;
      most[lane] = std::max(most[lane], norm);
    }
    for (int64_t e = 0; e < 4; ++e)
      if (e != 1)
        first[static_cast<size_t>(networks.groups[1].lanes[static_cast<size_t>(e)])] += norm_of(1, e);
    for (int64_t e = 0; e < 2; ++e)
      second[static_cast<size_t>(networks.groups[2].lanes[static_cast<size_t>(e)])] += norm_of(2, e);
    networks.poison(1, 1);  // an empty entry's norm is added to nothing
    networks.run();
  }
  const auto expect_near = [](const at::Tensor& got, const std::vector<double>& want, const char* what) {
    for (size_t lane = 0; lane < want.size(); ++lane)
      EXPECT_NEAR(numbers(got)[lane], want[lane], 1e-12 * want[lane]) << what << " of lane " << lane;
  };
  expect_near(networks.sums.norms, sums, "norms");
  expect_near(networks.sums.largest_norms, most, "largest norms");
  expect_near(networks.groups[1].norms, first, "norms of the first stack");
  expect_near(networks.groups[2].norms, second, "norms of the second stack");
  EXPECT_EQ(numbers(networks.sums.non_finite), (std::vector<double>{0, 0, 0, 0}));

  networks.draw_gradients(3);
  networks.inputs.losses[0] = kNaN;
  networks.inputs.losses[3] = kInf;
  networks.inputs.is_active[3] = false;  // nobody counts what is not trained
  networks.poison(0, 1);
  networks.poison(1, 0);  // a seed of lane 2, which is trained
  networks.run();
  EXPECT_EQ(numbers(networks.sums.non_finite), (std::vector<double>{1, 1, 0, 0}));
  EXPECT_TRUE(std::isnan(numbers(networks.sums.norms)[1]));
  EXPECT_TRUE(std::isnan(numbers(networks.sums.largest_norms)[1]));
  EXPECT_TRUE(std::isnan(numbers(networks.groups[1].norms)[2]));
  for (const size_t lane : {0, 2, 3}) EXPECT_TRUE(std::isfinite(numbers(networks.sums.norms)[lane])) << lane;

  networks.inputs.losses.fill_(1);
  networks.draw_gradients(4);
  networks.run();  // a norm that was not finite stays so
  EXPECT_TRUE(std::isnan(numbers(networks.sums.largest_norms)[1]));
  EXPECT_EQ(numbers(networks.sums.non_finite), (std::vector<double>{1, 1, 0, 0}));
}

TEST(GroupUpdate, DividesGradientsByTheScalesOfTheirLanes) {
  for (const double clip_norm : {0.0, 2.0}) {
    NetworkOptions setup{.shapes = some_shapes()};
    Networks scaled(setup), plain(setup);
    for (int step = 0; step < 3; ++step) {
      for (Networks* each : {&scaled, &plain}) {
        each->draw_gradients(step);
        each->set_clip_norm(clip_norm);
      }
      set_scales(scaled, {1, 1024, 65536, 8}, 1);
      scaled.run();
      plain.run();
    }
    // Scales are powers of two: nothing is rounded.
    for (size_t g = 0; g < plain.groups.size(); ++g) {
      for (int64_t e = 0; e < std::ssize(plain.groups[g].lanes); ++e)
        expect_same_entry(scaled.entry(g, e), plain.entry(g, e),
                          "group " + std::to_string(g) + " entry " + std::to_string(e));
      if (g > 0) expect_same_bits(scaled.groups[g].norms, plain.groups[g].norms, "norms");
    }
    expect_same_bits(scaled.sums.norms, plain.sums.norms, "norms of hosts");
    EXPECT_EQ(numbers(scaled.sums.skipped), (std::vector<double>{0, 0, 0, 0}));
    EXPECT_EQ(numbers(scaled.sums.is_whole), (std::vector<double>{1, 1, 1, 1}));
  }
}

TEST(GroupUpdate, LeavesOutWhatALowerScaleMayCureAndFlagsItAtTheSmallest) {
  Networks networks({.shapes = some_shapes()});
  const auto before = networks.all_entries();
  networks.draw_gradients(0);
  set_scales(networks, {1024, 2, 1024, 1024}, 2);
  networks.poison(0, 0, kInf);       // overflow
  networks.poison(0, 1, kInf);       // overflow where the scale falls no further
  networks.inputs.losses[2] = kNaN;  // no overflow: a lower scale cures nothing
  networks.poison(2, 0, kInf);       // a seed's alone, which its host does not feel
  networks.run();
  EXPECT_EQ(numbers(networks.sums.skipped), (std::vector<double>{1, 1, 0, 0}));
  EXPECT_EQ(numbers(networks.sums.is_whole), (std::vector<double>{0, 0, 1, 1}));
  EXPECT_EQ(numbers(networks.sums.non_finite), (std::vector<double>{0, 1, 1, 0}));
  for (const int64_t lane : {0, 1, 2})
    expect_same_entry(networks.entry(0, lane), before[0][static_cast<size_t>(lane)], "host");
  EXPECT_FALSE(at::equal(networks.entry(0, 3)[0], before[0][3][0]));
  expect_same_entry(networks.entry(2, 0), before[2][0], "seed");

  networks.draw_gradients(1);
  networks.inputs.losses.fill_(1);
  networks.inputs.is_active[0] = false;
  set_scales(networks, {512, 2, 1024, 1024}, 2);
  networks.poison(0, 0, kInf);  // nobody lowers the scale of a lane that is not trained
  networks.run();
  EXPECT_EQ(numbers(networks.sums.skipped), (std::vector<double>{1, 1, 0, 0}));
  EXPECT_EQ(numbers(networks.sums.is_whole), (std::vector<double>{1, 1, 1, 1}));
  EXPECT_EQ(numbers(networks.sums.non_finite), (std::vector<double>{0, 1, 1, 0}));
}

TEST(GroupUpdate, NamesTheArgumentThatItRefuses) {
  Networks networks({.shapes = some_shapes()});
  GroupUpdate update;
  EXPECT_ERROR(update.set_groups({}), c10::Error, "groups", "hosts", "none");
  const auto refuses = [&](const std::function<void(std::vector<UpdatedGroup>&)>& spoil,
                           std::initializer_list<std::string> parts) {
    std::vector<UpdatedGroup> groups = networks.groups;
    spoil(groups);
    try {
      update.set_groups(groups);
      ADD_FAILURE() << "did not throw";
    } catch (const c10::Error& error) {
      ::espalier::testing::expect_parts(error.what(), parts);
    }
  };
  using Groups = std::vector<UpdatedGroup>;
  refuses([](Groups& groups) { groups[1].parameters.clear(); }, {"groups[1]", "parameters", "got 0"});
  refuses([](Groups& groups) { groups[1].weight_decays = at::Tensor(); },
          {"groups[1]", "weight_decays", "none"});
  refuses([](Groups& groups) { groups[2].momentum_factors = at::zeros({3}, at::kDouble); },
          {"groups[2]", "momentum_factors", "[4]", "[3]"});
  refuses([](Groups& groups) { groups[2].optimizer = nullptr; }, {"groups[2]", "optimiser"});
  refuses([](Groups& groups) { groups[1].lanes.pop_back(); }, {"groups[1].lanes", "[4]", "[3]"});
  refuses([](Groups& groups) { groups[0].lanes.push_back(4); }, {"groups[0].lanes", "[4]", "[5]"});
  refuses([](Groups& groups) { std::swap(groups[0].lanes[1], groups[0].lanes[2]); },
          {"groups[0].lanes[1]", "own number", "got 2"});
  refuses([](Groups& groups) { groups[0].lanes[3] = -1; }, {"groups[0].lanes[3]", "own number", "got -1"});
  refuses([](Groups& groups) { groups[2].lanes[0] = 4; }, {"groups[2].lanes[0]", "a lane or -1", "got 4"});
  refuses([](Groups& groups) { groups[2].lanes[0] = -2; }, {"groups[2].lanes[0]", "a lane or -1", "got -2"});

  networks.inputs.step = at::ones({2}, at::kDouble);
  EXPECT_ERROR(networks.run(), c10::Error, "step", "[1]", "[2]");
  networks.inputs.peak_rates = at::Tensor();
  EXPECT_ERROR(networks.run(), c10::Error, "peak_rates", "[4]", "none");
}

}  // namespace
}  // namespace espalier::lanes
