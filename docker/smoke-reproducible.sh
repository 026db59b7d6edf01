# shellcheck shell=bash disable=SC2154
# Two builds from scratch contain the same files: a part of docker/smoke-test. Takes minutes.

for round in 1 2; do
  build --no-cache --tag "candor:$CANDOR_TAG-$round"
  docker run --rm --entrypoint sh "candor:$CANDOR_TAG-$round" -c \
    "cd /opt/venv && find . -type f -exec sha256sum {} + | LC_ALL=C sort -k 2 && find . -type l -printf '%p -> %l\n' | LC_ALL=C sort" \
    >"$work/files-$round"
  say "built: $(wc -l <"$work/files-$round") files"
done
diff "$work/files-1" "$work/files-2" >"$work/differ" || { head -n 20 "$work/differ" >&2; fail "the builds differ"; }
say "every file of /opt/venv is the same: $(sha256sum <"$work/files-1" | cut -c -16)"
docker rmi "candor:$CANDOR_TAG-1" "candor:$CANDOR_TAG-2" >/dev/null
