from __future__ import annotations

import pytest

from mlxfill_model_tiny.check import main


def test_check_prints_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--asks", "2", "--conversations", "2"])
    printed = capsys.readouterr().out
    for expected in (
        "tiny, greedy, thinking",
        "tiny, greedy, not thinking",
        "well-formed",
        "draft, next token",
        "mtp, both guesses",
    ):
        assert expected in printed


@pytest.mark.parametrize("option", ["--asks", "--conversations"])
@pytest.mark.parametrize("value", ["0", "-1", "few"])
def test_a_wrong_number_gets_one_line_and_exit_code_2(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([f"{option}={value}"])
    assert ended.value.code == 2
    assert f"{option}: '{value}' is no whole number of at least 1" in capsys.readouterr().err
