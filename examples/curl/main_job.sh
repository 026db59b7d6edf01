#!/bin/sh
# The main job with curl, against the digits of `make serve`: predict, send labels, look at revisions, propose a policy,
# put it into service, roll back. CANDOR_URL names another service, CANDOR_API_KEY is sent where there is one.
set -eu
url=${CANDOR_URL:-http://127.0.0.1:8000}
image=$(dirname "$0")/../seven.png

call() { # call WHAT CURL-ARGUMENTS: say what, ask, print the answer; a refusal ends the script
    echo "# $1" >&2
    shift
    curl --silent --show-error --fail-with-body ${CANDOR_API_KEY:+--header "Authorization: Bearer $CANDOR_API_KEY"} "$@"
    echo
}

call "an image, the two largest probabilities, decided by a policy" \
    --header 'Content-Type: image/png' --data-binary "@$image" "$url/predict?policy=auto-read&top=2"

call "several images in one request, under names of your own" \
    --form "inputs=@$image" --form "inputs=@$image" --form references=scan-1 --form references=scan-2 "$url/predict?top=1"

call "an image in base64" --header 'Content-Type: application/json' \
    --data "{\"inputs\": [\"$(base64 <"$image" | tr -d '\n')\"], \"references\": [\"scan-3\"]}" "$url/predict?top=0"

call "true labels, by your names; sent twice under one key they are stored once" \
    --header 'Content-Type: application/json' --header "Idempotency-Key: labels-of-$$" \
    --data '{"items": [{"reference": "scan-1", "label": "7", "source": "reviewer"}, {"reference": "scan-2", "label": "7"}]}' \
    "$url/feedback"

call "a policy, which makes a proposal" --request PUT --header 'Content-Type: application/json' \
    --data '{"positive": "top", "bands": [{"action": "accept", "when": {"min_probability": 0.9}}, {"action": "review"}]}' \
    "$url/v1/models/digits/policies/careful"

# The ETag of the revisions is the epoch that a change is based on; whoever is late gets 412.
headers=$(mktemp)
trap 'rm -f "$headers"' EXIT
epoch() { tr -d '\r' <"$headers" | sed -n 's/^etag: //p'; }

revisions=$(call "the revisions, newest first" --dump-header "$headers" "$url/v1/models/digits/revisions")
echo "$revisions"
newest=$(echo "$revisions" | sed 's/.*"items":\[{"id":"\(r[0-9]*\)".*/\1/')

call "activate $newest" --request POST --header "If-Match: $(epoch)" --dump-header "$headers" \
    "$url/v1/models/digits/revisions/$newest/activate"

call "and back" --request POST --header "If-Match: $(epoch)" "$url/v1/models/digits/rollback"
