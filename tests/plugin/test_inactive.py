"""What the plugin costs and shows in a session that has nothing to do with it."""

from __future__ import annotations

import re


def output_of(pytester, *arguments):
    pytester.makepyfile("def test_one(): assert True\ndef test_two(): assert 1 == 2\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)
    text = re.sub(r"in \d+\.\d+s", "in TIME", result.stdout.str())
    # The list of installed plugins is the one place where pytest itself names every plugin.
    return re.sub(r"gnus-[\d.]+(, )?", "", text).replace("plugins: \n", "")


def test_an_unrelated_session_looks_as_without_the_plugin(pytester):
    assert output_of(pytester) == output_of(pytester, "-p", "no:gnus")


def test_no_module_beyond_the_options_is_imported(pytester):
    pytester.makepyfile(
        "import sys\n"
        "def test_modules():\n"
        "    ours = {name for name in sys.modules if name.startswith('pytest_gnus.')}\n"
        "    assert ours == {f'pytest_gnus.{name}' for name in ('hookspecs', 'options', 'plugin')}\n"
        "    heavy = {'lm_eval', 'mlx', 'mlx_lm', 'transformers', 'datasets', 'pydantic', 'yaml', 'numpy'}\n"
        "    assert not heavy & set(sys.modules)\n"
    )
    pytester.runpytest_subprocess("-p", "no:hypothesispytest").assert_outcomes(passed=1)


def files_in(folder):
    """What lies there, pytester's own folders aside."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("runpytest-"))


def test_no_file_is_written(pytester):
    pytester.makepyfile("def test_one(): pass\n")
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:gnus")
    before = files_in(pytester.path)
    pytester.runpytest_subprocess("-p", "no:cacheprovider")
    assert files_in(pytester.path) == before
