"""Judge JUnit files of pytest: at least one test, and every one passed; skips and expected failures count as failures.

A test that is in several files, because it was repeated, has the verdict of the last one.
Prints the reason of each that did not pass, then `N passed, N failed, N skipped`.
"""

from __future__ import annotations

import sys
from xml.etree import ElementTree


def main(paths: list[str]) -> int:
    """Return the exit code: 0 if all passed, 1 otherwise."""
    cases = {}
    for path in paths:
        for case in ElementTree.parse(path).iter("testcase"):
            cases[case.get("classname"), case.get("name")] = case
    passed = failed = skipped = 0
    for case in cases.values():
        verdicts = [child for child in case if child.tag in ("skipped", "failure", "error")]
        for verdict in verdicts:
            reason = (verdict.get("message") or "").strip().split("\n")[0]
            print(f"{verdict.get('type') or verdict.tag}: {case.get('classname')}::{case.get('name')}: {reason}")
        if not verdicts:
            passed += 1
        elif all(verdict.tag == "skipped" for verdict in verdicts):
            skipped += 1
        else:
            failed += 1
    if skipped:
        print("A skipped or expectedly failing test is a failure here.")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 0 if passed and not failed and not skipped else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
