// What an image folder (folder:DIR) holds, before any image is opened. Two layouts:
//   DIR/train/<class>/NAME.png          DIR/test/<class>/NAME.png            one field, called "image"
//   DIR/<field>/train/<class>/NAME.png  DIR/<field>/test/<class>/NAME.png    fields sorted by name, samples
//                                                                            paired by NAME without extension
// Images end in .jpg, .jpeg or .png, in any case.
//
// Kept true: a class's index is its place among the class folders of train, sorted by bytes, and every split
// of every field has exactly those classes, none of them empty. What does not fit is an error that names it,
// never a shift of the indices. Samples come class by class, within a class by the file name in the first
// field.
//
// What is passed over: hidden files (.DS_Store); hidden folders that hold no image; files that are no images;
// in the one-field layout, folders beside train and test. What is refused, since images would be lost unseen:
// a hidden folder with images, images in a format we do not read, images outside a class folder, folders
// inside a class folder.
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
};

// Fails with one sentence that names what does not fit.
FolderListing list_folder(const std::string& root);

}  // namespace espalier::data
