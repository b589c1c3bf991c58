// What an image folder (folder:DIR) holds, before any image is opened. Two layouts:
//   DIR/train/<class>/NAME.png          DIR/test/<class>/NAME.png            one field, called "image"
//   DIR/<field>/train/<class>/NAME.png  DIR/<field>/test/<class>/NAME.png    fields sorted by name, samples
//                                                                            paired by NAME without extension
// Beside train and test, a folder val, valid or validation is the validation split. Where there is no test,
// it takes the place of test: the split that is only read to report. Images end in .jpg, .jpeg or .png, in
// any case.
//
// Kept true: a class's index is its place among the class folders of train, sorted by bytes, and every
// split of every field has exactly those classes, none of them empty. What does not fit is an error that
// names it, never a shift of the indices. Samples come class by class, within a class by the file name in
// the first field.
//
// What is passed over: hidden files (.DS_Store); hidden folders that hold no image; files that are no images;
// in the one-field layout, other folders beside train and test. What is refused, since images would be lost
// unseen: a hidden folder with images, images in a format we do not read, images outside a class folder,
// folders inside a class folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::data {

struct FolderSplit {
  std::vector<std::vector<std::string>> files;  // [F][N] paths; files[f][i] belongs to sample i
  std::vector<int64_t> labels;                  // [N] i64
};

struct FolderListing {
  std::vector<std::string> fields;       // [F] names
  std::vector<std::string> class_names;  // sorted by bytes
  FolderSplit train;
  FolderSplit test;
  FolderSplit validation;          // without files where the folder has no such split
  std::string test_name = "test";  // the folder that the test split is in
};

// Fails with one sentence that names what does not fit.
FolderListing list_folder(const std::string& root);

// The images of a folder that has no classes, to be labelled and not learned from: DIR/NAME.png, sorted by
// name. Nothing where no image lies directly in it; refused where folders lie beside images.
std::vector<std::string> list_plain_folder(const std::string& root);

}  // namespace espalier::data
