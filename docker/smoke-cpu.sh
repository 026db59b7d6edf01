# shellcheck shell=bash disable=SC2154
# One service with its state in SQLite: a part of docker/smoke-test.

# Build the image and check its content.
build --tag "candor:$CANDOR_TAG"
size() { docker image inspect --format '{{.Size}}' "$1"; }
added=$((($(size "candor:$CANDOR_TAG") - $(size "$BASE_IMAGE")) / 1000000))
[ "$added" -le "$LARGEST_ADDITION_MB" ] || fail "the image adds $added MB to its base, more than $LARGEST_ADDITION_MB"
say "built: $added MB over $BASE_IMAGE"
docker run --rm "candor:$CANDOR_TAG" python -c '
import importlib.util, json, shutil, sys
unwanted = [name for name in ("torch", "training", "sklearn", "onnx", "pip") if importlib.util.find_spec(name)]
unwanted += [tool for tool in ("gcc", "cc", "candor-train") if shutil.which(tool)]
if unwanted: sys.exit(f"in the image: {unwanted}")
from importlib.metadata import distributions
listed = {part["name"].lower(): part["version"] for part in json.load(open("/opt/venv/share/candor/sbom.cdx.json"))["components"]}
found = {each.name.lower(): each.version for each in distributions() if "/opt/venv/" in str(each.locate_file(""))}
if listed != found: sys.exit(f"the SBOM differs from what is installed: {set(listed.items()) ^ set(found.items())}")
' || fail "the image contains unwanted files"
say "no torch, no training code, no compiler; the SBOM lists what is there"
# Debian's libgnutls holds the keys of its self-tests; the base is not ours to answer for.
# shellcheck disable=SC2046  # one word for each layer
docker save "candor:$CANDOR_TAG" \
  | docker/scan-secrets --image - $(docker image inspect --format '{{join .RootFS.Layers " "}}' "$BASE_IMAGE") \
  || fail "the image contains a secret"
say "no secret in any layer over the base"

# Start.
up
container=$("${compose[@]}" ps -q candor)
wait_healthy
check_confined 10001
case $(docker port "$container" 8000) in 127.0.0.1:*) ;; *) fail "other machines can reach the port" ;; esac

# The main job, with the key that init wrote.
CANDOR_API_KEY=$(first_key init)
export CANDOR_API_KEY
[ "$("${compose[@]}" run --rm -T init stat -c %a:%u /keys/admin 2>/dev/null)" = 600:10001 ] || fail "wrong mode or owner of the key file"
check refused
check addresses
check image examples/seven.png
check grpc
check feedback
check labelled_set
check dry_run
up
[ "$(first_key init)" = "$CANDOR_API_KEY" ] || fail "init created a second key"
in_container candor keys create --name narrow --scope predict | grep -q '^cnd_' || fail "cannot create a key"
say "a second compose up changes nothing; a key was added beside the running service"
check activate

# Killed right after an answer, the service finds its state. The lock of the dead process, with the same pid, does not block it.
docker kill --signal KILL "$container" >/dev/null
"${compose[@]}" start candor >/dev/null 2>&1 || docker start "$container" >/dev/null
wait_healthy
check survived

# A backup taken under way restores the state on an empty volume.
"${compose[@]}" run --rm -T init candor-state backup >"$work/backup.db" 2>/dev/null || fail "backup"
if "${compose[@]}" run --rm -T init candor-state restore <"$work/backup.db" >/dev/null 2>&1; then
  fail "a restore was allowed while the service was running"
fi

# Stop with SIGTERM.
from=$(now)
"${compose[@]}" stop candor >/dev/null 2>&1
[ "$(inspect '{{.State.ExitCode}}')" = 0 ] || fail "stopped with exit code $(inspect '{{.State.ExitCode}}')"
took=$(since "$from")
"$PYTHON" -c "import sys; sys.exit($took > $STOP_WITHIN_S)" || fail "the stop took $took s"
say "stopped in $took s with exit code 0"

"${compose[@]}" down --volumes >/dev/null 2>&1
"${compose[@]}" run --rm -T init candor-state restore <"$work/backup.db" >/dev/null 2>"$work/restore.log" \
  || { cat "$work/restore.log" >&2; fail "restore"; }
up
container=$("${compose[@]}" ps -q candor)
wait_healthy
check survived
