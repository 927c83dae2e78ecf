#!/bin/sh
# Makes the secrets that compose.yaml mounts, once; run it in the folder deploy, as root.
set -eu
umask 077
mkdir -p tables tls
[ -f postgres_password ] || python3 -c 'import secrets; print(secrets.token_hex(32), end="")' > postgres_password
printf 'postgres:5432:ledgers:sfumato:%s\n' "$(cat postgres_password)" > pgpass
# libpq reads a password file of its owner alone, and the server runs as this user.
[ "$(id -u)" != 0 ] || chown 10001:10001 pgpass
chmod 0755 tables
echo "secrets are made. Put the tables into tables/, tls/server.crt and tls/server.key beside them,"
echo "and the hash of a curator's token into server.toml."
