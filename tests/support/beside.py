"""Runs the test cases of the calling module beside each other, because they wait for servers and programs for most of
their time. Tests of a class with setUpClass share what it sets up, so they run one after the other."""
import atexit
import io
import multiprocessing.pool
import os
import shutil
import sys
import tempfile
import time
import unittest

AT_ONCE = 2 * (os.cpu_count() or 2)


class Timed(unittest.TextTestResult):
    def startTest(self, test):
        self.began = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        self.stream.writeln(f"    {time.monotonic() - self.began:.1f} s")
        super().stopTest(test)


def groups_of(module):
    loader = unittest.defaultTestLoader
    for case in vars(module).values():
        if not (isinstance(case, type) and issubclass(case, unittest.TestCase) and case.__module__ == module.__name__):
            continue
        tests = loader.loadTestsFromTestCase(case)
        if case.setUpClass.__func__ is unittest.TestCase.setUpClass.__func__:
            yield from (unittest.TestSuite([test]) for test in tests)
        else:
            yield tests


def run(group):
    text = io.StringIO()
    result = unittest.TextTestRunner(text, verbosity=2, resultclass=Timed).run(group)
    return text.getvalue(), result


def main(at_once=AT_ONCE):
    """Ends with the line that count_tests.py sums up. What the tests write to temporary folders is gone then."""
    tempfile.tempdir = tempfile.mkdtemp(prefix="pj-")
    atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)
    total = failed = skipped = 0
    groups = list(groups_of(sys.modules["__main__"]))
    with multiprocessing.pool.ThreadPool(at_once) as pool:
        for text, result in pool.imap_unordered(run, groups):
            print(text, end="", flush=True)
            total += result.testsRun
            failed += len(result.failures) + len(result.errors)
            skipped += len(result.skipped)
    print(f"{total - failed - skipped} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed or total == 0 else 0)
