#!/usr/bin/env python3
# Runs the unmodified tests/run_tests.py of rdma-core and prints TAP. A test that was skipped or
# failed counts as good only if the list of agreed tests names it with that reason.
# SPDX-License-Identifier: GPL-2.0-or-later
"""suite.py --first NUMBER TESTS-DIRECTORY AGREED-LIST [option of run_tests.py...]

The environment variable VERSIONS lists the installed projects, as words PROJECT=VERSION.
"""

import fnmatch
import importlib.machinery
import os
import re
import runpy
import sys
import unittest

KINDS = {"never": "SKIP", "not-yet": "SKIP not yet:", "fails": "SKIP not yet, fails:", "fault": "SKIP"}


class Agreement:
    """Contains the agreed skips: lines 'KIND | TEST | TEXT IN THE MESSAGE | REASON'."""

    def __init__(self, path):
        self.rules = []
        versions = dict(word.split("=", 1) for word in os.environ.get("VERSIONS", "").split())
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.strip() and not line.startswith("#"):
                    parts = [part.strip() for part in line.split("|", 3)]
                    if len(parts) != 4 or not all(parts):
                        sys.exit(f"{path}: not KIND | TEST | TEXT | REASON: {line.strip()}")
                    kind, *words = parts[0].split()
                    about = list(zip(words[::2], words[1::2]))
                    if kind not in KINDS or len(words) % 2 or (kind == "fault" and not about):
                        sys.exit(f"{path}: unknown kind '{parts[0]}'")
                    others = [f"{project} {versions.get(project)}" for project, version in about
                              if not re.match(re.escape(version) + r"([.+-]|$)", versions.get(project, ""))]
                    if others:
                        print(f"# {parts[1]}: agreed for {' '.join(words)}, but this is {', '.join(others)}")
                        continue
                    self.rules.append([kind, *parts[1:], 0])

    def find(self, failed, test, message):
        """Returns the TAP directive for a skip or failure, or None if no line of the list names it."""
        for rule in self.rules:
            if (rule[0] == "fault" or failed == (rule[0] == "fails")) and fnmatch.fnmatchcase(test, rule[1]) and rule[2] in message:
                rule[4] += 1
                return f"{KINDS[rule[0]]} {rule[3]}" + ("" if failed else f" ({message})")
        return None

    def unused(self):
        return [rule for rule in self.rules if not rule[4]]


class TapResult(unittest.TestResult):
    """Prints one TAP line for each test, after the messages of a failure."""

    agreement = None
    count = 0
    bad = 0

    def line(self, good, test, directive="", details=""):
        TapResult.count += 1
        TapResult.bad += not good
        for text in details.splitlines()[-30:]:
            print(f"# {text}")
        name = test.id().removeprefix("tests.")
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}{' # ' + directive if directive else ''}", flush=True)

    def judge(self, failed, test, message):
        name = test.id().removeprefix("tests.")
        directive = self.agreement.find(failed, name, message)
        if directive:
            self.line(True, test, directive)
        else:
            self.line(False, test, details=message if failed else f"skipped without agreement: {message}")

    def addSuccess(self, test):
        super().addSuccess(test)
        self.line(True, test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.judge(False, test, reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.judge(True, test, self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.judge(True, test, self.errors[-1][1])


class OtherAdapters:
    """Replaces pyverbs' modules for adapters of other vendors if they were not built. Common files of the suite import
    names from these modules. An empty class for each name is enough, because tests of these adapters do not run."""

    @classmethod
    def find_spec(cls, name, _path=None, _target=None):
        if name == "pyverbs.providers" or name.startswith(("pyverbs.providers.mlx5", "pyverbs.providers.efa")):
            return importlib.machinery.ModuleSpec(name, cls, is_package=True)
        return None

    @staticmethod
    def create_module(_spec):
        return None

    @staticmethod
    def exec_module(module):
        def class_of_theirs(name):
            def refuse(*_args, **_kwargs):
                raise NotImplementedError(f"{module.__name__}.{name} was not built")
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {"__new__": refuse})
        module.__getattr__ = class_of_theirs


class TapRunner:
    """Replaces the runner of unittest, which unittest.main() creates for run_tests.py."""

    def __init__(self, **_):
        pass

    def run(self, test):
        result = TapResult()
        test(result)
        return result


def main():
    TapResult.count = int(sys.argv[2]) - 1
    tests, agreed = sys.argv[3:5]
    TapResult.agreement = Agreement(agreed)
    script = os.path.join(tests, "run_tests.py")
    sys.argv = [script, *sys.argv[5:]]
    sys.path.insert(0, tests)
    sys.meta_path.append(OtherAdapters)
    unittest.runner.TextTestRunner = TapRunner
    status = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        status = stop.code
    unused = TapResult.agreement.unused()
    TapResult.count += 1
    TapResult.bad += bool(unused)
    for rule in unused:
        print(f"# no longer needed in the list: {' | '.join(rule[:3])}")
    print(f"{'not ok' if unused else 'ok'} {TapResult.count} - the list of agreed skips has no unused line")
    with open("count", "w", encoding="ascii") as file:
        file.write(f"tests={TapResult.count} failed=$((failed + {TapResult.bad}))\n")
    sys.stdout.flush()
    # Ends without the cleanup of Python, because objects that fork tests have leaked must not change the result.
    os._exit(1 if TapResult.bad or status not in (0, 1, False, True) else 0)


main()
