# Shards: divides the runs of a sweep among processes or hosts, and combines their results.
# SPDX-License-Identifier: GPL-2.0-or-later
"""A sweep is a list of runs. Shard I of N executes the runs I, I + N, I + 2 N, ... and writes their files to the folder
shard-I-of-N. Tools call Shard.begin(), execute Shard.own() and call Shard.finish(), which writes the file shard.json
last. A folder without this file is therefore an unfinished shard.

load() reads the folders of all shards. load() rejects shards of different tools, versions, options or runs. Each shard
must be there once, with all files as they were written. Therefore a merged sweep equals a sweep of one process.
"""

import argparse
import hashlib
import json
import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = "shard.json"
LIMIT = 9999
# Sources that determine the figures of a run. Builds inside the source tree leave other files there.
SOURCES = ("qemu-hw", "tests/unit", "tests/experiments", "guest-kmod", "guest-provider", "tools")
SUFFIXES = ("", ".c", ".h", ".py", ".sh", ".build")


class Wrong(Exception):
    """The shards do not make one sweep; the text has the reason and the remedy."""


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def digest_of(value):
    """Returns a hash of a value of lists, dicts, texts and numbers."""
    return digest(json.dumps(value, sort_keys=True, default=str).encode())


def version():
    """Returns a hash of the sources. Hosts with the same sources have the same version."""
    whole = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file() and not path.name.startswith("."):
                whole.update(f"{path.relative_to(ROOT)} {digest(path.read_bytes())}\n".encode())
    return whole.hexdigest()[:12]


def sweep(tool, options, runs):
    """Returns the identity of a sweep. options: a dict of texts; runs: pairs of the run's name and its content."""
    return {"tool": tool, "version": version(), "options": options,
            "runs": [{"name": name, "digest": digest_of(content)} for name, content in runs]}


class Shard:
    """Part index of count. argparse makes it from I/N."""

    def __init__(self, text):
        found = re.fullmatch(r"([0-9]{1,5})/([0-9]{1,5})", text)
        self.index, self.count = (int(found[1]), int(found[2])) if found else (0, 0)
        if not 1 <= self.index <= self.count <= LIMIT:
            raise argparse.ArgumentTypeError(f"'{text}' is not I/N, such as 1/4 to 4/4")

    def own(self, runs):
        """Returns the numbers of the runs of this shard, from 0."""
        return range(self.index - 1, len(runs), self.count)

    def begin(self, out):
        """Returns the folder of the shard. The result of an earlier run becomes unfinished."""
        folder = out / f"shard-{self.index}-of-{self.count}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        return folder

    def finish(self, folder, identity, records):
        """Writes the manifest. records: number of the run to a dict with "files", names relative to the folder."""
        for record in records.values():
            record["files"] = {name: digest((folder / name).read_bytes()) for name in record["files"]}
        content = {"shard": self.index, "of": self.count, "sweep": identity,
                   "records": {str(number): record for number, record in records.items()}}
        new = folder / (MANIFEST + ".new")
        new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        os.replace(new, folder / MANIFEST)


def is_safe(name):
    """Returns true if a file name from a manifest is below the folder of the shard."""
    return isinstance(name, str) and name and "\0" not in name and not Path(name).is_absolute() and ".." not in Path(name).parts


def manifest(folder, tool):
    """Returns the checked manifest of a folder."""
    again = "run this shard again"
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        identity, index, count, records = content["sweep"], content["shard"], content["of"], content["records"]
        runs = identity["runs"]
        kinds = ((index, int), (count, int), (records, dict), (runs, list), (identity["options"], dict), (identity["version"], str))
        if not all(isinstance(value, kind) for value, kind in kinds) or not 1 <= index <= count <= LIMIT:
            raise ValueError("a value is invalid")
        if not all(is_safe(run["name"]) and isinstance(run["digest"], str) for run in runs):
            raise ValueError("the name of a run is invalid")
    except FileNotFoundError:
        raise Wrong(f"{folder}: no finished shard, because it has no {MANIFEST}: {again}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise Wrong(f"{folder / MANIFEST}: not the manifest of a shard ({type(error).__name__}: {error}): {again}") from None
    if identity["tool"] != tool:
        raise Wrong(f"{folder}: a shard of tools/{identity['tool']}, not of tools/{tool}: remove it from the list")
    if list(records) != [str(number) for number in range(index - 1, len(runs), count)]:
        raise Wrong(f"{folder}: its runs are not those of shard {index}/{count}: {again}")
    for number, record in records.items():
        files = record.get("files") if isinstance(record, dict) else None
        if not isinstance(files, dict) or not all(map(is_safe, files)):
            raise Wrong(f"{folder / MANIFEST}: run {number} has no valid list of files: {again}")
        for name, expected in files.items():
            try:
                same = digest((folder / name).read_bytes()) == expected
            except OSError:
                same = False
            if not same:
                raise Wrong(f"{folder / name}: absent, or not the file that the shard wrote: {again}")
    return content


def load(folders, tool):
    """Returns the identity of the sweep, and a pair (folder, record) for each run in the order of the sweep."""
    if not folders:
        raise Wrong("there is no shard to merge: run the shards with --shard I/N and the same --out first")
    loaded = [(folder, manifest(folder, tool)) for folder in folders]
    first_folder, first = loaded[0]
    for folder, content in loaded[1:]:
        for what, one, other in (("versions of the sources", first["sweep"]["version"], content["sweep"]["version"]),
                                 ("options", first["sweep"]["options"], content["sweep"]["options"]),
                                 ("sweeps (other runs)", first["sweep"]["runs"], content["sweep"]["runs"]),
                                 ("divisions", f"of {first['of']}", f"of {content['of']}")):
            if one != other:
                values = f" ({one}, {other})" if isinstance(one, str) else ""
                raise Wrong(f"{first_folder} and {folder} are shards of different {what}{values}: run all shards with the same ones")
    known = {}
    for folder, content in loaded:
        if content["shard"] in known:
            raise Wrong(f"shard {content['shard']}/{content['of']} is there twice, as {known[content['shard']]} and {folder}: name one of them")
        known[content["shard"]] = folder
    missing = [number for number in range(1, first["of"] + 1) if number not in known]
    if missing:
        raise Wrong(f"of {first['of']} shards {', '.join(map(str, missing[:8]))} is missing: run it with --shard {missing[0]}/{first['of']}")
    records = {int(number): (folder, record) for folder, content in loaded for number, record in content["records"].items()}
    return first["sweep"], [records[number] for number in range(len(first["sweep"]["runs"]))]


def folders(named, out):
    """Returns the folders to merge: the named ones, or all shards below out."""
    return [Path(name) for name in named] or sorted(out.glob("shard-*-of-*"))
