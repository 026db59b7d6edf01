#!/bin/sh
# The main job with curl, against the digits of `make serve`: predict, send labels, propose a policy, list revisions,
# activate, roll back. CANDOR_URL selects another service; CANDOR_API_KEY is its key, if it requires one.
set -eu
url=${CANDOR_URL:-http://127.0.0.1:8000}
image=$(dirname "$0")/../seven.png

call() { # call TEXT CURL-ARGUMENTS: print the text, run curl, print the answer; an error ends the script
    echo "# $1" >&2
    shift
    curl --silent --show-error --fail-with-body ${CANDOR_API_KEY:+--header "Authorization: Bearer $CANDOR_API_KEY"} "$@"
    echo
}

call "predict an image; return a policy's decision and the two largest probabilities" \
    --header 'Content-Type: image/png' --data-binary "@$image" "$url/predict?policy=auto-read&top=2"

call "predict several images in one request, with your own references" \
    --form "inputs=@$image" --form "inputs=@$image" --form references=scan-1 --form references=scan-2 "$url/predict?top=1"

call "predict an image in base64" --header 'Content-Type: application/json' \
    --data "{\"inputs\": [\"$(base64 <"$image" | tr -d '\n')\"], \"references\": [\"scan-3\"]}" "$url/predict?top=0"

call "send true labels by reference; a repetition with the same key is not stored again" \
    --header 'Content-Type: application/json' --header "Idempotency-Key: labels-of-$$" \
    --data '{"items": [{"reference": "scan-1", "label": "7", "source": "reviewer"}, {"reference": "scan-2", "label": "7"}]}' \
    "$url/feedback"

call "propose a policy" --request PUT --header 'Content-Type: application/json' \
    --data '{"positive": "top", "bands": [{"action": "accept", "when": {"min_probability": 0.9}}, {"action": "review"}]}' \
    "$url/v1/models/digits/policies/careful"

# The ETag of the revisions is the epoch. A change sends it as If-Match and gets 412 if the epoch has moved on.
headers=$(mktemp)
trap 'rm -f "$headers"' EXIT
epoch() { tr -d '\r' <"$headers" | sed -n 's/^etag: //p'; }

revisions=$(call "list the revisions, newest first" --dump-header "$headers" "$url/v1/models/digits/revisions")
echo "$revisions"
newest=$(echo "$revisions" | sed 's/.*"items":\[{"id":"\(r[0-9]*\)".*/\1/')

call "activate $newest" --request POST --header "If-Match: $(epoch)" --dump-header "$headers" \
    "$url/v1/models/digits/revisions/$newest/activate"

call "roll back" --request POST --header "If-Match: $(epoch)" "$url/v1/models/digits/rollback"
