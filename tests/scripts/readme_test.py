"""The C++ of README.md is that of an example: its class to the letter, and nothing is used that is not declared. python readme_test.py"""

import pathlib
import re

root = pathlib.Path(__file__).resolve().parents[2]
section = (root / "README.md").read_text().split("## From C++", 1)[1]
snippet = re.search(r"```cpp\n(.*?)```", section, re.S).group(1)
path = re.search(r"\((examples/\w+\.cpp)\), whole", section).group(1)
example = (root / path).read_text()
shared, apart, rest = snippet.partition("\n...\n")
assert apart, f"README.md: no line '...' behind what {path} has too"
assert len(shared.splitlines()) > 15 and shared in example, f"README.md: its lines up to '...' do not stand in {path}"
for name in ("controller", "options", "population"):
    assert re.search(rf"^[\w:]+ {name}[;(]", rest, re.M), f"README.md: '{name}' is used in C++ that does not declare it"
print("the C++ of README.md stands in an example")
