# shellcheck shell=bash disable=SC2154
# Three replicas behind nginx and a worker, with their state in PostgreSQL: a part of docker/smoke-test.

readonly LOAD_S=12
readonly REACHES_ALL_WITHIN_S=10

replicas() { "${compose[@]}" ps -q replica; }
all_healthy() { for container in $(replicas) $("${compose[@]}" ps -q worker); do wait_healthy; done; }
as_postgres() { "${compose[@]}" exec -T postgres psql --no-psqlrc --tuples-only --no-align --field-separator ' ' "$@"; }
serves() {
  docker exec --env CANDOR_API_KEY "$1" python -I -c '
import os, urllib.request
key = {"Authorization": "Bearer " + os.environ["CANDOR_API_KEY"]}
with urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:8000/readyz", headers=key)) as answer:
    print(__import__("json").load(answer)["models"]["digits"])'
}
all_serve() {
  local give_up=$((SECONDS + REACHES_ALL_WITHIN_S))
  for id in $(replicas); do
    while [ "$(serves "$id")" != "$1" ]; do
      [ "$SECONDS" -lt "$give_up" ] || fail "a replica serves $(serves "$id") instead of $1"
      sleep 0.2
    done
  done
  say "every replica serves $1"
}
# `under_load COMMAND…`: while it runs, and for a while after, no request fails.
under_load() {
  local loading
  "$PYTHON" docker/smoke_client.py load "$LOAD_S" >"$work/load.log" 2>&1 &
  loading=$!
  sleep 2
  "$@" >/dev/null
  wait "$loading" || { cat "$work/load.log" >&2; fail "$*, under load"; }
  say "$1 $2 under load: $(cat "$work/load.log")"
}

# A first key of one's own, as a secret store brings it.
key=cnd_$(openssl rand -hex 6)_$(openssl rand -hex 32)
echo "$key" >"$work/first-key"
chmod 0755 "$work"
export CANDOR_FIRST_KEY_FILE=$work/first-key

build --tag "candor:$CANDOR_TAG"
up
all_healthy
[ "$(replicas | wc -l)" = 3 ] || fail "$(replicas | wc -l) replicas instead of 3"
container=$("${compose[@]}" ps -q worker)
check_confined 10001
container=$("${compose[@]}" ps -q gateway)
check_confined 101
container=$("${compose[@]}" ps -q postgres)
check_confined 999
for id in $(replicas) $("${compose[@]}" ps -q worker); do
  docker inspect --format '{{json .Config.Env}}' "$id" | grep -i 'password=' >/dev/null && fail "the environment contains a password"
  [ -z "$(docker port "$id")" ] || fail "a replica has a port of its own"
done
say "no password in the environment; only the gateway has a port"

for id in $("${compose[@]}" ps -q); do
  docker inspect --format '{{.HostConfig.Memory}} {{json .HostConfig.LogConfig}}' "$id" \
    | grep -q '^[1-9][0-9]* {"Type":"json-file","Config":{"max-file":"4","max-size":"50m"}}$' || fail "a container has no limits"
done
say "every container has a memory limit and keeps a bounded log"

[ -z "$(first_key init-postgres)" ] || fail "init created a key beside the given one"
CANDOR_API_KEY=$key
export CANDOR_API_KEY
check refused
check addresses
check image examples/seven.png
check feedback
check labelled_set
check activate
all_serve "$("$PYTHON" -c "import json; print(json.load(open('$work/state.json'))['active'])")"

# Prometheus finds every replica and the worker, and may read their metrics.
COMPOSE_PROFILES=postgres,observability up prometheus
check scraped 4
COMPOSE_PROFILES=postgres,observability "${compose[@]}" rm --stop --force prometheus >/dev/null 2>&1

# One replica dies and one is stopped; clients notice neither.
container=$(replicas | sed -n 1p)  # all is read: compose would end with a broken pipe
under_load docker kill "$container"
docker start "$container" >/dev/null
wait_healthy
container=$(replicas | tail -n 1)
under_load docker stop "$container"
[ "$(inspect '{{.State.ExitCode}}')" = 0 ] || fail "stopped with exit code $(inspect '{{.State.ExitCode}}')"
docker start "$container" >/dev/null
wait_healthy
check survived

# Only the worker has the role that owns the tables; the replicas' can change none, and the superuser cannot come from another container.
roles=$(as_postgres --username postgres --command "SELECT rolname, rolsuper, rolcreatedb, rolcreaterole, rolpassword IS NULL FROM pg_authid
  WHERE rolname IN ('candor', 'candor_replica', 'postgres') ORDER BY 1")
[ "$roles" = "$(printf 'candor f f f f\ncandor_replica f f f f\npostgres t t t t')" ] || fail "roles of PostgreSQL: $roles"
connected=$(as_postgres --username postgres --command "SELECT DISTINCT host(client_addr), usename FROM pg_stat_activity
  WHERE datname = 'candor' AND client_addr IS NOT NULL" | awk '{print $2}' | sort | uniq -c | awk '{print $1, $2}')
[ "$connected" = "$(printf '1 candor\n3 candor_replica')" ] || fail "containers connected by role: $connected"
for ddl in "CREATE TABLE mine ()" "ALTER TABLE audit DISABLE TRIGGER ALL" "DROP TABLE sessions"; do
  as_postgres --username candor_replica --dbname candor --command "$ddl" >/dev/null 2>&1 && fail "a replica may $ddl"
done
say "roles: the worker's owns the tables, the replicas' cannot change them"

# After a restart of PostgreSQL, everything acknowledged is there.
"${compose[@]}" restart postgres >/dev/null 2>&1
container=$("${compose[@]}" ps -q postgres)
wait_healthy
all_healthy
check survived

# A backup taken under way restores over an existing state and on an empty volume.
"${compose[@]}" exec -T postgres pg_dump --username candor --format custom candor >"$work/backup.dump" || fail "backup"
restore() {
  "${compose[@]}" exec -T postgres psql --username candor --dbname candor --quiet \
    --command 'DROP SCHEMA public CASCADE' --command 'CREATE SCHEMA public' 2>/dev/null || fail "empty the database"
  "${compose[@]}" exec -T postgres pg_restore --username candor --dbname candor --exit-on-error --single-transaction \
    <"$work/backup.dump" || fail "restore"
  "${compose[@]}" exec -T postgres sh /docker-entrypoint-initdb.d/roles.sh || fail "rights of the roles"
}
"${compose[@]}" stop replica worker >/dev/null 2>&1
check unavailable
"${compose[@]}" stop gateway >/dev/null 2>&1
restore
up
all_healthy
check survived
"${compose[@]}" down --volumes >/dev/null 2>&1
up postgres
container=$("${compose[@]}" ps -q postgres)
wait_healthy
restore
up
all_healthy
check survived
