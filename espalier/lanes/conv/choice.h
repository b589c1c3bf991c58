// How the convolutions of lanes are done on CUDA: by a kernel of all lanes at once, or by cuDNN lane by lane
// on parallel branches. Chosen once for a pass and shape, by measuring where that is allowed.
//
// Kept true: once chosen, a pass and shape is always done the same way, for the life of the process; nothing
// is measured while a step is being captured, nor with kFixed, whose choices depend on the shape alone and
// are deterministic. Stacks of seeds, which may have empty entries (lanes/active.h), are not measured either:
// the kernel of all lanes takes what it can of them, since cuDNN would compute the empty ones too.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace espalier::lanes {

enum class ConvChoosing {
  kMeasure,  // time the candidates at first sight
  kFixed,    // what was recorded, else a way of our own where one takes the shape, else cuDNN's first
             // deterministic plan
};
void set_conv_choosing(ConvChoosing choosing);

// "forward 8x512x32x16x16 64 filters 3x3 stride 1 padding 1 groups 1 BFloat16" -> a way of job.h:
// "lanes", "products", "folded", or "cudnn 3", the plan's place in cuDNN's own list. To be saved with a run,
// and given back to repeat it.
using ConvChoices = std::map<std::string, std::string>;
ConvChoices conv_choices();
void set_conv_choices(const ConvChoices& choices);  // refuses one that cannot be read

// Whether a way of job.h may be written so.
bool is_conv_way(std::string_view text);
// The convolutions.json of a run. Free of torch. Fails with one sentence that begins with
// `where` and names the choice.
ConvChoices parse_conv_choices(std::string_view json, const std::string& where);

}  // namespace espalier::lanes
