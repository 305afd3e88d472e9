"""Settings refuse what they do not know, and resolve what was left open."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from tidemark.errors import UsageError
from tidemark.settings import PIPELINE_FOLDERS, Settings, find_root, load_settings


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TIDEMARK_")]:
        monkeypatch.delenv(name)


def _load(root: Path) -> Settings:
    return load_settings(root=root)


def test_defaults_stay_below_the_project(tmp_path: Path) -> None:
    settings = _load(tmp_path)
    assert settings.home == tmp_path / ".tidemark"
    assert settings.warehouse == tmp_path / ".tidemark" / "warehouse"
    assert settings.pipelines == (tmp_path / "include" / "pipelines",)
    assert settings.spark_address == "local[*]"


def test_the_warehouse_follows_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", "elsewhere")
    assert _load(tmp_path).warehouse == tmp_path / "elsewhere" / "warehouse"


def test_folders_of_pipelines_are_separated_like_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_PIPELINES", f"one{os.pathsep}/two")
    assert _load(tmp_path).pipelines == (tmp_path / "one", Path("/two"))


def test_a_variable_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("TIDEMARK_KAFKA_BOOTSTRAP=file:1\nTIDEMARK_SPARK_DRIVER_MEMORY=3g\n")
    monkeypatch.setenv("TIDEMARK_KAFKA_BOOTSTRAP", "variable:1")
    settings = _load(tmp_path)
    assert settings.kafka_address == "variable:1"
    assert settings.spark_driver_memory == "3g"


def test_an_unknown_variable_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_WAREHUOSE", "/x")
    with pytest.raises(UsageError, match="the environment sets TIDEMARK_WAREHUOSE") as caught:
        _load(tmp_path)
    assert "TIDEMARK_WAREHOUSE" in caught.value.next
    assert caught.value.code == 2


def test_an_unknown_name_in_the_file_is_refused_but_other_tools_may_use_it(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("POSTGRES_PASSWORD=x\n")
    _load(tmp_path)
    (tmp_path / ".env").write_text("TIDEMARK_X=1\n")
    with pytest.raises(UsageError, match=r"\.env sets TIDEMARK_X"):
        _load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIDEMARK_KAFKA_PORT", "70000"),
        ("TIDEMARK_SPARK", "yarn"),
        ("TIDEMARK_SPARK_DRIVER_MEMORY", "lots"),
        ("TIDEMARK_S3_ENDPOINT", "s3.example"),
        ("TIDEMARK_S3_ENDPOINT", "ftp://s3.example"),
        ("TIDEMARK_S3_ENDPOINT", "http://s3.example:99999"),
        ("TIDEMARK_S3_ENDPOINT", "http://s3 example"),
        ("TIDEMARK_S3_PATH_STYLE", "perhaps"),
        ("TIDEMARK_PAYLOADS", "write"),
    ],
)
def test_a_value_that_does_not_fit_is_told_by_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=name):
        _load(tmp_path)


def test_a_database_password_is_never_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_AIRFLOW_DATABASE", "postgresql://u:hidden-word@h/d")
    settings = _load(tmp_path)
    assert "hidden-word" not in f"{settings!r}{settings}{settings.model_dump_json()}"


def test_an_endpoint_has_no_place_for_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_S3_ENDPOINT", "https://somebody:hidden-word@s3.example")
    with pytest.raises(UsageError, match="TIDEMARK_S3_ENDPOINT") as caught:
        _load(tmp_path)
    assert "hidden-word" not in str(caught.value)


@pytest.mark.parametrize("value", ["http://127.0.0.1:8333", "https://s3.example", "http://[::1]:9000", "https://h/s3/"])
def test_an_endpoint_is_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TIDEMARK_S3_ENDPOINT", value)
    assert _load(tmp_path).s3_endpoint == value


@pytest.mark.parametrize(("value", "meant"), [("", "trigger"), ("read", "read"), ("nobody", "nobody")])
def test_payloads_are_for_users_who_may_trigger_unless_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, meant: str
) -> None:
    assert _load(tmp_path).payloads == "trigger"
    monkeypatch.setenv("TIDEMARK_PAYLOADS", value)
    assert _load(tmp_path).payloads == meant


def test_settings_are_frozen(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        _load(tmp_path).spark = "local[1]"


def test_the_root_is_the_next_project_upwards(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\ndependencies = ["tidemark"]\n')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text('[project]\nname = "other"\n')
    assert find_root({}, inner) == tmp_path
    assert find_root({"TIDEMARK_ROOT": "/named"}, inner) == Path("/named")
    assert find_root({}, Path("/")) == Path("/")
    airflow = {"AIRFLOW_HOME": "/srv/airflow"}
    assert find_root(airflow, Path("/")) == Path("/srv/airflow")
    assert find_root(airflow, inner) == tmp_path, "a project counts more than Airflow's home"
    assert find_root(airflow | {"TIDEMARK_ROOT": "/named"}, inner) == Path("/named")


def test_pipelines_are_in_the_first_usual_folder_that_exists(tmp_path: Path) -> None:
    assert _load(tmp_path).pipelines == (tmp_path / "include/pipelines",)
    for folder in reversed(PIPELINE_FOLDERS):
        (tmp_path / folder).mkdir(parents=True)
        assert _load(tmp_path).pipelines == (tmp_path / folder,)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"airflow_url": "http://airflow:8080"}, "needs either TIDEMARK_AIRFLOW_TOKEN_FILE or TIDEMARK_AIRFLOW_TOKEN"),
        ({"airflow_token": "hidden-word"}, "TIDEMARK_AIRFLOW_URL needs either"),
        ({"airflow_url": "http://a:1", "airflow_token": "hidden-word", "airflow_token_file": "f"}, "needs either"),
        ({"airflow_url": "http://ann:hidden-word@a:1", "airflow_token": "hidden-word"}, "without a user name"),
    ],
)
def test_another_airflow_needs_one_token(tmp_path: Path, fields: dict[str, str], wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong) as refused:
        load_settings(root=tmp_path, **fields)
    assert "hidden-word" not in str(refused.value)
    settings = load_settings(root=tmp_path, airflow_url="https://airflow.example/x", airflow_token="hidden-word")
    assert settings.airflow_bearer == "hidden-word"
    assert "hidden-word" not in f"{settings!r}{settings.model_dump_json()}"


def test_a_name_may_be_in_lower_case_and_without_a_value_it_is_unset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("tidemark_spark=local[3]\nTIDEMARK_STATSD\nTIDEMARK_SPARK_PARALLELISM=2\n")
    monkeypatch.setenv("tidemark_spark_parallelism", "7")
    settings = _load(tmp_path)
    assert (settings.spark, settings.statsd, settings.spark_parallelism) == ("local[3]", None, 7)
    assert load_settings(root=tmp_path, spark=None, spark_parallelism="8").spark_parallelism == 8
    assert load_settings(root=tmp_path, spark=None).spark is None, "a field that is given wins, even without a value"


def test_a_field_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="TIDEMARK_SPRAK"):
        load_settings(root=tmp_path, sprak="local[1]")
