"""Configuration: precedence, one name per source, and errors that name everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from scoutd.agent.evidence import Phase
from scoutd.daemon import config, configsource
from scoutd.daemon.errors import ConfigError


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "scoutd.toml"
    file.write_text(text)
    return file


def error(**sources: object) -> str:
    with pytest.raises(ConfigError) as caught:
        configsource.load(**sources)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_flags_beat_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = write(tmp_path, "[stall]\ntimeout_s = 11\nbusy_factor = 2\ninit_s = 100\n")
    environ = {"SCOUTD_STALL_TIMEOUT": "12", "SCOUTD_STALL_BUSY_FACTOR": "3"}
    made = configsource.load(file, environ, {"stall.timeout_s": "13", "agent.node": None})
    assert (made.stall.timeout_s, made.stall.busy_factor, made.stall.init_s) == (13.0, 3.0, 100.0)
    assert made.stall.eval_s == 600.0


def test_settings_carry_every_limit() -> None:
    values = {
        "stall.checkpoint_s": 60.0,
        "stall.compile_s": 61.0,
        "stall.eval_s": 62.0,
        "stall.init_s": 63.0,
        "stall.exit_s": 64.0,
        "stall.first_step_s": 65.0,
        "stall.settle_s": 6.0,
        "stall.timeout_s": 5.0,
        "stall.heartbeat_s": 7.0,
    }
    settings = configsource.load(flags=values).settings()
    assert settings.phase_limits_s == {
        Phase.CHECKPOINT: 60.0,
        Phase.COMPILE: 61.0,
        Phase.EVAL: 62.0,
        Phase.INIT: 63.0,
        Phase.EXITING: 64.0,
    }
    assert settings.first_step_limit_s == 65.0
    assert (settings.settle_s, settings.stall_timeout_s, settings.heartbeat_limit_s) == (6.0, 5.0, 7.0)


def test_defaults_agree_with_the_core() -> None:
    from scoutd.agent.settings import Settings

    assert config.Config().settings() == Settings()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[stall]\ntimeout = 3\n", ["unknown key stall.timeout", "did you mean timeout_s?"]),
        ("[stahl]\n", ["unknown section [stahl]", "did you mean stall?"]),
        ("stall = 3\n", ["stall must be a section"]),
        ("[stall]\ntimeout_s = 'x'\n", ["stall.timeout_s = 'x'", "a number from 0.1 to 86400"]),
        ("[stall]\ntimeout_s = true\n", ["stall.timeout_s = True", "a number from"]),
        ("[stall]\ntimeout_s = 0\n", ["stall.timeout_s = 0.0", "from 0.1"]),
        ("[stall]\ntimeout_s = nan\n", ["stall.timeout_s = nan"]),
        ("[agent]\nport = 1.5\n", ["agent.port = 1.5", "a whole number from 0 to 65535"]),
        ("[agent]\nlog_level = 'loud'\n", ["agent.log_level = 'loud'", "one of debug, info, warning, error"]),
        ("[agent\n", ["not TOML"]),
    ],
)
def test_wrong_file_names_file_key_value_and_accepted(tmp_path: Path, text: str, expected: list[str]) -> None:
    file = write(tmp_path, text)
    message = error(file=file)
    assert str(file) in message
    for part in expected:
        assert part in message


def test_wrong_environment_names_the_variable() -> None:
    assert "environment: SCOUTD_STALL_TIMEOUT = 'soon'" in error(environ={"SCOUTD_STALL_TIMEOUT": "soon"})


def test_wrong_flag_names_the_flag() -> None:
    assert "flag --http-port = 70000" in error(flags={"agent.http_port": "70000"})
    assert "flag --stall-timeout = -1.0" in error(flags={"stall.timeout_s": "-1"})


def test_missing_file_is_one_line(tmp_path: Path) -> None:
    assert "cannot read the configuration: No such file" in error(file=tmp_path / "none.toml")


def test_huge_file_is_refused(tmp_path: Path) -> None:
    assert "this is no configuration" in error(file=write(tmp_path, "#" * (1 << 20) + "\n"))


def test_kubernetes_service_link_is_not_a_port() -> None:
    environ = {"SCOUTD_AGENT_PORT": "tcp://10.0.0.1:7641"}
    assert configsource.load(environ=environ).agent.port == config.DEFAULT_PORT


def test_every_key_has_its_own_variable_and_flag() -> None:
    keys = list(config.BY_PATH.values())
    assert len({key.env for key in keys}) == len({configsource.flag_name(key) for key in keys}) == len(keys)
    assert config.BY_PATH["stall.timeout_s"].env == "SCOUTD_STALL_TIMEOUT"
    assert config.BY_PATH["stall.busy_io_bytes_per_s"].env == "SCOUTD_STALL_BUSY_IO_BYTES_PER_S"
    assert config.BY_PATH["observe.root"].env == "SCOUTD_ROOT"


def test_every_key_is_in_the_manual_beside_its_variable() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    for key in config.BY_PATH.values():
        assert f"| `{key.path}` | `{key.env}` |" in manual
