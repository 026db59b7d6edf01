#!/bin/sh
# Candor's roles in PostgreSQL, none of them a superuser: candor owns the database and its tables, candor_replica reads and
# writes rows. The superuser loses its password: it can connect inside of the container only. PostgreSQL's image runs this on an
# empty volume. Run again, it sets the passwords to those of the files, and gives rights that are missing.
set -eu
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --set "owner=$(cat /secrets/database/password)" \
  --set "replica=$(cat /secrets/replica/password)" --username "$POSTGRES_USER" --dbname postgres <<'SQL'
SELECT format('CREATE ROLE %I', name) FROM unnest(ARRAY['candor', 'candor_replica']) AS name
  WHERE name NOT IN (SELECT rolname FROM pg_roles) \gexec
ALTER ROLE candor LOGIN PASSWORD :'owner';
ALTER ROLE candor_replica LOGIN PASSWORD :'replica';
ALTER ROLE CURRENT_USER PASSWORD NULL;
SELECT 'CREATE DATABASE candor OWNER candor' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'candor') \gexec
\connect candor
GRANT USAGE ON SCHEMA public TO candor_replica;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO candor_replica;
ALTER DEFAULT PRIVILEGES FOR ROLE candor GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO candor_replica;
SQL
