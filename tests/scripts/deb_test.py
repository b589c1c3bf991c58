"""The Debian package is made from this build, unpacked where nothing else of espalier is, and used: scripts/check-deb says how."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

if os.environ.get("ESPALIER_SANITIZE"):
    print("skipped: a package of instrumented code is nobody's")
    sys.exit(0)
if not shutil.which("dpkg-shlibdeps"):
    print("skipped: not a Debian or Ubuntu machine with dpkg-dev")
    sys.exit(0)

build = pathlib.Path(sys.argv[1]).resolve().parent
scripts = pathlib.Path(__file__).resolve().parents[2] / "scripts"
with tempfile.TemporaryDirectory() as folder:
    # Little compression: the package is thrown away.
    environment = dict(os.environ, ESPALIER_DEB_LEVEL="0", DEBFULLNAME="A Tester", DEBEMAIL="tester@example.org")
    subprocess.run([scripts / "make-deb", build, folder], env=environment, check=True)
    (package,) = pathlib.Path(folder).glob("espalier_*.deb")
    fields = subprocess.run(["dpkg-deb", "--field", package], capture_output=True, text=True, check=True).stdout
    assert "Maintainer: A Tester <tester@example.org>" in fields, fields
    depends, recommends = (fields.split(f"{field}:")[1].splitlines()[0] for field in ("Depends", "Recommends"))
    assert "libc6" in depends, fields
    # Their names differ between releases, which one package serves.
    assert not [name for name in ("torch", "jpeg", "png", "zlib") if name in depends], fields
    assert "python3" in recommends and "libpng" in recommends, fields
    listed = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    wrong = [line for line in listed.splitlines() if " root/root " not in line]
    assert not wrong, wrong
    subprocess.run([scripts / "check-deb", package], check=True)
