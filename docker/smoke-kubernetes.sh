# shellcheck shell=bash disable=SC2154,SC2054
# The image as deploy/ runs it, without a cluster: its user, mounts, probes and signals, three replicas that only serve, a worker,
# and their replacement under load. A part of docker/smoke-test.

readonly ENDS_WITHIN_S=10  # the delay of the stop included
readonly STOP_DELAY_S=5
readonly HEARD_AFTER_S=2   # a balancer hears of the end of a pod with a delay
cluster=$COMPOSE_PROJECT_NAME

run() {  # NAME, options of docker run…
  local name=$1
  shift
  docker run --detach --label "$cluster" --network "$cluster" --name "$cluster-$name" --network-alias "$name" "$@" >/dev/null
}
# What the chart gives every container of a pod; the default seccomp profile of the engine is RuntimeDefault.
pod=(--user 10001:10001 --read-only --cap-drop ALL --security-opt no-new-privileges
  --tmpfs /tmp:size=256m,mode=1777,noexec,nosuid,nodev --tmpfs /var/lib/candor:size=64m,uid=10001,gid=10001,mode=0770
  --volume "$work/secrets:/secrets/database:ro" --volume "$work/keys:/secrets/keys:ro"
  --env CANDOR_DATABASE_URL=postgresql://candor@postgres/candor --env CANDOR_DATABASE_PASSWORD_FILE=/secrets/database/password
  --env "CANDOR_STOP_DELAY_S=$STOP_DELAY_S")
bundles=(--volume "$PWD/examples/bundles:/bundles:ro" --volume "$PWD/examples/policies:/policies:ro")
serve() { run "$@" "${pod[@]}" "${bundles[@]}" --env CANDOR_BACKGROUND=false "candor:$CANDOR_TAG" candor serve; }
probe() { docker exec "$cluster-$1" python -I -S /opt/venv/bin/candor-healthcheck >/dev/null 2>&1; }
wait_ready() {
  local from
  from=$(now)
  for _ in $(seq 240); do
    if probe "$1"; then say "$1 ready after $(since "$from") s"; return; fi
    [ "$(docker inspect --format '{{.State.Running}}' "$cluster-$1")" = true ] || { docker logs "$cluster-$1" >&2; fail "$1 ended"; }
    sleep 0.5
  done
  docker logs --tail 20 "$cluster-$1" >&2
  fail "$1 is not ready"
}
route() {  # to these pods; nginx tries nothing twice, so that a request that fails is seen
  { echo "worker_processes 1; pid /tmp/nginx.pid; error_log /dev/stderr warn; worker_shutdown_timeout 30s;
events { worker_connections 512; }
http {
  access_log off;
  client_body_temp_path /tmp/body; proxy_temp_path /tmp/proxy; fastcgi_temp_path /tmp/f; uwsgi_temp_path /tmp/u; scgi_temp_path /tmp/s;
  upstream pods { keepalive 32; keepalive_timeout 4s;"
    for name in "$@"; do echo "    server $name:8000 max_fails=0;"; done
    echo "  }
  server {
    listen 8000;
    keepalive_timeout 0;  # of clients: a reload of nginx closes idle connections that a client may just be using
    proxy_http_version 1.1;
    proxy_set_header Connection '';
    proxy_next_upstream off;
    location / { proxy_pass http://pods; }
  }
}"; } >"$work/nginx/nginx.conf"
}

build --tag "candor:$CANDOR_TAG"
docker network create --label "$cluster" "$cluster" >/dev/null
mkdir "$work/secrets" "$work/keys" "$work/nginx"
"$PYTHON" -c 'import secrets; print(secrets.token_urlsafe(32))' >"$work/secrets/password"
"$PYTHON" -c 'import secrets; print(f"cnd_{secrets.token_hex(6)}_{secrets.token_hex(32)}")' >"$work/keys/admin"
chmod 0755 "$work"
CANDOR_API_KEY=$(cat "$work/keys/admin")
export CANDOR_API_KEY

# A replica starts before the state has tables, and waits; the worker's init container makes them and adds the key.
run postgres --user 999:999 --volume "$work/secrets:/secrets/database:ro" --env POSTGRES_USER=candor --env POSTGRES_DB=candor \
  --env POSTGRES_PASSWORD_FILE=/secrets/database/password --env PGDATA=/var/lib/postgresql/data \
  --tmpfs /var/run/postgresql:uid=999,gid=999,mode=0700 "$POSTGRES_IMAGE"
for _ in $(seq 120); do
  docker exec "$cluster-postgres" pg_isready --quiet --host 127.0.0.1 --username candor && break
  sleep 0.5
done
serve serve-1
for _ in $(seq 120); do
  docker logs "$cluster-serve-1" 2>&1 | grep "waiting for" >/dev/null && break
  sleep 0.5
done
docker logs "$cluster-serve-1" 2>&1 | grep "waiting for" >/dev/null || fail "serve-1 does not wait for the state"
docker run --rm --network "$cluster" "${pod[@]}" "candor:$CANDOR_TAG" \
  sh -ec 'candor keys add /secrets/keys/admin --name admin --scope admin' >/dev/null || fail "the init container"
say "a replica waits for the state; the init container made it and added the key"
run worker "${pod[@]}" "${bundles[@]}" "candor:$CANDOR_TAG" candor worker
wait_ready worker
docker start "$cluster-serve-1" >/dev/null  # as the kubelet would, if it came before the key
wait_ready serve-1
# shellcheck disable=SC2034  # read by check_confined
container=$cluster-serve-1
check_confined 10001
serve serve-2
serve serve-3 --env CANDOR_WORKERS=2 --env CANDOR_THREADS=1
wait_ready serve-2
wait_ready serve-3

route serve-1 serve-2 serve-3
run gateway --user 101:101 --publish "127.0.0.1:$CANDOR_PORT:8000" --tmpfs /tmp:mode=1777 --volume "$work/nginx:/etc/candor:ro" \
  --entrypoint nginx "$NGINX_IMAGE" -c /etc/candor/nginx.conf -e /dev/stderr -g 'daemon off;'
check refused
check image examples/seven.png
check feedback
check activate  # the worker recalibrates

# /mnt/models as KServe mounts it: a single bundle, on KServe's ports.
run kserve "${pod[@]}" --volume "$PWD/examples/bundles/digits/1:/mnt/models:ro" --env CANDOR_BUNDLES=/mnt/models --env CANDOR_PORT=8080 \
  --env CANDOR_GRPC_PORT=9000 --env CANDOR_BACKGROUND=false "candor:$CANDOR_TAG" candor serve
wait_ready kserve
docker stop --time 30 "$cluster-kserve" >/dev/null
say "a single bundle at /mnt/models is served"

# Replace one replica after the other: the new one is ready, the old one gets SIGTERM, and the balancer hears of it later.
"$PYTHON" docker/smoke_client.py load_until "$work/replaced" >"$work/load.log" 2>&1 &
loading=$!
sleep 2
serving=(serve-1 serve-2 serve-3)
for old in serve-1 serve-2 serve-3; do
  new=${old/serve/next}
  if [ "$old" = serve-3 ]; then serve "$new" --env CANDOR_WORKERS=2 --env CANDOR_THREADS=1; else serve "$new"; fi
  wait_ready "$new"
  serving+=("$new")
  route "${serving[@]}"
  docker exec "$cluster-gateway" nginx -c /etc/candor/nginx.conf -e /dev/stderr -s reload 2>/dev/null
  sleep 1
  from=$(now)
  docker kill --signal TERM "$cluster-$old" >/dev/null
  for _ in $(seq 20); do if probe "$old"; then sleep 0.1; else break; fi; done
  probe "$old" && fail "$old is still ready"
  sleep $HEARD_AFTER_S
  remaining=()
  for name in "${serving[@]}"; do [ "$name" = "$old" ] || remaining+=("$name"); done
  serving=("${remaining[@]}")
  route "${serving[@]}"
  docker exec "$cluster-gateway" nginx -c /etc/candor/nginx.conf -e /dev/stderr -s reload 2>/dev/null
  status=$(docker wait "$cluster-$old")
  took=$(since "$from")
  [ "$status" = 0 ] || { docker logs --tail 20 "$cluster-$old" >&2; fail "$old ended with status $status"; }
  "$PYTHON" -c "import sys; sys.exit($took > $ENDS_WITHIN_S)" || fail "the end of $old took $took s"
  say "$old replaced: unready at once, ended $took s after SIGTERM with status 0"
done
touch "$work/replaced"
wait "$loading" || { cat "$work/load.log" >&2; fail "the replacement"; }
say "replacement of three replicas: $(cat "$work/load.log")"
check survived
