"""Judge JUnit files of pytest: at least one test, and every one passed; skips and expected failures count as failures.

A test that is in several files, because it was repeated, has the verdict of the last one.  One that failed in real
time, each time while the machine was elsewhere (tests/conftest.py), says nothing about the code; more than a few, and
the run says nothing.  Prints the reason of each that did not pass, then `N passed, N failed, N skipped`.
"""

import sys
from xml.etree import ElementTree

#: Tests that may be without a verdict, of some thousand in real time.
MAX_VOID = 20


def starved(case: ElementTree.Element) -> str:
    """Say why a test has no verdict; empty if it has one."""
    return "".join(each.get("value", "") for each in case.iter("property") if each.get("name") == "starved")


def main(paths: list[str]) -> int:
    """Return the exit code: 0 if all passed, 1 otherwise."""
    cases: dict[tuple[str | None, str | None], ElementTree.Element] = {}
    there = set()  # tests that failed while the machine was there
    whole = True
    for path in paths:
        try:
            found = list(ElementTree.parse(path).iter("testcase"))
        except (OSError, ElementTree.ParseError) as error:
            print(f"{path}: its tests did not come to their end: {error}")
            whole = False
            continue
        if not found and path.endswith("1.xml"):  # of a second run, nothing is left to do where nothing had failed
            print(f"{path}: no test was run")
            whole = False
        for case in found:
            name = case.get("classname"), case.get("name")
            cases[name] = case
            failed = any(child.tag in ("failure", "error") for child in case)
            if failed and not starved(case):
                there.add(name)
    passed = failures = skipped = void = 0
    for name, case in cases.items():
        verdicts = [child for child in case if child.tag in ("skipped", "failure", "error")]
        for verdict in verdicts:
            reason = (verdict.get("message") or "").strip().split("\n")[0]
            print(f"{verdict.get('type') or verdict.tag}: {case.get('classname')}::{case.get('name')}: {reason}")
        if not verdicts:
            passed += 1
        elif all(verdict.tag == "skipped" for verdict in verdicts):
            skipped += 1
        elif name not in there:
            print(f"  without a verdict: {starved(case)}")
            void += 1
        else:
            failures += 1
    if skipped:
        print("A skipped or expectedly failing test is a failure here.")
    if void:
        print(f"The machine was elsewhere: {void} in real time without a verdict, at most {MAX_VOID} may be.")
    print(f"{passed} passed, {failures} failed, {skipped} skipped")
    return 0 if whole and passed and not failures and not skipped and void <= MAX_VOID else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
