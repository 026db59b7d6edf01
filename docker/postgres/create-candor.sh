#!/bin/sh
# Run once by the image of PostgreSQL, on an empty volume: Candor's role, which owns its database and is no superuser. The
# superuser loses its password: it can connect inside of the container only.
set -eu
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --set "password=$(cat /secrets/database/password)" \
  --username "$POSTGRES_USER" --dbname postgres <<'SQL'
CREATE ROLE candor LOGIN PASSWORD :'password';
CREATE DATABASE candor OWNER candor;
ALTER ROLE CURRENT_USER PASSWORD NULL;
SQL
